"""Tests of the placement of blocks."""
