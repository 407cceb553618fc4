"""Compute engine: contexts, task records and their memory, launches, occupancy."""
