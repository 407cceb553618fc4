"""Constrained-random programs on the whole machine, checked against independent models."""
