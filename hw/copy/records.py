"""What the parts of a copy engine hand to each other."""

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.copy import CopyError
from signalbox.hw.records.memory import MemoryStatus

__all__ = [
    "BURST_BEATS",
    "COPIES",
    "DATA_BEATS",
    "FEWEST_AHEAD",
    "PUTS_BITS",
    "QUEUE",
    "TAG_BITS",
    "TAKES_BITS",
    "beat_address_bits",
    "chunk",
    "failure",
    "line",
    "most_ahead",
    "outcome",
    "pending_write",
    "segment",
]

BURST_BEATS = 16
"""Longest write burst; writes are cut at multiples of it, so none crosses 4 KiB at 512 bits. So
short that others wait for little on the bus, so long that its request is on time."""

PUTS_BITS = (BURST_BEATS - 1).bit_length()
"""Width of a number of destination beats of one chunk, minus 1."""

TAKES_BITS = (BURST_BEATS + 1).bit_length()
"""Width of a number of source beats of one chunk, at most one more than it puts."""

COPIES = 16
"""Copies accepted and not yet ended; a power of two."""

TAG_BITS = (COPIES - 1).bit_length()
"""A copy's tag: the count of copies accepted before it, modulo `COPIES`."""

DATA_BEATS = 512
"""Beats requested and not yet written: one block RAM deep on ECP5, and more than `most_ahead`, the
burst that must be at hand before it is offered, and the one being written."""

FEWEST_AHEAD = 48
"""Beats that may always be on their way: what a copy engine has to have requested in time."""

QUEUE = 32
"""Bursts in flight at each of: reading, waiting for data, written and not answered."""


def most_ahead(config: Config) -> int:
    """Beats of one engine that may be on their way at most: for 200 cycles of memory latency, or,
    where several engines share memory, at least for 100."""
    return max(144, 256 // config.copy_engines)


def beat_address_bits(config: Config) -> int:
    """Width of a virtual address counted in beats."""
    return VA_BITS - config.offset_bits


def _space(config: Config) -> dict:
    return {"asid": config.asid_bits, "src_physical": 1, "dst_physical": 1, "tag": TAG_BITS}


def line(config: Config) -> data.StructLayout:
    """One line of a copy, or (`end`) the end of the copy, which has no bytes.

    The realigner takes source beats and puts destination beats, in steps. With `lead` the first
    source beat completes no destination beat; with `tail` the last destination beat needs no
    further source beat. `beats` + 1 destination beats; `final` indexes the last valid byte of the
    last one. `rotate` = (src - dst) mod the beat. `start`: first line of its copy.
    """
    return data.StructLayout({
        **_space(config),
        "end": 1,
        "start": 1,
        "src": VA_BITS,
        "dst": VA_BITS,
        "beats": 33 - config.offset_bits,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
        "lead": 1,
        "tail": 1,
    })


def chunk(config: Config) -> data.StructLayout:
    """The part of a line that is written by one burst, or (`end`) the end of a copy.

    `src` is the first source beat that earlier chunks of the line have not taken; `takes` source
    beats (0 … 17) make `puts` + 1 destination beats from `dst`. `first`, `last`: the line begins
    or ends here. The rest is as in `line`.
    """
    return data.StructLayout({
        **_space(config),
        "end": 1,
        "start": 1,
        "first": 1,
        "last": 1,
        "src": VA_BITS,
        "dst": VA_BITS,
        "takes": TAKES_BITS,
        "puts": PUTS_BITS,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
        "lead": 1,
        "tail": 1,
    })


def segment(config: Config) -> data.StructLayout:
    """What one read burst of `takes` beats (0: no burst) contributes to a chunk.

    `va` is the burst's first byte. `head` is the first valid byte of the line's first destination
    beat, when `first`. `close`: the last put of the segment completes the chunk, and the line too
    when `last`. The rest is as in `line`.
    """
    return data.StructLayout({
        "tag": TAG_BITS,
        "start": 1,
        "first": 1,
        "last": 1,
        "close": 1,
        "lead": 1,
        "tail": 1,
        "takes": TAKES_BITS,
        "head": config.offset_bits,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
        "va": VA_BITS,
    })


def pending_write(config: Config) -> data.StructLayout:
    """A chunk's write burst, from when it is planned until it may be offered."""
    return data.StructLayout({
        "end": 1,
        "tag": TAG_BITS,
        "asid": config.asid_bits,
        "physical": 1,
        "va": VA_BITS,
        "puts": PUTS_BITS,
    })


def failure() -> data.StructLayout:
    """A read burst that failed: how, and its first byte."""
    return data.StructLayout({"status": MemoryStatus, "va": VA_BITS})


def outcome() -> data.StructLayout:
    """How the memory accesses of one copy ended."""
    return data.StructLayout({"error": CopyError, "va": VA_BITS})
