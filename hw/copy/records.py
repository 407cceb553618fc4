"""Records between the parts of a copy engine."""

from amaranth.lib import data

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.records.copy import CopyError, remap_components
from signalbox.hw.records.memory import MemoryStatus

__all__ = [
    "BURST_BEATS",
    "COPIES",
    "DATA_BEATS",
    "LINE_BITS",
    "MIN_READ_AHEAD",
    "PUTS_BITS",
    "QUEUE",
    "TAG_BITS",
    "TAKES_BITS",
    "beat_address_bits",
    "chunk",
    "failure",
    "line",
    "max_read_ahead",
    "outcome",
    "pending_write",
    "remap_settings",
    "segment",
]

BURST_BEATS = 16
"""Beats of the longest write burst. Bursts end at multiples of it, so none crosses a 4 KiB boundary
even at 512 bits. Short enough not to block other clients for long, long enough to hide the next
request."""

PUTS_BITS = (BURST_BEATS - 1).bit_length()
"""Width of the number of destination beats of a chunk, minus 1."""

TAKES_BITS = (BURST_BEATS + 1).bit_length()
"""Width of the number of source beats of a chunk, at most one more than its destination beats."""

COPIES = 16
"""Limit of copies in flight; a power of two."""

TAG_BITS = (COPIES - 1).bit_length()
"""Width of a copy's tag: number of copies accepted before it, modulo `COPIES`."""

LINE_BITS = 36
"""Width of the number of bytes in a line: LINE_LENGTH_IN elements of up to 16 bytes."""

DATA_BEATS = 512
"""Depth of the data FIFO, for beats requested and not yet written. One block RAM on ECP5; more than
the sum of `max_read_ahead`, a burst that must be complete before it is offered, and a burst being
written."""

MIN_READ_AHEAD = 48
"""Number of outstanding read beats that is always allowed, so that requests are issued in time."""

QUEUE = 32
"""Limit of bursts in each of these states: reading, waiting for data, written but not answered."""


def max_read_ahead(config: Config) -> int:
    """Limit of outstanding read beats of one engine: enough for 200 cycles of memory latency, or
    for at least 100 if several engines share memory."""
    return max(144, 256 // config.copy_engines)


def beat_address_bits(config: Config) -> int:
    """Width of a virtual address counted in beats."""
    return VA_BITS - config.offset_bits


def _space(config: Config) -> dict:
    return {"asid": config.asid_bits, "src_physical": 1, "dst_physical": 1, "tag": TAG_BITS}


def line(config: Config) -> data.StructLayout:
    """One line of a copy, or the end of the copy, which has no bytes.

    The realigner takes source beats and puts destination beats, in steps.

    * `end`: this is the end of the copy. `start`: the line is the first of its copy.
    * `beats`: number of destination beats, minus 1. `final`: index of the last valid byte in the
      last one.
    * `rotate`: (`src` - `dst`) modulo the bytes of a beat.
    * `lead`: the first source beat completes no destination beat. `tail`: the last destination beat
      needs no further source beat.
    * `remap`: source beats pass `ComponentMap`. `sourceless`: they are not read but made there, and
      `src` is 0.
    """
    return data.StructLayout({
        **_space(config),
        "end": 1,
        "start": 1,
        "src": VA_BITS,
        "dst": VA_BITS,
        "beats": LINE_BITS + 1 - config.offset_bits,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
        "lead": 1,
        "tail": 1,
        "remap": 1,
        "sourceless": 1,
    })


def chunk(config: Config) -> data.StructLayout:
    """Part of a line that is written by one burst, or (`end`) the end of a copy.

    `takes` source beats, 0 … 17, make `puts` + 1 destination beats, from `dst` on. `src`: first
    source beat that no earlier chunk of the line has taken. `first`, `last`: the chunk begins or
    ends its line. The rest as in `line`.
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
        "remap": 1,
        "sourceless": 1,
    })


def segment(config: Config) -> data.StructLayout:
    """Contribution of one read burst to a chunk.

    `takes`: beats of the burst; there is no burst if it is 0, or with `sourceless`. `va`: first
    byte of the burst. `head`, with `first`: index of the first valid byte in the line's first
    destination beat. `close`: the segment completes the chunk and, with `last`, the line. The rest
    as in `line`.
    """
    return data.StructLayout({
        "tag": TAG_BITS,
        "start": 1,
        "first": 1,
        "last": 1,
        "close": 1,
        "lead": 1,
        "tail": 1,
        "remap": 1,
        "sourceless": 1,
        "takes": TAKES_BITS,
        "head": config.offset_bits,
        "final": config.offset_bits,
        "rotate": config.offset_bits,
        "va": VA_BITS,
    })


def remap_settings() -> data.StructLayout:
    """Settings of `ComponentMap` for one copy."""
    return data.StructLayout({"components": remap_components(), "const_a": 32, "const_b": 32})


def pending_write(config: Config) -> data.StructLayout:
    """Write burst of a chunk, waiting for its data."""
    return data.StructLayout({
        "end": 1,
        "tag": TAG_BITS,
        "asid": config.asid_bits,
        "physical": 1,
        "va": VA_BITS,
        "puts": PUTS_BITS,
    })


def failure() -> data.StructLayout:
    """Failed read burst: status and first byte."""
    return data.StructLayout({"status": MemoryStatus, "va": VA_BITS})


def outcome() -> data.StructLayout:
    """Outcome of the memory accesses of one copy."""
    return data.StructLayout({"error": CopyError, "va": VA_BITS})
