"""Kernels for the SM cores: assembler, kernel library, tasks of the timing core."""
