"""Behaviour of a warp of the timing core, from its published description (`hw/sm/README.md`)."""

import struct
from dataclasses import astuple, dataclass

__all__ = ["Timing", "mixed", "stop_bound"]

U32 = 0xFFFF_FFFF


def mixed(number: int, warp: int) -> int:
    """32 bits derived from the number of a block and the number of a warp in the block."""
    x = (number * 64 + warp) & U32
    x = (x + (x << 10)) & U32
    x ^= x >> 6
    x = (x + (x << 3)) & U32
    return x ^ x >> 11


@dataclass(frozen=True)
class Timing:
    """Record of 32 bytes that describes the warps of a timing core's task. The members have the
    order of the fields. `store` : 0 for loads, 1 for stores, 2 for launches."""

    accesses: int = 0
    store: int = 0
    stride: int = 0
    base: int = 0
    cycles: int = 0
    spread: int = 0
    block_bytes: int = 0
    warp_bytes: int = 0

    def record(self) -> bytes:
        """The record as 32 bytes."""
        return struct.pack("<HHIQIIII", *astuple(self))

    def computes(self, number: int, warp: int) -> int:
        """Cycles of computing before the first access, and again after each access."""
        return self.cycles + (mixed(number, warp) & self.spread) & U32

    def at(self, number: int, warp: int, access: int) -> int:
        """Virtual address of an access."""
        offset = number * self.block_bytes + warp * self.warp_bytes + access * self.stride
        return (self.base + offset) % (1 << 49)

    @staticmethod
    def pattern(number: int, warp: int, access: int) -> bytes:
        """The 8 bytes that a store repeats over its access."""
        return struct.pack("<IHBB", number, access, warp, 0x80)


def stop_bound(beats: int, warps: int, latency: int, *, sm_warps: int, under_way: int) -> int:
    """Maximum number of cycles from the acceptance of a stop until a block of `warps` warps is
    saved, if the port takes each beat at once (PREEMPT-6).

    The bound is the sum of the access under way, behind those of other warps; a turn of the timer;
    `beats` beats of state, at most `under_way` at a time; the last writes of the warps and of the
    block; some cycles per warp; and a constant. `latency` : cycles of a memory access.
    """
    access, turn = latency + 2 * sm_warps, 1 << max(1, (sm_warps - 1).bit_length())
    beat = max(1, -(-(latency + 5) // under_way))
    return access + turn + beats * beat + 2 * (latency + 10) + 5 * warps + 30
