"""Workload files: read, checked, run on a device and reported."""
