"""Tests of streaming multiprocessors."""
