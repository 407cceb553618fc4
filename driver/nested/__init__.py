"""Algorithms whose kernels launch kernels: sort, refinement, breadth-first search. Beside each its
flat version, in which the host launches the kernels of each level."""
