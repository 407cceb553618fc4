"""Timelines for Perfetto (https://ui.perfetto.dev): native track events, 1 ns for every cycle.

    write(Path("timeline.pftrace"), {"priorities": activity, "baseline": other})

One process for each run; below it the holder of the time slice, the copy engines, the channels, the
on-chip semaphores, and translation: of each address space the page walks under way and the misses,
and what was invalidated or refused. Arrows lead from a doorbell to its copy on the engine and to
its end.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from driver.mmufault import client_name
from tb.sim.activity import Activity, CopySpan
from tb.sim.trace import Fault
from tb.sim.translation import Translation

__all__ = [
    "FAULTS",
    "FLOOR",
    "INVALIDATIONS",
    "TRANSLATION",
    "channel_track",
    "engine_track",
    "misses_track",
    "walks_track",
    "write",
]

FLOOR = "time slice"
"""Name of the track that shows who holds the time slice."""

TRANSLATION = "translation"
"""Name of the group of tracks of translation."""

INVALIDATIONS, FAULTS = "invalidations", "faults"
"""Names of its tracks of instants."""

_SEQUENCE = 1
_RUN_FLOWS = 1 << 32
"""Numbers of flows of one run."""


def engine_track(engine: int) -> str:
    """Name of an engine's track."""
    return f"copy engine {engine}"


def walks_track(space: str) -> str:
    """Name of the counter of an address space's page walks under way."""
    return f"{space}: page walks under way"


def misses_track(space: str) -> str:
    """Name of the counter of an address space's misses so far in first-level TLBs."""
    return f"{space}: L1 misses"


def channel_track(activity: Activity, channel: int) -> str:
    """Name of a channel's track: its number and its streams."""
    copies = [copy.record for copy in activity.copies if copy.record.channel == channel]
    streams = ", ".join(sorted({record.stream for record in copies}))
    return f"channel {channel} ({streams})" if streams else f"channel {channel}"


def write(file: Path, runs: Mapping[str, Activity]) -> None:
    """Write a timeline with one process for every named run."""
    trace = Trace()
    numbers = iter(range(1, 1 << 62))
    for pid, (name, activity) in enumerate(runs.items(), 1):
        process = _Process(trace, numbers, pid, name)
        process.fill(activity)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(trace.SerializeToString())


class _Process:
    """The tracks of one run."""

    def __init__(self, trace: Trace, numbers: Iterator[int], pid: int, name: str) -> None:
        self._trace = trace
        self._numbers = numbers
        self._pid = pid
        self._order = 0
        self._uuid = next(numbers)
        track = self._packet().track_descriptor
        track.uuid = self._uuid
        track.process.pid = pid
        track.process.process_name = name
        track.child_ordering = TrackDescriptor.EXPLICIT

    def fill(self, activity: Activity) -> None:
        """Write all tracks."""
        flows = {
            id(copy): self._pid * _RUN_FLOWS + number for number, copy in enumerate(activity.copies)
        }
        floor = self._track(FLOOR)
        for span in activity.floor:
            self._slice(floor, span.start, span.end, f"channel {span.name}")
        for engine in sorted({copy.engine for copy in activity.copies}):
            track = self._track(engine_track(engine))
            for copy in activity.of_engine(engine):
                name = f"{copy.record.stream}: {copy.name}{' (faulted)' if copy.failed else ''}"
                self._slice(track, copy.start, copy.end, name, _copy(copy), [flows[id(copy)]])
        for channel in sorted({copy.record.channel for copy in activity.copies}):
            self._channel(activity, channel, flows)
        for index, values in sorted(activity.semaphores.items()):
            self._counter(activity.semaphore_name(index), values)
        self._translation(activity.translation)

    def _channel(self, activity: Activity, channel: int, flows: Mapping[int, int]) -> None:
        """Methods and waits of a channel; its doorbells, and the ends of its copies."""
        track = self._track(channel_track(activity, channel))
        spans = [*activity.waits[channel], *activity.methods[channel]]
        for span in sorted(spans, key=lambda span: (span.start, span.end)):
            self._slice(track, span.start, span.end, span.name)
        copies = [copy for copy in activity.copies if copy.record.channel == channel]
        announced: dict[int, list[Any]] = {}
        for copy in copies:
            announced.setdefault(copy.doorbell, []).append(copy)
        for cycle in activity.doorbells[channel]:
            event = self._event(track, cycle, TrackEvent.TYPE_INSTANT)
            names = ", ".join(copy.name for copy in announced.get(cycle, []))
            event.name = f"doorbell: {names}" if names else "doorbell"
            event.flow_ids.extend(flows[id(copy)] for copy in announced.get(cycle, []))
        for copy in copies:
            event = self._event(track, copy.end, TrackEvent.TYPE_INSTANT)
            event.name = f"{'fault' if copy.failed else 'end'} of {copy.name}"
            event.terminating_flow_ids.append(flows[id(copy)])
        for cycle, halted, cause in activity.errors:
            if halted == channel:
                event = self._event(track, cycle, TrackEvent.TYPE_INSTANT)
                event.name = f"halted: {cause}"

    def _translation(self, found: Translation) -> None:
        """Walks and misses of every address space; invalidations; faults."""
        group = self._track(TRANSLATION)
        for space in found.spaces.values():
            self._counter(walks_track(space.title), space.walks_under_way(), group)
            misses = ((cycle, count) for count, cycle in enumerate([0, *space.misses]))
            self._counter(misses_track(space.title), misses, group)
        track = self._track(INVALIDATIONS, group)
        for one in found.invalidations:
            event = self._event(track, one.cycle, TrackEvent.TYPE_INSTANT)
            event.name = f"{one.scope.name}: {found.title(one.asid)}"
        track = self._track(FAULTS, group)
        for space in found.spaces.values():
            for fault in space.faults:
                notes = _fault(fault)
                event = self._event(track, fault.cycle, TrackEvent.TYPE_INSTANT)
                event.name = f"{notes['cause']}: {notes['access']} of {notes['va']}, {space.title}"
                _annotate(event, notes)

    def _counter(
        self, name: str, values: Iterable[tuple[int, int]], parent: int | None = None
    ) -> None:
        """A track of (cycle, value)."""
        track = self._track(name, parent, counter=True)
        for cycle, value in values:
            self._event(track, cycle, TrackEvent.TYPE_COUNTER).counter_value = value

    def _packet(self) -> TracePacket:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _track(self, name: str, parent: int | None = None, *, counter: bool = False) -> int:
        """A new track below another, or the process, behind the earlier ones; gives its uuid."""
        track = self._packet().track_descriptor
        track.uuid = next(self._numbers)
        track.parent_uuid = self._uuid if parent is None else parent
        track.child_ordering = TrackDescriptor.EXPLICIT
        track.name = name
        self._order += 1
        track.sibling_order_rank = self._order
        if counter:
            track.counter.SetInParent()
        return track.uuid

    def _event(self, track: int, cycle: int, kind: Any) -> TrackEvent:
        packet = self._packet()
        packet.timestamp = cycle
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet.track_event

    def _slice(
        self,
        track: int,
        start: int,
        end: int,
        name: str,
        notes: Mapping[str, object] | None = None,
        flows: tuple[int, ...] | list[int] = (),
    ) -> None:
        event = self._event(track, start, TrackEvent.TYPE_SLICE_BEGIN)
        event.name = name
        event.flow_ids.extend(flows)
        _annotate(event, notes or {})
        self._event(track, end, TrackEvent.TYPE_SLICE_END)


def _annotate(event: TrackEvent, notes: Mapping[str, object]) -> None:
    """What is shown of an event when it is chosen."""
    for key, value in notes.items():
        note = event.debug_annotations.add()
        note.name = key
        if isinstance(value, int):
            note.int_value = value
        else:
            note.string_value = str(value)


def _copy(copy: CopySpan) -> dict[str, object]:
    """Notes of a copy."""
    return {
        "stream": copy.record.stream,
        "priority": copy.record.priority,
        "channel": copy.record.channel,
        "bytes": copy.record.size,
        "accepted": copy.accepted,
        "latency": copy.record.latency,
    }


def _fault(fault: Fault) -> dict[str, object]:
    """Notes of a refused access."""
    return {
        "asid": fault.asid,
        "va": f"{'physical ' if fault.physical else ''}{fault.va:#x}",
        "access": fault.access.name.lower(),
        "cause": fault.cause.name,
        "requester": client_name(fault.client) or f"client {fault.client}",
    }
