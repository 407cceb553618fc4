"""Algorithms whose kernels launch kernels: sort, refinement, breadth-first search. Each has a flat
version beside it, in which the host launches the kernels of each level."""
