"""What the method pipeline remembers of a channel, and the records inside the host.

One `channel_context` per channel lives in a RAM; that of the served channel in registers. Every
bit of a channel's progress is in it, so that a channel can be left between any two methods, also
in the middle of a method group (HOST-2).
"""

from amaranth.hdl import Cat, Value
from amaranth.lib import data, enum

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause

__all__ = [
    "INDEX_BITS",
    "GroupMode",
    "GroupState",
    "Kind",
    "Method",
    "ObjectKind",
    "Refusal",
    "Step",
    "Traits",
    "channel_context",
    "has_copies",
    "head_beat",
    "method_flow",
    "method_state",
    "prefetch_beat",
]

INDEX_BITS = 20
"""Bits of a ring index: rings of up to 2^20 entries."""


class GroupMode(enum.Enum, shape=2):
    """How the method address moves after each data dword of the open group (1.2)."""

    INC = 0
    NON_INC = 1
    ONE_INC = 2


class Refusal(enum.Enum, shape=2):
    """Why a dword is not a legal method header."""

    NONE = 0
    OBSOLETE = 1
    RESERVED = 2
    RANGE = 3


class GroupState(data.Struct):
    """The open method group: `count` data dwords are still to come, none unless `open`. `skip`:
    END_PB_SEGMENT was met, the rest of the segment is passed over."""

    mode: GroupMode
    open: 1
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


class Kind(data.Struct):
    """How a method is executed; all 0 for those that need a closer look. `host`, `copy`: it sets
    state at most, and is complete at once. `semaphore`: SEM_EXECUTE or SEMAPHORED. `copy`,
    `launch`: of the copy class; those of the held method only with a copy object at its subchannel.
    """

    host: 1
    copy: 1
    semaphore: 1
    launch: 1


class Traits(data.Struct):
    """What the data of a semaphore method or launch ask for. `known`: an operation that exists;
    `acquires`: not a release or a reduction; `plain`: ACQUIRE of 32 bits; `modelled`: a copy of a
    mode that is modelled, as far as these data tell. `idle`: not before the channel's tasks are
    over."""

    known: 1
    acquires: 1
    plain: 1
    modelled: 1
    idle: 1


class Step(data.Struct):
    """A decoded method."""

    method: Method
    kind: Kind
    traits: Traits


class ObjectKind(enum.Enum, shape=2):
    """What SET_OBJECT has bound to a subchannel."""

    NONE = 0
    COPY = 1
    SOFTWARE = 2
    COMPUTE = 3


def has_copies(objects: data.View, subchannel: Value) -> Value:
    """Whether a copy object is bound to a subchannel."""
    bits = Cat(objects[i] == ObjectKind.COPY for i in range(8))
    return bits.bit_select(subchannel, 1)


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


def head_beat(config: Config) -> data.StructLayout:
    """A beat as it leaves the prefetch buffer. `single`: with its first dword, if any, it is used
    up. `refusals`: of each dword, were it a header."""
    return data.StructLayout({
        "beat": prefetch_beat(config),
        "single": 1,
        "refusals": data.ArrayLayout(Refusal, config.beat_dwords),
    })


def method_flow() -> data.StructLayout:
    """How far a channel has got with its dwords.

    `begun`: dwords were taken from the head beat; then `place` is the next one, and `final` says
    that it is the beat's last.
    `step`: decoded, not yet complete. `later`: the one after it, if that is decoded already.
    `finish`: the entry whose last dword was taken, reported once all methods are complete.
    """
    return data.StructLayout({
        "group": GroupState,
        "begun": 1,
        "place": 4,
        "final": 1,
        "step": Step,
        "later": Step,
        "finish": data.StructLayout({"pending": 1, "get": INDEX_BITS}),
    })


def method_state() -> data.StructLayout:
    """What methods have set, and what an acquire has come to.

    `copies`: a copy object is bound to a subchannel.
    `semaphore`: besides address and payload what follows from them, known when they are set:
    `low`, `high`: the address's halves are those of the on-chip window; `counter`: its low half is
    that of a counting semaphore; `nonzero`: the low half of the payload is.
    `confirm`: an acquire in memory held without an engine, and is read again with one.
    `referred`: SET_REFERENCE has handed its value over, and waits until it is in memory.
    `failed`, `deadline`: a failed acquire and when it times out, in units of 1,024 ns (2.4).
    `copy.bytes`, `copy.lines`: line length and line count are not 0. `copy.src_refused`,
    `copy.dst_refused`: a physical source or destination is not modelled.
    """
    return data.StructLayout({
        "objects": data.ArrayLayout(ObjectKind, 8),
        "copies": 1,
        "semaphore": data.StructLayout({
            "va": 40,
            "payload": 64,
            "low": 1,
            "high": 1,
            "counter": 1,
            "nonzero": 1,
        }),
        "confirm": 1,
        "referred": 1,
        "failed": 1,
        "deadline": 32,
        "copy": data.StructLayout({
            "src": VA_BITS,
            "dst": VA_BITS,
            "pitch_in": 32,
            "pitch_out": 32,
            "line_length": 32,
            "line_count": 32,
            "bytes": 1,
            "lines": 1,
            "semaphore_va": VA_BITS,
            "payload": 64,
            "src_refused": 1,
            "dst_refused": 1,
        }),
    })


def channel_context() -> data.StructLayout:
    """Progress and method state of one channel."""
    return data.StructLayout({"flow": method_flow(), "state": method_state()})
