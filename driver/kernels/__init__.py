"""Kernels for the SM cores: assembler, supplied kernels, tasks of the timing core."""
