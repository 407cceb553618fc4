"""Reads timelines back, for tests."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from signalbox.tb.reports import timeline
from signalbox.tb.reports.activity import Activity

__all__ = ["Events", "read", "read_back"]

Events = dict[tuple[str, ...], list[tuple[int, TrackEvent]]]
"""(cycle, event) of each track. The key of a track is the name of its process, that of its group,
if any, and its own."""


def read_back(file: Path, runs: Mapping[str, Activity]) -> Events:
    """Write a timeline and read it back."""
    timeline.write(file, runs)
    return read(file)


def read(file: Path) -> Events:
    """Events of a timeline."""
    tracks: dict[int, tuple[str, ...]] = {}
    events: Events = defaultdict(list)
    for packet in Trace.FromString(file.read_bytes()).packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.HasField("process"):
                tracks[track.uuid] = (track.process.process_name,)
            else:
                tracks[track.uuid] = (*tracks[track.parent_uuid], track.name)
        if packet.HasField("track_event"):
            event = packet.track_event
            events[tracks[event.track_uuid]].append((packet.timestamp, event))
    return events
