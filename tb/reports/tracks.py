"""Native track events for Perfetto: processes, tracks, slices, instants, counters, flows.

    process = Process(trace, numbers, 1, "a run")
    track = process.track("an engine")
    process.slice(track, 10, 20, "a copy", {"bytes": 4096})

Time stamps are cycles. Events of a track with the same cycle keep the order in which they were
written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

__all__ = ["Process"]

_SEQUENCE = 1

Notes = Mapping[str, object]
"""Details of an event, shown when it is selected."""

_NOTHING: Notes = {}


class Process:
    """A process of a trace. `numbers` : unused ids for its tracks."""

    def __init__(self, trace: Trace, numbers: Iterator[int], pid: int, name: str) -> None:
        self._trace = trace
        self._numbers = numbers
        self._order = 0
        self._uuid = next(numbers)
        track = self._packet().track_descriptor
        track.uuid = self._uuid
        track.process.pid = pid
        track.process.process_name = name
        track.child_ordering = TrackDescriptor.EXPLICIT

    def counter(
        self, name: str, values: Iterable[tuple[int, int]], parent: int | None = None
    ) -> None:
        """Add a counter track with values of (cycle, value)."""
        track = self.track(name, parent, counter=True)
        for cycle, value in values:
            self.event(track, cycle, TrackEvent.TYPE_COUNTER).counter_value = value

    def _packet(self) -> TracePacket:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def track(self, name: str, parent: int | None = None, *, counter: bool = False) -> int:
        """Add a track below `parent`, or below the process, after the earlier tracks. Returns its
        uuid."""
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

    def event(self, track: int, cycle: int, kind: Any) -> TrackEvent:
        """Add an event to a track."""
        packet = self._packet()
        packet.timestamp = cycle
        packet.track_event.track_uuid = track
        packet.track_event.type = kind
        return packet.track_event

    def begin(
        self,
        track: int,
        cycle: int,
        name: str,
        notes: Notes = _NOTHING,
        flows: Sequence[int] = (),
    ) -> None:
        """Begin a slice of a track, nested in its open slices."""
        event = self.event(track, cycle, TrackEvent.TYPE_SLICE_BEGIN)
        event.name = name
        event.flow_ids.extend(flows)
        _annotate(event, notes)

    def end(self, track: int, cycle: int) -> None:
        """End the innermost open slice of a track."""
        self.event(track, cycle, TrackEvent.TYPE_SLICE_END)

    def slice(
        self,
        track: int,
        start: int,
        end: int,
        name: str,
        notes: Notes = _NOTHING,
        flows: Sequence[int] = (),
    ) -> None:
        """Add a complete slice."""
        self.begin(track, start, name, notes, flows)
        self.end(track, end)

    def instant(
        self,
        track: int,
        cycle: int,
        name: str,
        notes: Notes = _NOTHING,
        *,
        flows: Sequence[int] = (),
        last: Sequence[int] = (),
    ) -> None:
        """Add an instant. `flows` : flows that pass through it. `last` : flows that end here."""
        event = self.event(track, cycle, TrackEvent.TYPE_INSTANT)
        event.name = name
        event.flow_ids.extend(flows)
        event.terminating_flow_ids.extend(last)
        _annotate(event, notes)


def _annotate(event: TrackEvent, notes: Notes) -> None:
    """Attach notes to an event."""
    for key, value in notes.items():
        note = event.debug_annotations.add()
        note.name = key
        if isinstance(value, int):
            note.int_value = value
        else:
            note.string_value = str(value)
