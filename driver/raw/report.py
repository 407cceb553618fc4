"""Report on a raw pushbuffer: methods executed, changes in memory, errors, blocking acquire."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from signalbox.driver.commands.disassembler import (
    Directive,
    Ignored,
    Malformed,
    Method,
    decode,
    disassemble,
    folded,
)
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL
from signalbox.driver.faults.channel_error import ChannelError, ChannelTimeout
from signalbox.driver.text_table import counted
from signalbox.hw.errors import Cause
from signalbox.hw.methods import COMPUTE_CLASSES, COPY_CLASSES, HostMethod, ObjectClass, SemOp

__all__ = ["Acquire", "Change", "RawReport", "Span", "bound_objects", "held_acquire"]


def bound_objects(compute: bool) -> dict[int, int]:
    """Classes bound at the start of a pushbuffer, by subchannel. `compute` : whether the machine
    has a compute engine."""
    copy = {COPY_SUBCHANNEL: int(ObjectClass.COPY)}
    return copy | {COMPUTE_SUBCHANNEL: int(ObjectClass.COMPUTE)} if compute else copy


@dataclass(frozen=True)
class Change:
    """Contiguous bytes of a segment changed by the run."""

    segment: str
    address: int
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Span:
    """A range of a segment."""

    segment: str
    address: int
    size: int


@dataclass(frozen=True)
class Acquire:
    """An acquire that blocks the channel.

    Members
    -------
    position : index of the dword that completes the acquire.
    address : virtual address of the semaphore.
    size : bytes compared, 4 or 8.
    wants : condition on the value, as text.
    slot : slot of an on-chip semaphore; None for memory.
    found : current value.
    """

    position: int
    address: int
    size: int
    wants: str
    slot: int | None = None
    found: int = 0

    def __str__(self) -> str:
        where = "memory" if self.slot is None else f"on-chip semaphore {self.slot}"
        return (
            f"the acquire of dword {self.position} wants {where} at {self.address:#x} to be "
            f"{self.wants}, there is {self.found:#x}"
        )


@dataclass(frozen=True)
class RawReport:
    """Outcome of a pushbuffer, as shown by the hardware.

    Members
    -------
    dwords : the pushbuffer.
    channel : channel number.
    compute : whether the machine has a compute engine.
    methods, copies : numbers of methods and copies executed.
    reference : data of the last SET_REFERENCE.
    objects : data of SET_OBJECT, by subchannel; subchannels without an object are left out.
    error : why the channel halted, or None.
    stuck : reason why the channel waits, or None.
    acquire : the acquire that blocks the channel, or None.
    semaphores : (slot, before, after) of changed on-chip semaphores.
    changes : changed memory of the image.
    kept : expectations that hold.
    mismatches : expectations that do not hold; `segment` is the expectation's name, `before` the
        expected bytes.
    cycles : cycles of the doorbell and of the channel's last activity, if the caller has a trace.
    """

    dwords: tuple[int, ...]
    channel: int
    compute: bool
    methods: int
    copies: int
    reference: int
    objects: dict[int, int]
    error: ChannelError | None
    stuck: ChannelTimeout | None
    acquire: Acquire | None
    semaphores: tuple[tuple[int, int, int], ...]
    changes: tuple[Change, ...]
    kept: tuple[Span, ...]
    mismatches: tuple[Change, ...]
    cycles: tuple[int, int] | None = None

    @property
    def good(self) -> bool:
        """Whether the pushbuffer is complete and fully executed, and all expectations hold."""
        failures = (self.error, self.stuck, self.cut_short, *self.mismatches)
        return not any(failure is not None for failure in failures)

    @property
    def cut_short(self) -> Malformed | None:
        """The method group cut off by the end of the pushbuffer, or None."""
        items = self._items()
        return next((i for i in items if isinstance(i, Malformed) and i.missing), None)

    def timed(self, first: int, last: int) -> "RawReport":
        """The report with the cycles of the doorbell and of the last activity."""
        return replace(self, cycles=(first, last))

    def format(self) -> str:
        """The report as text."""
        text = disassemble(self.dwords, objects=bound_objects(self.compute))
        parts = [
            f"Pushbuffer of {counted(len(self.dwords), 'dword')} on channel {self.channel}:",
            _indent(text.splitlines()),
            f"Executed: {counted(self.methods, 'method')}{self._time()}.",
            f"Reference: {self.reference:#x}.",
            f"Bound: {self._bound()}.",
            f"Copied: {counted(self.copies, 'copy', 'copies')} ended.",
            _section("Without effect", folded(self._without_effect()), "nothing."),
            *self._refused(),
            *self._cut_short(),
            *self._stuck(),
            _section("On-chip semaphores", map(_semaphore_line, self.semaphores), "no change."),
            _section("Memory", folded(map(_change, self.changes)), "no change."),
        ]
        if self.kept:
            parts.append(_section("As expected", map(_kept_line, self.kept)))
        if self.mismatches:
            parts.append(_section("Not as expected", folded(map(_mismatch, self.mismatches))))
        return "\n".join(parts)

    def _bound(self) -> str:
        """Objects at the end."""
        listed = (f"{word:#x} to subchannel {number}" for number, word in self.objects.items())
        return ", ".join(listed) or "nothing"

    def _time(self) -> str:
        if self.cycles is None:
            return ""
        first, last = self.cycles
        return (
            f" in {counted(last - first, 'cycle')}, from the doorbell (cycle {first}) to the last "
            f"thing that the channel did (cycle {last})"
        )

    def _refused(self) -> list[str]:
        """Lines on the error, its position and how to correct the pushbuffer."""
        if self.error is None:
            return ["Refused: nothing."]
        error, item = self.error, self._item(self.error)
        if isinstance(item, Method):
            error = replace(error, object_class=item.object_class)
        where = "" if item is None else f"; it is dword {item.position} of the pushbuffer"
        return [f"Refused: {error.reason}{where}.", f"  To go on: {self._advice(error)}."]

    def _advice(self, error: ChannelError) -> str:
        """How to correct the pushbuffer or the image."""
        if self.compute and error.cause in _WITH_COMPUTE:
            return _WITH_COMPUTE[error.cause]
        if error.cause is Cause.OBJECT_CLASS and error.data & 0xFFFF in COMPUTE_CLASSES:
            return _NO_SMS
        return _ADVICE.get(error.cause, "correct the pushbuffer there and run it again")

    def _items(self) -> Iterator[Method | Ignored | Directive | Malformed]:
        return decode(self.dwords, objects=bound_objects(self.compute))

    def _without_effect(self) -> Iterator[tuple[str, str]]:
        """Executed compute methods that set state which the machine lacks, by dword."""
        methods = (item for item in self._items() if isinstance(item, Method))
        for item in islice(methods, self.methods):
            if item.without_effect:
                yield f"{item.position:5}", item.text

    def _item(self, error: ChannelError) -> Method | Malformed | None:
        """The method or header that caused an error; None if unknown, for example for failed
        copies."""
        items = list(self._items())
        methods = [item for item in items if isinstance(item, Method)]
        if error.at_header:
            done = methods[self.methods - 1].position if self.methods else -1
            later = (item for item in items if isinstance(item, Malformed) and item.position > done)
            return next((item for item in later if item.dword == error.data), None)
        if error.held and self.methods < len(methods):
            method = methods[self.methods]
            if (method.address, method.data) == (error.method, error.data):
                return method
        return None

    def _cut_short(self) -> list[str]:
        group = self.cut_short
        if group is None:
            return []
        where = f"the method group of dword {group.position} ({group.dword:#010x})"
        return [
            f"Cut short: the pushbuffer ends inside {where}: {group.reason}.",
            "  To go on: add them, or lower the count in bits 28:16 of the header.",
        ]

    def _stuck(self) -> list[str]:
        if self.stuck is None:
            return []
        if self.acquire is None:
            return [f"Stuck: {self.stuck}."]
        idle = f"nothing was executed for {counted(self.stuck.cycles, 'cycle')}"
        table = "[[segment]]" if self.acquire.slot is None else "[[semaphore]]"
        return [
            f"Stuck: channel {self.channel} waits: {self.acquire}; {idle}.",
            f"  To go on: nothing else runs here that could write it; {table} in the image can.",
        ]


def _section(title: str, lines: Iterable[str], otherwise: str = "") -> str:
    listed = list(lines)
    return f"{title}:\n{_indent(listed)}" if listed else f"{title}: {otherwise}"


def _indent(lines: Sequence[str]) -> str:
    return "\n".join("  " + line for line in lines)


def _short(data: bytes) -> str:
    return data[:8].hex(" ") + (" …" if len(data) > 8 else "")


def _semaphore_line(change: tuple[int, int, int]) -> str:
    slot, before, after = change
    return f"semaphore {slot}: {before:#x} → {after:#x}"


def _range(address: int, size: int, segment: str) -> tuple[str, str]:
    return f"{address:#x}", f"{counted(size, 'byte')} of {segment}"


def _change(change: Change) -> tuple[str, str]:
    place, what = _range(change.address, len(change.after), change.segment)
    return place, f"{what}: {_short(change.before)} → {_short(change.after)}"


def _mismatch(change: Change) -> tuple[str, str]:
    place, what = _range(change.address, len(change.after), change.segment)
    return place, f"{what}: {_short(change.after)}, expected {_short(change.before)}"


def _kept_line(span: Span) -> str:
    return ": ".join(_range(span.address, span.size, span.segment))


# Advice for the author of a pushbuffer

_COPY, _COMPUTE = (
    ", ".join(f"{one:#x}" for one in classes[:-1]) + f" or {classes[-1]:#x}"
    for classes in (COPY_CLASSES, COMPUTE_CLASSES)
)
"""Class numbers as text, for advice."""

_COPY_CLASS = f"bind the copy class (SET_OBJECT {_COPY}) there, or use subchannel 4, which has it"
_EITHER_CLASS = (
    f"bind the copy class (SET_OBJECT {_COPY}) or the compute class ({_COMPUTE}) there, or use "
    "subchannel 4 or 1, which have them"
)
_NO_SMS = (
    f"build a machine with the compute class: --sms N; this one has the copy class, {_COPY}, only"
)
_NO_SOFTWARE = "use subchannels 0 … 4 with an object of the machine; 5 … 7 are for software"
_RECORD = "correct the task's record in the image"
_IN_IMAGE = "name the memory there, by a [[segment]] or an [[expect]] in the image"

_ADVICE = {
    Cause.METHOD_PRIVILEGED: "set privileged = true in the image",
    Cause.OBJECT_UNBOUND: _COPY_CLASS,
    Cause.OBJECT_SOFTWARE: _NO_SOFTWARE,
    Cause.OBJECT_CLASS: f"name the copy class, {_COPY}; there is no other",
    Cause.COPY_ZERO: "write LINE_LENGTH_IN (and LINE_COUNT with MULTI_LINE) before LAUNCH_DMA",
    Cause.COPY_MODE: "use pitch layouts; nothing else is modelled",
    Cause.COPY_REMAP: "name components below NUM_SRC_COMPONENTS, constants or NO_WRITE",
    Cause.SEM_UNKNOWN: "use a semaphore that is there, or build more with --semaphores",
    Cause.SEM_FAULT: _IN_IMAGE,
    Cause.COPY_READ_FAULT: _IN_IMAGE,
    Cause.COPY_WRITE_FAULT: _IN_IMAGE,
    Cause.COPY_SEMAPHORE: "correct SET_SEMAPHORE_A and _B: a four-word release lies on 16 bytes",
    Cause.INLINE_FAULT: _IN_IMAGE,
    Cause.INLINE_ORDER: (
        "LAUNCH_DMA comes first, then LINE_COUNT times LINE_LENGTH_IN / 4 dwords, rounded up, and "
        "no other compute method before the last one"
    ),
    Cause.INLINE_ZERO: "write LINE_LENGTH_IN and LINE_COUNT before LAUNCH_DMA",
    Cause.TASK_FAULT: _IN_IMAGE,
    Cause.TASK_MODEL: f"{_RECORD}: QMD V03_00 of the compute class, as hw/qmd.py has it",
    Cause.TASK_CHECK: _RECORD,
}

_WITH_COMPUTE = {
    Cause.OBJECT_UNBOUND: _EITHER_CLASS,
    Cause.OBJECT_CLASS: (
        f"name the copy class, {_COPY}, or the compute class, {_COMPUTE}; there is no other"
    ),
}
"""Replaces entries of `_ADVICE` on a machine with a compute engine."""


# The acquire that blocks a channel

_SAME_REGISTER: dict[int, int] = {
    HostMethod.SEMAPHOREA: HostMethod.SEM_ADDR_HI,
    HostMethod.SEMAPHOREB: HostMethod.SEM_ADDR_LO,
    HostMethod.SEMAPHOREC: HostMethod.SEM_PAYLOAD_LO,
}
"""Legacy methods, and the methods that write the same state."""

_LEGACY = {1: SemOp.ACQUIRE, 4: SemOp.ACQ_CIRC_GEQ, 8: SemOp.ACQ_AND}
"""Acquire operations of SEMAPHORED."""

_WANTS: dict[int | None, str] = {
    SemOp.ACQUIRE: "{:#x}",
    SemOp.ACQ_STRICT_GEQ: "{:#x} or more",
    SemOp.ACQ_CIRC_GEQ: "{:#x} or later (circular)",
    SemOp.ACQ_AND: "1 in a bit of {:#x}",
    SemOp.ACQ_NOR: "0 in a bit that is 0 in {:#x}",
}


def held_acquire(dwords: Sequence[int], executed: int) -> Acquire | None:
    """The acquire that follows the first `executed` methods of a pushbuffer; None if another
    method, or none, follows. The caller fills in `slot` and `found`."""
    methods = [item for item in decode(dwords) if isinstance(item, Method)]
    if executed >= len(methods):
        return None
    state: dict[int, int] = {}
    for method in methods[:executed]:
        state[_SAME_REGISTER.get(method.address, method.address)] = method.data
    held = methods[executed]
    if held.address == HostMethod.SEM_EXECUTE:
        operation, wide = held.data & 7, held.data >> 24 & 1
    elif held.address == HostMethod.SEMAPHORED:
        operation, wide = _LEGACY.get(held.data & 0x1F), 0
    else:
        return None
    if operation not in _WANTS:
        return None
    payload = state.get(HostMethod.SEM_PAYLOAD_LO, 0)
    payload |= state.get(HostMethod.SEM_PAYLOAD_HI, 0) << 32 if wide else 0
    high, low = state.get(HostMethod.SEM_ADDR_HI, 0), state.get(HostMethod.SEM_ADDR_LO, 0)
    return Acquire(
        position=held.position,
        address=(high & 0xFF) << 32 | low & ~3,
        size=8 if wide else 4,
        wants=_WANTS[operation].format(payload),
    )
