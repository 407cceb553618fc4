"""Merge sort by recursion: a kernel launches one kernel per half, and merges the sorted halves."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.family import STATUS, Family
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = ["LEAF", "MERGE", "MERGE_SORT", "RANK", "MergeSort", "check"]

LEAF = 32
"""Maximum number of words that one kernel sorts alone."""

RANK = """
    sltu  r6, r0, r1
    push  r6
    lea   r8, r2, r0, 2
    ldg   r10, [r8]                 # own word
    mov   r11, 0                    # its rank
    mov   r12, 0
    lea   r8, r2, 0, 0
rank:
    ldg   r13, [r8]
    sltu  r14, r13, r10
    add   r11, r11, r14
    seq   r14, r13, r10
    sltu  r15, r12, r0
    and   r14, r14, r15
    add   r11, r11, r14             # equal ones keep their order
    lea   r8, r8, 4, 0
    add   r12, r12, 1
    sltu  r14, r12, r1
    bany  r14, rank
    lea   r8, r2, r11, 2
    stg   [r8], r10
    exit
"""
"""Sorts r1 words at address r2, at most one per lane, and ends the kernel; r0 is the lane."""

MERGE = """
    shr   r16, r1, 1                # words of the left half
    mov   r17, r0
merge:
    sltu  r6, r17, r1
    push  r6
    lea   r8, r2, r17, 2
    ldg   r10, [r8]
    sltu  r18, r17, r16             # it is in the left half
    sel   r19, r16, 0, r18          # where the other half begins
    sub   r20, r1, r16
    sel   r20, r20, r16, r18        # its size
    mov   r11, 0
search:                             # words of the other half that go before
    sltu  r6, r11, r20
    bnone r6, found
    push  r6
    add   r12, r11, r20
    shr   r12, r12, 1
    add   r13, r19, r12
    lea   r8, r2, r13, 2
    ldg   r13, [r8]
    sltu  r14, r13, r10
    seq   r15, r13, r10
    xor   r21, r18, 1
    and   r15, r15, r21
    or    r14, r14, r15
    add   r15, r12, 1
    sel   r11, r15, r11, r14
    sel   r20, r20, r12, r14
    pop
    bra   search
found:
    sub   r12, r17, r16
    sel   r12, r17, r12, r18        # words of its own half that do
    add   r12, r12, r11
    lea   r8, r4, r12, 2
    stg   [r8], r10
    pop
    add   r17, r17, 32
    sltu  r6, r17, r1
    bany  r6, merge
    mov   r17, r0
copy:
    sltu  r6, r17, r1
    push  r6
    lea   r8, r4, r17, 2
    ldg   r10, [r8]
    lea   r8, r2, r17, 2
    stg   [r8], r10
    pop
    add   r17, r17, 32
    sltu  r6, r17, r1
    bany  r6, copy
    exit
"""
"""Merges the sorted halves of r1 words at address r2, and ends the kernel. r4 is the address of r1
words of temporary memory; r0 is the lane."""

MERGE_SORT = Kernel(
    "merge sort",
    f"""
    s2r   r0, tid.x
    ldc   r1, [N]
    ldc   r2, [DATA]
    ldc   r3, [DATA + 4]
    ldc   r4, [LEFT]
    ldc   r5, [LEFT + 4]
    or    r6, r4, r5
    bany  r6, divide

    {RANK}
divide:
    launch r6, [r4]
    ldc   r4, [RIGHT]
    ldc   r5, [RIGHT + 4]
    launch r23, [r4]
    sel   r23, r23, r6, r23
    bnone r23, launched
    {STATUS}
launched:
    join  r6
    ldc   r4, [TEMP]
    ldc   r5, [TEMP + 4]
    {MERGE}
    """,
    {"DATA": 8, "TEMP": 8, "LEFT": 8, "RIGHT": 8, "STATUS": 8, "N": 4},
)
"""Sorts the N words at DATA; one warp. LEFT and RIGHT are the records of the children that sort the
halves; the left half has N / 2 words, rounded down. Without children, both are 0 and N is at most
32. TEMP has room for N words."""


@dataclass
class MergeSort:
    """Sorts a buffer of unsigned 32-bit words, any number of times. Created by `prepare`."""

    family: Family
    _args: dict[str, Argument]

    @classmethod
    async def prepare(cls, device: Device, stream: Stream, data: Buffer, count: int) -> "MergeSort":
        """Prepare kernels that sort the first `count` words of `data`. The nesting depth must be at
        least `depth(count)`.

        Raises `ValueError` for no words, or more than `data` has, and as `Stream.address`,
        `Stream.child` and `Device.upload`.
        """
        check(data, count)
        async with Family.prepare(device, stream) as family:
            temp = await family.buffer(np.zeros(count, np.uint32))
            first, spare = stream.address(data, 0), stream.address(temp, 0)

            async def node(at: int, words: int) -> dict[str, Argument]:
                children: list[Argument] = [0, 0]
                if words > LEAF:
                    half = words // 2
                    for n, (start, size) in enumerate(((at, half), (at + half, words - half))):
                        children[n] = await family.child(MERGE_SORT, 1, 32, await node(start, size))
                places = {"DATA": first + 4 * at, "TEMP": spare + 4 * at}
                return {**places, "LEFT": children[0], "RIGHT": children[1], "N": words}

            return cls(family, await node(0, count))

    @staticmethod
    def depth(count: int) -> int:
        """Nesting depth that a sort of `count` words needs, its first kernel included."""
        return 1 if count <= LEAF else 1 + MergeSort.depth(count - count // 2)

    @staticmethod
    def children(count: int) -> int:
        """Number of children for a sort of `count` words, all generations together."""
        if count <= LEAF:
            return 0
        left = count // 2
        return 2 + MergeSort.children(left) + MergeSort.children(count - left)

    async def launch(self, *, priority: int | None = None) -> Task:
        """Launch a sort; `Family.finish` waits for its end. Raises as `Family.launch`."""
        return await self.family.launch(MERGE_SORT, 32, self._args, priority=priority)

    async def run(self) -> None:
        """Sort. Raises as `Family.launch` and `Family.finish`."""
        await self.family.finish(await self.launch())

    async def free(self) -> None:
        """Free its memory, once nothing runs."""
        await self.family.free()


def check(data: Buffer, count: int) -> None:
    """Raise `ValueError` if `data` does not have `count` words to sort."""
    if count < 1:
        raise ValueError("there is nothing to sort")
    if count > data.size // 4:
        raise ValueError(f"{data} does not have {count} words")
