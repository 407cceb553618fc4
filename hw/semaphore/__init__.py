"""Semaphores: operations, the slots on chip, fences in memory, and the unit around them."""
