"""Kernels for the supplied core: assembly text, parameters and resources.

Arguments are 32-bit words and 64-bit pointers, in the order of `parameters`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import SupportsIndex

from signalbox.driver.kernels.assembler import assemble, registers, source_lines
from signalbox.hw.sm.isa import INSTRUCTION_BYTES

__all__ = [
    "CHASE",
    "ENDLESS",
    "KERNELS",
    "MATMUL",
    "REDUCE",
    "SAXPY",
    "SCAN",
    "SPIN",
    "VECTOR_ADD",
    "Kernel",
]


@dataclass(frozen=True)
class Kernel:
    """A program and its resource needs. Raises `ValueError` for sizes other than described below.

    Members
    -------
    name : name for messages.
    text : assembly text; each parameter is a named constant, its byte offset in the arguments.
    parameters : size of each parameter in bytes, by name: 4, or 8 for a pointer. Each is aligned
        to its size.
    shared_per_thread : bytes of shared memory per thread of a block.
    barrier : whether it uses barriers.
    local : bytes of local memory per thread, a multiple of 16.
    """

    name: str
    text: str
    parameters: Mapping[str, int]
    shared_per_thread: int = 0
    barrier: bool = False
    local: int = 0

    def __post_init__(self) -> None:
        for name, size in self.parameters.items():
            if size not in (4, 8):
                raise ValueError(f"{self.name}: {name} has {size!r} bytes: a parameter has 4 or 8")
        if self.shared_per_thread < 0:
            raise ValueError(f"{self.name}: shared_per_thread = {self.shared_per_thread} < 0")
        if self.local < 0 or self.local % 16:
            raise ValueError(f"{self.name}: local = {self.local} is not a multiple of 16")

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Byte offset of each parameter in the arguments."""
        offsets, at = {}, 0
        for name, size in self.parameters.items():
            offsets[name] = at = -(-at // size) * size
            at += size
        return offsets

    @cached_property
    def program(self) -> bytes:
        """The assembled program. Raises `AssemblerError`."""
        return assemble(self.text, self.offsets)

    @cached_property
    def registers(self) -> int:
        """Registers per thread, at least 1: the hardware has no kernels without registers."""
        return max(registers(self.program), 1)

    def line(self, offset: int) -> str:
        """Source line of the instruction at byte `offset` of the program, as text."""
        lines = source_lines(self.text, self.offsets)
        if offset % INSTRUCTION_BYTES or not 0 <= offset // INSTRUCTION_BYTES < len(lines):
            return f"byte {offset} of {self.name!r}"
        number, text = lines[offset // INSTRUCTION_BYTES]
        return f"line {number} of {self.name!r}: {' '.join(text.split())}"

    def arguments(self, **values: SupportsIndex) -> bytes:
        """Encode constant buffer 0 with these values, padded to a multiple of 16 bytes.

        Raises `ValueError` unless every parameter has a whole number that fits.
        """
        if set(values) != set(self.parameters):
            raise ValueError(f"{self.name} takes {', '.join(self.parameters)}, not {set(values)}")
        buffer = bytearray(-(-max(self._end, 1) // 16) * 16)
        for name, given in values.items():
            at, size = self.offsets[name], self.parameters[name]
            try:
                value = index(given)
            except TypeError:
                raise ValueError(f"{self.name}: {name} = {given!r} is not a whole number") from None
            if not -(1 << 31) <= value < 1 << 8 * size:
                raise ValueError(f"{self.name}: {name} = {value} does not fit {size} bytes")
            mask = (1 << 8 * size) - 1
            buffer[at : at + size] = (value & mask).to_bytes(size, "little")
        return bytes(buffer)

    @property
    def _end(self) -> int:
        ends = (self.offsets[name] + size for name, size in self.parameters.items())
        return max(ends, default=0)


_INDEX = """
    s2r   r0, ctaid.x
    s2r   r1, ntid.x
    s2r   r2, tid.x
    mad   r0, r0, r1, r2            # index in the grid
    ldc   r1, [N]
    sltu  r1, r0, r1
    push  r1                        # inside the vectors
"""

_POINTERS = {"A": 8, "B": 8, "C": 8, "N": 4}

VECTOR_ADD = Kernel(
    "vector add",
    f"""{_INDEX}
    ldc   r2, [A]
    ldc   r3, [4]
    lea   r2, r2, r0, 2
    ldg   r6, [r2]
    ldc   r4, [B]
    ldc   r5, [12]
    lea   r4, r4, r0, 2
    ldg   r7, [r4]
    add   r6, r6, r7
    ldc   r2, [C]
    ldc   r3, [20]
    lea   r2, r2, r0, 2
    stg   [r2], r6
    exit
    """,
    _POINTERS,
)
"""C[i] = A[i] + B[i] for i < N."""

SAXPY = Kernel(
    "saxpy",
    f"""{_INDEX}
    ldc   r2, [X]
    ldc   r3, [4]
    lea   r2, r2, r0, 2
    ldg   r6, [r2]
    ldc   r4, [Y]
    ldc   r5, [12]
    lea   r4, r4, r0, 2
    ldg   r7, [r4]
    ldc   r1, [ALPHA]
    mad   r6, r6, r1, r7
    stg   [r4], r6
    exit
    """,
    {"X": 8, "Y": 8, "N": 4, "ALPHA": 4},
)
"""Y[i] = ALPHA · X[i] + Y[i] for i < N, integers."""

MATMUL = Kernel(
    "matrix multiply",
    """
    s2r   r0, ctaid.x
    s2r   r1, ntid.x
    s2r   r2, tid.x
    mad   r0, r0, r1, r2            # column
    s2r   r1, ctaid.y
    s2r   r2, ntid.y
    s2r   r3, tid.y
    mad   r1, r1, r2, r3            # row
    ldc   r2, [N]
    sltu  r3, r0, r2
    sltu  r4, r1, r2
    and   r3, r3, r4
    push  r3                        # inside the matrix
    bnone r3, end
    ldc   r4, [A]
    ldc   r5, [4]
    mul   r12, r1, r2
    lea   r4, r4, r12, 2            # A[row, 0]
    ldc   r6, [B]
    ldc   r7, [12]
    lea   r6, r6, r0, 2             # B[0, column]
    mov   r8, 0
    mov   r9, r2
next:
    ldg   r10, [r4]
    ldg   r11, [r6]
    mad   r8, r10, r11, r8
    lea   r4, r4, 4, 0
    lea   r6, r6, r2, 2
    sub   r9, r9, 1
    bany  r9, next
    ldc   r4, [C]
    ldc   r5, [20]
    add   r12, r12, r0
    lea   r4, r4, r12, 2
    stg   [r4], r8
end:
    exit
    """,
    _POINTERS,
)
"""C = A · B, N × N words each; one thread per element, x is the column, y the row."""

REDUCE = Kernel(
    "reduction",
    """
    s2r   r0, tid.x
    s2r   r1, ntid.x
    s2r   r2, ctaid.x
    mad   r3, r2, r1, r0            # index in the grid
    mov   r8, 0
    ldc   r4, [N]
    sltu  r4, r3, r4
    push  r4
    ldc   r6, [X]
    ldc   r7, [4]
    lea   r6, r6, r3, 2
    ldg   r8, [r6]
    pop
    shl   r9, r0, 2
    sts   [r9], r8                  # own word
    bar
next:
    sleu  r4, r1, 1
    bany  r4, sums                  # one value is left
    add   r5, r1, 1
    shr   r5, r5, 1                 # half of the values, rounded up, remain
    add   r10, r0, r5
    sltu  r4, r10, r1
    push  r4
    shl   r10, r10, 2
    lds   r10, [r10]
    add   r8, r8, r10
    sts   [r9], r8
    pop
    mov   r1, r5
    bar
    bra   next
sums:
    seq   r4, r0, 0
    push  r4
    ldc   r6, [SUMS]
    ldc   r7, [12]
    lea   r6, r6, r2, 2
    stg   [r6], r8
    exit
    """,
    {"X": 8, "SUMS": 8, "N": 4},
    shared_per_thread=4,
    barrier=True,
)
"""SUMS[block] = sum of the block's part of X[0 … N)."""

SCAN = Kernel(
    "prefix sum",
    """
    s2r   r0, tid.x
    s2r   r1, ntid.x
    s2r   r2, ctaid.x
    mad   r3, r2, r1, r0
    ldc   r6, [X]
    ldc   r7, [4]
    lea   r6, r6, r3, 2
    ldg   r8, [r6]
    shl   r9, r0, 2
    sts   [r9], r8
    mov   r5, 1                     # distance
next:
    bar
    sleu  r4, r5, r0
    push  r4
    sub   r10, r0, r5
    shl   r10, r10, 2
    lds   r10, [r10]
    add   r8, r8, r10
    pop
    bar                             # all have read
    sts   [r9], r8
    shl   r5, r5, 1
    sltu  r4, r5, r1
    bany  r4, next
    ldc   r6, [Y]
    ldc   r7, [12]
    lea   r6, r6, r3, 2
    stg   [r6], r8
    exit
    """,
    {"X": 8, "Y": 8},
    shared_per_thread=4,
    barrier=True,
)
"""Y = sums of X up to each element, within each block."""

CHASE = Kernel(
    "pointer chase",
    """
    s2r   r0, tid.x
    ldc   r1, [STEPS]
    ldc   r2, [NEXT]
    ldc   r3, [4]
    mov   r4, r0
next:
    lea   r6, r2, r4, 2
    ldg   r4, [r6]
    sub   r1, r1, 1
    bany  r1, next
    ldc   r6, [OUT]
    ldc   r7, [12]
    lea   r6, r6, r0, 2
    stg   [r6], r4
    exit
    """,
    {"NEXT": 8, "OUT": 8, "STEPS": 4},
)
"""OUT[t] = index reached from t by STEPS ≥ 1 steps of i → NEXT[i]."""

SPIN = Kernel(
    "spin",
    """
    ldc   r0, [CYCLES]
    wait  r0
    exit
    """,
    {"CYCLES": 4},
)
"""Each warp runs for at least CYCLES cycles."""

ENDLESS = Kernel("endless", "again: add r0, r0, 1\nbra again", {})
"""Each warp counts, and never ends."""

KERNELS = (VECTOR_ADD, SAXPY, MATMUL, REDUCE, SCAN, CHASE, SPIN)
"""Kernels that end."""
