"""Compute engine: front end, task unit, placement and SMs."""
