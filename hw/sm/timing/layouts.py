"""What software writes for the timing core, what that writes, and records inside of it."""

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause

__all__ = [
    "RECORD_BYTES",
    "RECORD_WORDS",
    "store_pattern",
    "timing_record",
    "warp_access",
    "warp_facts",
    "warp_fire",
    "warp_place",
    "warp_wake",
]

timing_record = data.StructLayout({
    "accesses": 16,
    "store": 1,
    "reserved": 15,
    "stride": 32,
    "base": 64,
    "cycles": 32,
    "spread": 32,
    "block_bytes": 32,
    "warp_bytes": 32,
})
"""A task, in the first 32 bytes of its constant buffer 0, which begins at a multiple of 32. What
each means: `hw/sm/README.md`. Of `base` 49 bits count."""

RECORD_BYTES = timing_record.size // 8

RECORD_WORDS = timing_record.size // 32
"""The core reads it by words; only `base` lies in two of them."""

store_pattern = data.StructLayout({
    "number": 32,
    "access": 16,
    "warp": 6,
    "reserved": 9,
    "written": 1,
})
"""What a store writes, again and again up to the end of the bus beat: the block's number in the
grid; which access of the warp; which warp of the block; and 1."""


def warp_facts(config: Config) -> data.StructLayout:
    """What stays of a warp: its block's number in the grid, its own in the block, the cycles that
    it computes at a time."""
    return data.StructLayout({"number": 32, "index": 6, "wait": 32})


def warp_place(config: Config) -> data.StructLayout:
    """Where a warp is: at its last access, or before its `first` one; `count` of them so far."""
    return data.StructLayout({"va": VA_BITS, "first": 1, "count": 16})


def warp_wake(config: Config) -> data.StructLayout:
    """A warp computes for `wait` cycles, or with a `cause` has failed; then they are 0."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "wait": 32,
        "cause": CoreCause,
    })


def warp_fire(config: Config) -> data.StructLayout:
    """A warp whose time is over; `dead`, its row was killed."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "cause": CoreCause,
        "dead": 1,
    })


def warp_access(config: Config) -> data.StructLayout:
    """One beat at `va`; of a store, what it writes. Then its warp computes for `wait` cycles."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "wait": 32,
        "va": VA_BITS,
        "pattern": store_pattern,
    })
