"""Workload files: reading, checking, running on a device, reporting."""
