"""What the method pipeline remembers of a channel, and the records inside the host.

One `channel_context` per channel lives in a RAM; that of the served channel in registers. Every
bit of a channel's progress is in it, so that a channel can be left between any two methods, also
in the middle of a method group (HOST-2).
"""

from amaranth.lib import data, enum

from hw.config import VA_BITS, Config
from hw.errors import Cause

__all__ = [
    "INDEX_BITS",
    "GroupMode",
    "GroupState",
    "Method",
    "ObjectKind",
    "channel_context",
    "prefetch_beat",
]

INDEX_BITS = 20
"""Bits of a ring index: rings of up to 2^20 entries."""


class GroupMode(enum.Enum, shape=2):
    """How the method address moves after each data dword of the open group (1.2)."""

    INC = 0
    NON_INC = 1
    ONE_INC = 2


class GroupState(data.Struct):
    """The open method group: `count` data dwords are still to come. `skip`: END_PB_SEGMENT was
    met, the rest of the segment is passed over."""

    mode: GroupMode
    count: 13
    subchannel: 3
    address: 12
    skip: 1


class Method(data.Struct):
    """One method, `address` in dwords; or, when `cause` is not NONE, why there is none."""

    valid: 1
    cause: Cause
    subchannel: 3
    address: 12
    data: 32


class ObjectKind(enum.Enum, shape=2):
    """What SET_OBJECT has bound to a subchannel."""

    NONE = 0
    COPY = 1
    SOFTWARE = 2


def prefetch_beat(config: Config) -> data.StructLayout:
    """One beat of fetched pushbuffer: dwords `low` … `high`, none when `empty`.

    `first` and `end` mark the first and last beat of a ring entry, `get` is GP_GET once that entry
    has been started. `cause` other than NONE takes the place of the dwords.
    """
    return data.StructLayout({
        "data": config.data_width,
        "low": 4,
        "high": 4,
        "empty": 1,
        "first": 1,
        "end": 1,
        "get": INDEX_BITS,
        "cause": Cause,
    })


def channel_context(config: Config) -> data.StructLayout:
    """Progress and method state of one channel.

    `taken`: dwords already taken from the head beat. `method`: decoded, not yet complete.
    `finish`: the entry whose last dword was taken, reported once that method is complete.
    `confirm`: an acquire in memory held without an engine, and is read again with one.
    `failed`, `deadline`: a failed acquire and when it times out, in units of 1,024 ns (2.4).
    """
    return data.StructLayout({
        "group": GroupState,
        "taken": 4,
        "method": Method,
        "finish": data.StructLayout({"pending": 1, "get": INDEX_BITS}),
        "objects": data.ArrayLayout(ObjectKind, 8),
        "semaphore": data.StructLayout({"va": 40, "payload": 64}),
        "confirm": 1,
        "failed": 1,
        "deadline": 32,
        "copy": data.StructLayout({
            "src": VA_BITS,
            "dst": VA_BITS,
            "pitch_in": 32,
            "pitch_out": 32,
            "line_length": 32,
            "line_count": 32,
            "semaphore_va": VA_BITS,
            "payload": 64,
            "src_target": 2,
            "dst_target": 2,
        }),
    })
