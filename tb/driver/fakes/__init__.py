"""Machines in plain Python, for tests of the driver."""
