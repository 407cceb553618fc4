"""Kernels that launch kernels."""
