"""Tests of single units of the host."""
