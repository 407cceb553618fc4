"""Tests of the copy engine."""
