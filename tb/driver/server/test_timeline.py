"""Timelines of servers, from a journal and a trace."""

from pathlib import Path

from signalbox.driver.server.journal import Entry, Kind
from signalbox.hw.errors import Refusal
from signalbox.tb.reports.readback import read
from signalbox.tb.reports.served import MACHINE, QUEUE, process_name, task_track, write
from signalbox.tb.reports.timeline import WARPS, block_track, sm_track
from signalbox.tb.simulation.trace import (
    Answered,
    Asked,
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
    Asked(86, 0, 0, 1, 0x20),
    TaskOpened(87, 2, 6, 0x20),  # it may have a row before the answer
    Answered(88, 0, 0, Refusal.NONE),
    Asked(89, 0, 0, 1, 0x21),
    TaskOver(90, 2, 0x10, Refusal.NONE),
    Answered(91, 0, 0, Refusal.ROOM),
    Asked(92, 0, 0, 1, 0x20),  # the record of a task that is not over
    Answered(93, 0, 0, Refusal.DEPTH),
    WarpEnded(95, 0, 0),
    WarpStarted(101, 0, 5, 2, 2, 0),
    WarpEnded(109, 0, 5),
    Asked(110, 0, 7, 5, 0x20),  # by a row that is nobody's
    Answered(110, 0, 7, Refusal.NONE),
    WarpStarted(111, 0, 6, 2, 2, 1),
    WarpEnded(115, 0, 6),
    TaskOver(117, 3, 0x20, Refusal.NONE),
    TaskOver(119, 3, 0x10, Refusal.KERNEL),
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
    assert slices(b, task_track(0)) == [(41, 119, "task 0"), (210, 210, "task 2")]
    assert slices(b, task_track(1)) == [(86, 117, "task 1")]
    queued = [(30, 1), (31, 2), (32, 1), (35, 0), (36, 1), (37, 2), (38, 1), (39, 0)]
    assert values(a, QUEUE) == queued
    nested = [(101, 1), (109, 0), (111, 1), (115, 0)]
    assert values(b, WARPS) == [(52, 1), (60, 0), (85, 1), (95, 0), *nested]
    assert slices(MACHINE, sm_track(0), block_track(2)) == [(101, 115, "1 b")]
    launches = [
        (86, 88, "launch of task 1"),
        (89, 91, "refused launch: ROOM"),
        (92, 93, "refused launch: DEPTH"),
    ]
    shown = [(50, 80, "0 a"), (85, 95, "1 b"), *launches]
    assert slices(MACHINE, sm_track(0), block_track(0)) == shown
    assert slices(MACHINE, sm_track(0), block_track(1)) == [(52, 60, "1 b")]
    (_, task), _ = events[b, task_track(0)][:2]
    (_, block), _ = events[MACHINE, sm_track(0), block_track(1)]
    assert list(task.flow_ids) == list(block.flow_ids) and len(block.flow_ids) == 1
    outcomes = {note.name: note.string_value for note in task.debug_annotations}
    assert (outcomes["outcome"], outcomes["launched by"]) == ("KERNEL", "the driver")
    (_, child), _ = events[b, task_track(1)]
    outcomes = {note.name: note.string_value for note in child.debug_annotations}
    assert (outcomes["outcome"], outcomes["launched by"]) == ("NONE", "task 0")
    assert not child.flow_ids
    arrows = {
        one.name: list(one.flow_ids)
        for _, one in events[MACHINE, sm_track(0), block_track(0)]
        if one.name and one.name != "0 a"
    }
    (_, block), _ = events[MACHINE, sm_track(0), block_track(2)]
    assert arrows["launch of task 1"] == list(block.flow_ids) != list(task.flow_ids)
    assert not arrows["1 b"] and not arrows["refused launch: ROOM"]


def test_end_of_a_task_while_its_record_is_launched_again(tmp_path: Path):
    """A refused launch does not take the end of the record's task."""
    file = tmp_path / "timeline.pftrace"
    trace = [
        TaskLaunched(40, 2, 5, 16),
        TaskOpened(45, 0, 5, 16),
        WarpStarted(50, 0, 0, 0, 0, 0),
        TaskLaunched(51, 2, 5, 32),
        Asked(60, 0, 0, 0, 32),
        TaskOver(61, 2, 32, Refusal.NONE),
        Answered(62, 0, 0, Refusal.DEPTH),
        WarpEnded(70, 0, 0),
        TaskOver(71, 2, 16, Refusal.NONE),
    ]
    write(file, ENTRIES[:2], trace, sms=1)
    (start, task), (end, _) = read(file)[process_name(ENTRIES[0]), task_track(1)]
    assert (start, end, task.name) == (51, 61, "task 1")
    outcomes = {note.name: note.string_value for note in task.debug_annotations}
    assert outcomes["outcome"] == "NONE"
