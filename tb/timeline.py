"""Timelines for Perfetto (https://ui.perfetto.dev): native track events, 1 ns for every cycle.

    write(Path("timeline.pftrace"), {"priorities": activity, "baseline": other})

One process for each run; below it the holder of the time slice, the copy engines, the channels and
the on-chip semaphores. Arrows lead from a doorbell to its copy on the engine and to its end.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    Trace,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)

from tb.sim.activity import Activity

__all__ = ["FLOOR", "channel_track", "engine_track", "write"]

FLOOR = "time slice"
"""Name of the track that shows who holds the time slice."""

_SEQUENCE = 1
_RUN_FLOWS = 1 << 32
"""Numbers of flows of one run."""


def engine_track(engine: int) -> str:
    """Name of an engine's track."""
    return f"copy engine {engine}"


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
                notes = {
                    "stream": copy.record.stream,
                    "priority": copy.record.priority,
                    "channel": copy.record.channel,
                    "bytes": copy.record.size,
                    "accepted": copy.accepted,
                    "latency": copy.record.latency,
                }
                name = f"{copy.record.stream}: {copy.name}"
                self._slice(track, copy.start, copy.end, name, notes, [flows[id(copy)]])
        for channel in sorted({copy.record.channel for copy in activity.copies}):
            self._channel(activity, channel, flows)
        for index, values in sorted(activity.semaphores.items()):
            track = self._track(activity.semaphore_name(index), counter=True)
            for cycle, value in values:
                event = self._event(track, cycle, TrackEvent.TYPE_COUNTER)
                event.counter_value = value

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
            event.name = f"end of {copy.name}"
            event.terminating_flow_ids.append(flows[id(copy)])
        for cycle, halted, cause in activity.errors:
            if halted == channel:
                event = self._event(track, cycle, TrackEvent.TYPE_INSTANT)
                event.name = f"halted: {cause}"

    def _packet(self) -> TracePacket:
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return packet

    def _track(self, name: str, *, counter: bool = False) -> int:
        """A new track below the process, behind the earlier ones; gives its uuid."""
        track = self._packet().track_descriptor
        track.uuid = next(self._numbers)
        track.parent_uuid = self._uuid
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
        for key, value in (notes or {}).items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = str(value)
        self._event(track, end, TrackEvent.TYPE_SLICE_END)
