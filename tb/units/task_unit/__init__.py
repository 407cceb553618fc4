"""Tests of the task unit."""
