"""Waits of methods for events outside the method pipeline."""
