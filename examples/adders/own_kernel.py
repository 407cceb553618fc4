"""A custom kernel for the supplied core. `hw/sm/ISA.md` describes the assembly language."""

from signalbox.driver.kernels.library import Kernel

__all__ = ["POLYNOMIAL"]

POLYNOMIAL = Kernel(
    "polynomial",
    """
    s2r   r0, ctaid.x
    s2r   r1, ntid.x
    s2r   r2, tid.x
    mad   r0, r0, r1, r2            # index in the grid
    ldc   r1, [N]
    sltu  r1, r0, r1
    push  r1                        # threads behind the end are off
    ldc   r2, [X]
    ldc   r3, [4]
    lea   r2, r2, r0, 2             # address of X[i]
    ldg   r4, [r2]
    ldc   r5, [A]
    mad   r6, r4, r5, r4            # A x + x
    mad   r6, r6, r4, r4            # (A x + x) x + x
    stg   [r2], r6
    exit
    """,
    {"X": 8, "N": 4, "A": 4},
)
"""X[i] = (A + 1) X[i]² + X[i] for i < N, modulo 2³²."""
