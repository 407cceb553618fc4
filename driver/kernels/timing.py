"""Tasks for machines with timing cores: computing time and memory accesses of their warps, or
launches of other kernels.

task = TimingTask(cycles=1000, spread=0xFF, accesses=4, base=0x10_0000, warp_bytes=64)
task.pack()                             constant buffer 0, at a multiple of 32
task.computes(number=3, warp=0)         cycles before, between and after the warp's accesses
"""

from dataclasses import asdict, dataclass

from signalbox.driver.kernels.library import Kernel
from signalbox.hw.config import VA_BITS
from signalbox.hw.sm.timing.layouts import RECORD_BYTES, timing_record

__all__ = ["TIMING", "TimingTask"]

_WORD = 0xFFFF_FFFF

TIMING = Kernel(
    "timing",
    "mov r0, 0\nexit",
    {
        "ACCESSES": 4,
        "STRIDE": 4,
        "BASE": 8,
        "CYCLES": 4,
        "SPREAD": 4,
        "BLOCK_BYTES": 4,
        "WARP_BYTES": 4,
    },
)
"""A timing task as a kernel for `Stream.launch`: its arguments are the fields of the record, with
the flags in ACCESSES (`TimingTask.arguments`); without flags, its accesses are reads."""


@dataclass(frozen=True, kw_only=True)
class TimingTask:
    """Behaviour of every warp of a grid. The warp computes; then, `accesses` times, it accesses
    memory and computes again. All computing times of a warp are equal. With `launch`, it launches
    kernels instead of accessing memory, and at the end waits for the children of its block.

    Members
    -------
    cycles, spread : computing time in cycles: `cycles`, plus a pseudorandom number of the warp,
        masked with `spread`; a mask of 2^n - 1 gives an even distribution.
    accesses : number of accesses, one bus beat each.
    store : whether accesses are writes.
    launch : whether the warp launches the task record at each address instead, on machines with
        nested launches; `Stream.children` prepares the records.
    base : virtual address of the first access of the first warp.
    block_bytes, warp_bytes, stride : bytes from block to block, from warp to warp of a block, and
        from access to access.
    """

    cycles: int
    spread: int = 0
    accesses: int = 0
    store: bool = False
    launch: bool = False
    base: int = 0
    block_bytes: int = 0
    warp_bytes: int = 0
    stride: int = 0

    def pack(self) -> bytes:
        """Encode the record, which goes to the start of constant buffer 0.

        Raises `ValueError` for a value that does not fit.
        """
        if not 0 <= self.base < 1 << VA_BITS:
            raise ValueError(f"base = {self.base:#x}: 0 … 2^{VA_BITS} - 1")
        word = 0
        for name, value in asdict(self).items():
            field = timing_record[name]
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{name} = {value}: 0 … {(1 << field.width) - 1}")
            word |= int(value) << field.offset
        if self.store and self.launch:
            raise ValueError("store and launch: accesses are stores, loads or launches")
        if self.cycles + self.spread > _WORD:
            raise ValueError(f"cycles + spread = {self.cycles + self.spread}: {_WORD} at most")
        return word.to_bytes(RECORD_BYTES, "little")

    def arguments(self) -> dict[str, int]:
        """Arguments of `TIMING`. Raises as `pack`."""
        words, offset = self.pack(), 0
        found = {}
        for name, size in TIMING.parameters.items():
            found[name] = int.from_bytes(words[offset : offset + size], "little")
            offset += size
        return found

    def computes(self, number: int, warp: int) -> int:
        """Cycles that warp `warp` of block `number` computes at a time. Blocks are numbered along
        x, then y, then z."""
        mixed = (number << 6 | warp) & _WORD
        mixed = mixed * 0x401 & _WORD
        mixed ^= mixed >> 6
        mixed = mixed * 9 & _WORD
        mixed ^= mixed >> 11
        return self.cycles + (mixed & self.spread)

    def duration(self, number: int, warp: int) -> int:
        """Cycles that a warp computes in total, without the time of its accesses."""
        return (self.accesses + 1) * self.computes(number, warp)

    def address(self, number: int, warp: int, access: int) -> int:
        """Virtual address of an access, which covers the whole bus beat that contains it."""
        at = self.base + number * self.block_bytes + warp * self.warp_bytes + access * self.stride
        return at % (1 << VA_BITS)
