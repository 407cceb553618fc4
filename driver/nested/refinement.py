"""Adaptive refinement: a kernel examines a cell of a field, and launches a kernel for each quarter
only where the field is rough."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.family import STATUS, Family
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = ["FILL", "REFINE", "SCAN", "Refinement", "check"]

_WORD = """
    sltu  r13, r12, r3
    push  r13                       # inside the cell
    shr   r14, r12, r1              # row
    and   r15, r12, r2              # column
    mad   r14, r14, r7, r15
    add   r14, r14, r6
    lea   r16, r4, r14, 2
"""
"""Sets r16 to the address of word number r12 of the cell, in the array at r4. Lanes past the end of
the cell are inactive afterwards. r1 … r3, r6, r7 are as for SCAN."""

SCAN = f"""
    s2r   r0, lane
    ldc   r1, [LOG_SIZE]
    mov   r2, 1
    shl   r2, r2, r1
    mul   r3, r2, r2                # words of the cell
    sub   r2, r2, 1
    ldc   r4, [FIELD]
    ldc   r5, [FIELD + 4]
    ldc   r7, [WIDTH]
    mov   r10, -1                   # least
    mov   r11, 0                    # greatest
    mov   r12, r0
scan:
    {_WORD}
    ldg   r18, [r16]
    umin  r10, r10, r18
    umax  r11, r11, r18
    pop
    add   r12, r12, 32
    sltu  r13, r12, r3
    bany  r13, scan
    shl   r14, r0, 3
    sts   [r14], r10
    sts   [r14 + 4], r11
    mov   r12, 0
gather:                             # those of all lanes
    lds   r15, [r12]
    umin  r10, r10, r15
    lds   r15, [r12 + 4]
    umax  r11, r11, r15
    add   r12, r12, 8
    sltu  r13, r12, 256
    bany  r13, gather
    sub   r10, r11, r10
    ldc   r11, [TOLERANCE]
    sltu  r10, r11, r10             # it is rough
"""
"""Sets r10: whether the words of the cell at index r6 differ by more than TOLERANCE. Also sets r0
to the lane, r1 to LOG_SIZE, r2 to the mask of a column number, r3 to the number of words, r7 to
WIDTH."""

FILL = f"""
    ldc   r4, [LEVELS]
    ldc   r5, [LEVELS + 4]
    ldc   r18, [LEVEL]
    mov   r12, r0
fill:
    {_WORD}
    stg   [r16], r18
    pop
    add   r12, r12, 32
    sltu  r13, r12, r3
    bany  r13, fill
    exit
"""
"""Sets the cell's words in LEVELS to LEVEL, and ends the kernel. It follows SCAN and uses its
registers."""

REFINE = Kernel(
    "refine",
    f"""
    ldc   r6, [AT]
    {SCAN}
    ldc   r8, [QUARTERS]
    ldc   r9, [QUARTERS + 4]
    or    r12, r8, r9
    sne   r12, r12, 0
    and   r10, r10, r12
    bnone r10, keep
    mov   r12, 0
quarters:
    ldg   r14, [r8]
    ldg   r15, [r8 + 4]
    launch r23, [r14]
    bnone r23, next
    {STATUS}
next:
    lea   r8, r8, 8, 0
    add   r12, r12, 1
    sltu  r13, r12, 4
    bany  r13, quarters
    exit
keep:
    {FILL}
    """,
    {
        "FIELD": 8,
        "LEVELS": 8,
        "QUARTERS": 8,
        "STATUS": 8,
        "WIDTH": 4,
        "AT": 4,
        "LOG_SIZE": 4,
        "LEVEL": 4,
        "TOLERANCE": 4,
    },
    shared_per_thread=8,
)
"""Examines one cell of FIELD; one warp. The cell has 2^LOG_SIZE × 2^LOG_SIZE words, the first one
at index AT; a row of FIELD has WIDTH words. If the words differ by more than TOLERANCE and QUARTERS
is not 0, the kernel launches the four children of the list at QUARTERS. Otherwise it sets the same
words of LEVELS to LEVEL."""


@dataclass
class Refinement:
    """Refines a square field of unsigned 32-bit words. Created by `prepare`.

    Members
    -------
    levels : for each word of the field, the level of its cell after `run`, a 32-bit word. The cell
        of level 0 is the whole field; those of level 1 are its quarters, and so on.
    family : its children and the status of their launches.
    """

    levels: Buffer
    family: Family
    _args: dict[str, Argument]

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, field: np.ndarray, tolerance: int, levels: int
    ) -> "Refinement":
        """Prepare kernels that refine `field` where words of a cell differ by more than
        `tolerance`, down to level `levels` - 1. The nesting depth must be at least `levels`.

        Raises as `check`, `Stream.child` and `Device.upload`.
        """
        check(field, tolerance, levels)
        size = field.shape[0]
        async with Family.prepare(device, stream) as family:
            words = await family.buffer(np.ascontiguousarray(field, np.uint32))
            result = await family.buffer(np.zeros(field.shape, np.uint32))

            async def node(at: int, log_size: int, level: int) -> dict[str, Argument]:
                table: Buffer | int = 0
                if level + 1 < levels:
                    half = 1 << log_size - 1
                    records = []
                    for corner in (0, half, half * size, half * size + half):
                        args = await node(at + corner, log_size - 1, level + 1)
                        records.append(int(await family.child(REFINE, 1, 32, args)))
                    table = await family.buffer(np.array(records, np.uint64))
                fields = {"FIELD": words, "LEVELS": result, "QUARTERS": table, "WIDTH": size}
                return {
                    **fields,
                    "AT": at,
                    "LOG_SIZE": log_size,
                    "LEVEL": level,
                    "TOLERANCE": tolerance,
                }

            return cls(result, family, await node(0, size.bit_length() - 1, 0))

    @staticmethod
    def children(levels: int) -> int:
        """Number of children for `levels` levels, all generations together."""
        return sum(4**level for level in range(1, levels))

    async def launch(self, *, priority: int | None = None) -> Task:
        """Launch a refinement; `Family.finish` waits for its end. Raises as `Family.launch`."""
        return await self.family.launch(REFINE, 32, self._args, priority=priority)

    async def run(self) -> None:
        """Refine. Raises as `Family.launch` and `Family.finish`."""
        await self.family.finish(await self.launch())

    async def free(self) -> None:
        """Free its memory, including `levels`, once nothing runs."""
        await self.family.free()


def check(field: np.ndarray, tolerance: int, levels: int) -> None:
    """Raise `ValueError` unless `field` is a square of unsigned 32-bit words with a side that is a
    power of two, at least 2^(levels - 1), and `tolerance` is an unsigned 32-bit word."""
    size = len(field) if field.ndim else 0
    if field.shape != (size, size) or size & size - 1 or not 1 <= levels <= size.bit_length():
        raise ValueError(f"a field of {field.shape} words has no {levels} levels")
    if field.dtype.kind not in "iu" or not 0 <= field.min() <= field.max() < 1 << 32:
        raise ValueError(f"a field of {field.dtype}: its numbers are unsigned words")
    if not 0 <= tolerance < 1 << 32:
        raise ValueError(f"tolerance = {tolerance} is not an unsigned word")
