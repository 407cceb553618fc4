"""Algorithms whose kernels launch kernels: sort, refinement, breadth-first search."""
