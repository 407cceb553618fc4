"""Errors of channels, tasks and warps, and the translation faults that cause them."""
