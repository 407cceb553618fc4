"""Software interface of the timing core, and its internal records."""

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import INDEX_BITS

__all__ = [
    "RECORD_BYTES",
    "RECORD_WORDS",
    "outstanding_accesses",
    "state_access",
    "state_answer",
    "state_bits",
    "store_pattern",
    "timing_record",
    "warp_access",
    "warp_facts",
    "warp_fire",
    "warp_launch",
    "warp_owner",
    "warp_place",
    "warp_state",
    "warp_wake",
]

timing_record = data.StructLayout({
    "accesses": 16,
    "store": 1,
    "launch": 1,
    "reserved": 14,
    "stride": 32,
    "base": 64,
    "cycles": 32,
    "spread": 32,
    "block_bytes": 32,
    "warp_bytes": 32,
})
"""A task, in the first 32 bytes of its constant buffer 0, which is 32-byte aligned. Meaning of the
fields: `hw/sm/README.md`. Only 49 bits of `base` are used."""

RECORD_BYTES = timing_record.size // 8

RECORD_WORDS = timing_record.size // 32
"""Words of a record. The core reads it word by word; only `base` spans two."""

store_pattern = data.StructLayout({
    "number": 32,
    "access": 16,
    "warp": 6,
    "reserved": 9,
    "written": 1,
})
"""Pattern of a store, repeated up to the end of the bus beat: block number in the grid, access
number of the warp, warp number in the block, and a 1."""


def warp_facts(config: Config) -> data.StructLayout:
    """Constants of a warp: block number in the grid, slot of the block, warp number in the block,
    cycles per computation."""
    return data.StructLayout({
        "number": 32,
        "slot": config.block_bits,
        "index": INDEX_BITS,
        "wait": 32,
    })


def warp_place(config: Config) -> data.StructLayout:
    """Progress of a warp. `va`: address of its last access; with `first`, of its first access,
    still to be made. `count`: number of accesses made."""
    return data.StructLayout({"va": VA_BITS, "first": 1, "count": 16})


def warp_wake(config: Config) -> data.StructLayout:
    """A warp computes for `wait` cycles; or with a `cause`, its access failed and `wait` is 0."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "wait": 32,
        "cause": CoreCause,
    })


def warp_fire(config: Config) -> data.StructLayout:
    """A warp whose time has expired; `dead`: its row was killed. With preemption: the slot of its
    block; `stopped`: its block is stopped; cycles `left` of its time; `late`: it has expired."""
    stops = {"slot": config.block_bits, "stopped": 1, "left": 32, "late": 1}
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "cause": CoreCause,
        "dead": 1,
        **(stops if config.preemption else {}),
    })


def warp_access(config: Config) -> data.StructLayout:
    """One beat at `va`, with the pattern of a store. Then its warp computes for `wait` cycles."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "wait": 32,
        "va": VA_BITS,
        "pattern": store_pattern,
    })


def warp_launch(config: Config) -> data.StructLayout:
    """A warp of the block in `slot` launches the QMD at `va`, then computes for `wait` cycles."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "slot": config.block_bits,
        "wait": 32,
        "va": VA_BITS,
    })


def warp_owner(config: Config) -> data.StructLayout:
    """A warp with its kernel row, the slot of its block, and its number there."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "row": config.row_bits,
        "slot": config.block_bits,
        "index": INDEX_BITS,
    })


warp_state = data.StructLayout({
    "left": 32,
    "count": 16,
    "first": 1,
    "reserved": 15,
    "va": 64,
})
"""State of a warp in memory: cycles left of its computation, and its progress (`warp_place`). It
begins a line of memory, as the fates of a block do, which have the same size."""


def outstanding_accesses(config: Config) -> int:
    """Most outstanding accesses of each kind: one per warp; with preemption at least 16, which
    transfer the lines of states at the speed of the port up to a latency of 128 cycles at 16 bytes
    per beat."""
    return max(16 if config.preemption else 2, config.sm_warps)


def state_bits(config: Config) -> int:
    """Bits of a state in one bus beat."""
    return min(warp_state.size, config.data_width)


def state_access(config: Config) -> data.StructLayout:
    """A beat at physical address `va`. `begins`, `ends`: first, last beat of a line. `last`: beat
    of the last line of a state. A write consists of `word`, then zeros."""
    return data.StructLayout({
        "row": config.row_bits,
        "va": VA_BITS,
        "begins": 1,
        "ends": 1,
        "last": 1,
        "word": state_bits(config),
    })


def state_answer(config: Config) -> data.StructLayout:
    """A line that was written, or the `word` of a beat that was read; `last` of its state."""
    return data.StructLayout({"last": 1, "status": MemoryStatus, "word": state_bits(config)})
