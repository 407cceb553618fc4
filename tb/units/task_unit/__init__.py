"""Tests of the task unit and the global logic controller."""
