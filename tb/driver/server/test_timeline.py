"""Timelines of servers, from a journal and a trace."""

from pathlib import Path

from signalbox.driver.server.journal import Entry, Kind
from signalbox.hw.errors import Refusal
from signalbox.tb.reports.readback import read
from signalbox.tb.reports.served import MACHINE, QUEUE, process_name, task_track, write
from signalbox.tb.reports.timeline import WARPS, block_track, sm_track
from signalbox.tb.simulation.trace import (
    BlockStop,
    BlockStopped,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpEnded,
    WarpStarted,
)


def entry(cycle: int, kind: Kind, number: int, channel: int = -1) -> Entry:
    return Entry(cycle, kind, number, "ab"[number], 100 + number, channel)


ENTRIES = [
    entry(10, Kind.CAME, 0),
    entry(11, Kind.OPENED, 0, 2),
    entry(20, Kind.CAME, 1),
    entry(21, Kind.OPENED, 1, 3),
    entry(30, Kind.PUSHED, 0, 2),
    entry(31, Kind.PUSHED, 0, 2),
    entry(32, Kind.HANDED_ON, 0, 2),
    entry(33, Kind.PUSHED, 1, 3),
    entry(34, Kind.HANDED_ON, 1, 3),
    entry(35, Kind.HANDED_ON, 0, 2),
    entry(36, Kind.PUSHED, 0, 2),
    entry(37, Kind.PUSHED, 0, 2),
    entry(38, Kind.DROPPED, 0, 2),
    entry(39, Kind.DROPPED, 0, 2),
    entry(200, Kind.CLOSED, 0, 2),
    entry(201, Kind.GONE, 0),
    entry(202, Kind.OPENED, 1, 2),
]

TRACE = [
    TaskLaunched(40, 2, 5, 0x10),
    TaskLaunched(41, 3, 6, 0x10),
    TaskLaunched(42, 2, 5, 0x11),
    TaskOpened(45, 0, 5, 0x10),
    TaskOpened(46, 1, 6, 0x10),
    WarpStarted(50, 0, 0, 0, 0, 0),
    WarpStarted(51, 0, 1, 0, 0, 1),
    WarpStarted(52, 0, 4, 1, 1, 0),
    BlockStop(55, 0, 1),
    BlockStopped(60, 0, 1, True, 0, 0, 0),
    WarpEnded(70, 0, 0),
    WarpEnded(80, 0, 1),
    WarpStarted(85, 0, 0, 1, 0, 0),
    TaskOver(90, 2, 0x10, Refusal.NONE),
    WarpEnded(95, 0, 0),
    TaskOver(99, 3, 0x10, Refusal.KERNEL),
    TaskOpened(100, 0, 6, 0x20),
    WarpStarted(101, 0, 5, 0, 2, 0),
    WarpEnded(109, 0, 5),
    WarpStarted(111, 0, 6, 0, 2, 1),
    WarpEnded(115, 0, 6),
    TaskOpened(120, 0, 9, 0x20),
    WarpStarted(121, 0, 5, 0, 2, 0),
    TaskLaunched(210, 2, 6, 0x12),
]


def test_tracks(tmp_path: Path):
    """Tasks, blocks and counters are shown for the application that had the channel at the time."""
    file = tmp_path / "timeline.pftrace"
    write(file, ENTRIES, TRACE, sms=1)
    events = read(file)
    a, b = process_name(ENTRIES[0]), process_name(ENTRIES[2])

    def slices(*track: str) -> list[tuple[int, int, str]]:
        ends = iter(events[track])
        return [(start, next(ends)[0], one.name) for start, one in ends]

    def values(*track: str) -> list[tuple[int, int]]:
        return [(cycle, one.counter_value) for cycle, one in events[track]]

    assert slices(a, task_track(0)) == [(40, 90, "task 0")]
    assert slices(a, task_track(1)) == [(42, 210, "task 1")]
    child = (100, 115, "task 1")  # launched by a kernel of the holder of ASID 6
    assert slices(b, task_track(0)) == [(41, 99, "task 0"), child, (210, 210, "task 2")]
    queued = [(30, 1), (31, 2), (32, 1), (35, 0), (36, 1), (37, 2), (38, 1), (39, 0)]
    assert values(a, QUEUE) == queued
    nested = [(101, 1), (109, 0), (111, 1), (115, 0)]
    assert values(b, WARPS) == [(52, 1), (60, 0), (85, 1), (95, 0), *nested]
    assert slices(MACHINE, sm_track(0), block_track(2)) == [(101, 115, "1 b")]
    assert slices(MACHINE, sm_track(0), block_track(0)) == [(50, 80, "0 a"), (85, 95, "1 b")]
    assert slices(MACHINE, sm_track(0), block_track(1)) == [(52, 60, "1 b")]
    (_, task), _ = events[b, task_track(0)][:2]
    (_, block), _ = events[MACHINE, sm_track(0), block_track(1)]
    assert list(task.flow_ids) == list(block.flow_ids) and len(block.flow_ids) == 1
    outcomes = {note.name: note.string_value for note in task.debug_annotations}
    assert outcomes["outcome"] == "KERNEL"
