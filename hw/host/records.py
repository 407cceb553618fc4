"""Context of a channel in the method pipeline, and records between units of the host.

One `channel_context` per channel is in a RAM; that of the served channel is in registers. It holds
all progress of a channel, so a channel can be left between any two methods, even within a method
group (HOST-2).
"""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data, enum

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import Cause
from signalbox.hw.front_end.host_port import INLINE_DWORDS
from signalbox.hw.methods import ENGINE_SUBCHANNELS, OBJECT_BITS
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.copy import remap_components

__all__ = [
    "INDEX_BITS",
    "GroupMode",
    "GroupState",
    "InlinePhase",
    "Kind",
    "Method",
    "ObjectKind",
    "Refusal",
    "Step",
    "Traits",
    "acquire_state",
    "channel_context",
    "has_copies",
    "head_beat",
    "inline_state",
    "method_flow",
    "method_refused",
    "method_settings",
    "method_state",
    "object_bound",
    "object_of",
    "prefetch_beat",
]

INDEX_BITS = 20
"""Width of a ring index: rings of up to 2^20 entries."""

SUBCHANNELS = 8
"""Subchannels that a method can name."""


class GroupMode(enum.Enum, shape=2):
    """Change of the method address after each data dword of the open group (spec 1.2)."""

    INC = 0
    NON_INC = 1
    ONE_INC = 2


class Refusal(enum.Enum, shape=2):
    """Reason why a dword is not a legal method header."""

    NONE = 0
    OBSOLETE = 1
    RESERVED = 2
    RANGE = 3


class GroupState(data.Struct):
    """Method group that is open, and sub-device masks.

    Members
    -------
    mode : change of `address` after the next data dword.
    open : a group is open; otherwise `mode`, `count`, `subchannel` and `address` are meaningless.
    count : data dwords left.
    subchannel, address : of the next method; `address` in dwords.
    skip : the rest of the segment is skipped, as END_PB_SEGMENT was decoded.
    ignores : methods are ignored, as the sub-device mask leaves out device 0.
    stored_ignores : the stored sub-device mask leaves out device 0.
    """

    mode: GroupMode
    open: 1
    count: 13
    subchannel: 3
    address: 12
    skip: 1
    ignores: 1
    stored_ignores: 1


class Method(data.Struct):
    """One method, `address` in dwords; or, if `cause` is not NONE, the reason why there is none."""

    valid: 1
    cause: Cause
    subchannel: 3
    address: 12
    data: 32


class Kind(data.Struct):
    """Kind of a method, which selects its execution unit; all 0 for control methods. In the held
    method, `copy` and `launch` are 1 only if a copy object is bound to its subchannel.

    Members
    -------
    host : host method that at most sets state; complete at once.
    copy : copy-class method that at most sets state; complete at once.
    semaphore : SEM_EXECUTE or SEMAPHORED.
    launch : LAUNCH_DMA of the copy class.
    """

    host: 1
    copy: 1
    semaphore: 1
    launch: 1


class Traits(data.Struct):
    """Properties of the data of a semaphore method or a launch.

    Members
    -------
    known : the semaphore operation exists.
    acquires : the operation is an acquire: neither a release nor a reduction.
    plain : the operation is a 32-bit ACQUIRE, which tests for equality.
    modelled : the launch requests only modelled modes, as far as its data tell.
    idle : the operation first waits for the channel's tasks.
    """

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
    """Kind of the object bound to a subchannel by SET_OBJECT; SOFTWARE for a subchannel to which
    none can be bound."""

    NONE = 0
    COPY = 1
    SOFTWARE = 2
    COMPUTE = 3


def object_bound(config: Config) -> data.StructLayout:
    """Strobe: `channel` has executed SET_OBJECT with `data` for `subchannel`."""
    return channel_event(config, subchannel=3, data=OBJECT_BITS)


def method_refused(config: Config) -> data.StructLayout:
    """Strobe: `method` of `channel` is refused for `cause`, at `va`, and the channel halts.
    `check`: the failed check of a task's record, if any."""
    return channel_event(config, cause=Cause, check=SkedCheck, va=VA_BITS, method=Method)


def object_of(objects: data.View, subchannel: Value) -> Value:
    """Kind of the object of a subchannel."""
    bound = [objects[number] for number in range(ENGINE_SUBCHANNELS)]
    others = [ObjectKind.SOFTWARE] * (SUBCHANNELS - ENGINE_SUBCHANNELS)
    return Cat(*bound, *map(Value.cast, others)).word_select(subchannel, len(bound[0].as_value()))


def has_copies(objects: data.View, subchannel: Value) -> Value:
    """Whether a copy object is bound to the subchannel."""
    bits = Cat(objects[number] == ObjectKind.COPY for number in range(ENGINE_SUBCHANNELS))
    return (bits | Const(0, SUBCHANNELS)).bit_select(subchannel, 1)


def prefetch_beat(config: Config) -> data.StructLayout:
    """One beat of fetched pushbuffer: dwords `low` … `high`, none if `empty`.

    `first`, `end`: first and last beat of a ring entry. `get`: GP_GET after the start of that
    entry. A `cause` other than NONE replaces the dwords.
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
    """A beat at the output of the prefetch buffer. `single`: it has at most one dword. `refusals`:
    per dword, its refusal if it were a header."""
    return data.StructLayout({
        "beat": prefetch_beat(config),
        "single": 1,
        "refusals": data.ArrayLayout(Refusal, config.beat_dwords),
    })


def method_flow() -> data.StructLayout:
    """Position of a channel in its dwords.

    Members
    -------
    group : open method group.
    begun : dwords of the head beat were taken.
    place : with `begun`: number of the next dword in the head beat.
    final : with `begun`: that dword is the last of the beat.
    step : held method: decoded, not yet complete.
    queued : the method after it, if already decoded.
    finish : ring entry with its last dword taken; `pending` until its methods are complete.
    """
    return data.StructLayout({
        "group": GroupState,
        "begun": 1,
        "place": 4,
        "final": 1,
        "step": Step,
        "queued": Step,
        "finish": data.StructLayout({"pending": 1, "get": INDEX_BITS}),
    })


def method_settings() -> data.StructLayout:
    """Settings of a channel, and properties derived from them when they are set.

    `objects`: kinds of the bound objects, per subchannel. `copies`: one of them is a copy object.

    Derived in `semaphore`:

    * `low`, `high`: the lower 32 bits of the address, or the rest, match the on-chip window.
    * `counter`: the lower 32 bits are the address of a counting semaphore.
    * `nonzero`: the lower half of the payload is not 0.

    Derived in `copy`:

    * `bytes`, `lines`: the line length, or the line count, is not 0.
    * `src_refused`, `dst_refused`: the physical mode of the source, or of the destination, is not
      modelled.
    * `remap_refused`: a destination component has a source that does not exist.
    """
    return data.StructLayout({
        "objects": data.ArrayLayout(ObjectKind, ENGINE_SUBCHANNELS),
        "copies": 1,
        "semaphore": data.StructLayout({
            "va": 40,
            "payload": 64,
            "low": 1,
            "high": 1,
            "counter": 1,
            "nonzero": 1,
        }),
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
            "components": remap_components(),
            "const_a": 32,
            "const_b": 32,
            "src_refused": 1,
            "dst_refused": 1,
            "remap_refused": 1,
        }),
    })


acquire_state = data.StructLayout({"confirm": 1, "failed": 1, "deadline": 32})
"""State of an acquire; cleared when software replaces a refused method.

`confirm`: the semaphore is in memory, and its condition held while no engine was reserved; it is
read once more with an engine reserved. `failed`: the acquire has failed, and its time-out runs.
`deadline`: end of the time-out, in units of 1,024 ns (spec 2.4); meaningful with `failed`.
"""


class InlinePhase(enum.Enum, shape=3):
    """State of a channel's inline transfer (HOST-14).

    * `CLOSED`: there is no transfer.
    * `DROPPED`: it was refused, or ended by another compute method. Its data are ignored.
    * `OPEN`: dwords are missing.
    * `FAILED`: dwords are missing, and the last LOAD_INLINE_DATA was refused. The transfer goes on
      if software repeats that method, and is dropped if software replaces it by another one.
    * `ENDED`: dwords are missing, and another compute method was refused. The transfer is dropped
      when software repeats or replaces that method.
    """

    CLOSED = 0
    DROPPED = 1
    OPEN = 2
    FAILED = 3
    ENDED = 4


inline_state = data.StructLayout({"phase": InlinePhase, "room": range(INLINE_DWORDS)})
"""Inline transfer of a channel. `room`: number of LOAD_INLINE_DATA that only set state; the engine
executes the one after them."""


def method_state() -> data.StructLayout:
    """State of a channel that its methods set. `referred`: SET_REFERENCE has handed over its value
    and waits for it to be in memory."""
    return data.StructLayout({
        "settings": method_settings(),
        "acquire": acquire_state,
        "referred": 1,
        "inline": inline_state,
    })


def channel_context() -> data.StructLayout:
    """Position and method state of one channel."""
    return data.StructLayout({"flow": method_flow(), "state": method_state()})
