"""The compute engine: front end, task unit, placement and SMs in one piece."""
