"""Algorithms with nested launches, in which kernels launch kernels: merge sort, refinement,
breadth-first search. Each also has a flat version, in which the host launches the kernels of each
level."""
