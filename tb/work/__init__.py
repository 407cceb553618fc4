"""Tests of task unit and global logic controller."""
