"""Tests of the memory fabric."""
