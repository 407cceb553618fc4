"""The workload with nested launches on the RTL: trees of kernels, their tables and timeline."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.server.journal import Entry, Kind
from signalbox.driver.workload.reader import load
from signalbox.driver.workload.records import ChildRecord, KernelRecord, Result
from signalbox.hw.errors import Refusal
from signalbox.hw.placement.controller import Step
from signalbox.tb.reports import timeline, workload
from signalbox.tb.reports.activity import Activity, activity
from signalbox.tb.reports.kernel_lives import KernelLife, Lost, kernel_activity
from signalbox.tb.reports.readback import Events, read, read_back
from signalbox.tb.reports.served import MACHINE, write
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.sizes import NESTED
from signalbox.tb.simulation.workload import Run, machine, simulate_workload

EXAMPLE = workload.SUPPLIED / "nested.toml"


@cache
def played(policy: str) -> Run:
    """A run of the example, shared by several tests."""
    return simulate_workload(EXAMPLE, policy, seed=1)


@cache
def done(policy: str) -> Activity:
    run = played(policy)
    return activity(run.result, run.events)


def children(policy: str) -> list[KernelLife]:
    return [kernel for kernel in done(policy).compute.kernels if kernel.parent is not None]


def test_machine():
    """Other tests use the same machine, so it is built only once."""
    assert machine(load(EXAMPLE)) == NESTED


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["priority", "none"])
def test_trees(policy: str):
    """All results equal numpy's, or the run would fail. Each child is launched after its parent
    starts, and is over before its parent; the blocks of a waiting parent end after its
    children."""
    found = children(policy)
    roots = {kernel.title: kernel for kernel in done(policy).compute.roots}
    assert sorted(roots) == [
        *("chain", "grid", "long", "running", "search", "sort"),
        *("urgent[0]", "urgent[1]", "urgent[2]", "weighted"),
    ]
    per_root = Counter(child.root.title for child in found)
    assert set(per_root) == {"sort", "grid", "search", "chain"}
    assert per_root["sort"] == 14 and per_root["grid"] % 4 == 0
    depths = {child.depth for child in found if child.root.title == "sort"}
    assert max(depths) == MergeSort.depth(200) == 4
    for child in found:
        parent = child.parent
        assert parent is not None
        assert parent.first_warp.start < child.launched < child.first_block
        assert child.first_block < child.over <= parent.over
        named = child.title in ("scaled", "totals")
        assert named or child.title.startswith(f"{parent.title}.")
    first, second = (child for child in found if child.root.title == "chain")
    assert (first.title, second.title) == ("scaled", "totals") and first.over < second.launched
    for parent in (child.parent for child in found if child.root.title == "sort"):
        assert parent is not None and parent.last_exit > max(
            child.over for child in found if child.parent is parent
        )
    asked = [event for event in played(policy).events if isinstance(event, trace.Asked)]
    assert len(asked) == len(found)


@pytest.mark.nightly
def test_the_urgent_stream_does_not_wait():
    """With priorities the urgent kernel is above all descendants of the others: although some of
    their blocks wait for room, none is placed from the cycle in which it gets a slot until its last
    block is placed. Without priorities that happens, and it takes longer."""
    took, passed = dict[str, int](), dict[str, int]()
    for policy in ("priority", "none"):
        kernels = done(policy).compute.kernels
        alarms = [one for one in kernels if one.record.name == "urgent"]
        took[policy] = sum(one.over - one.launched for one in alarms)
        passed[policy] = 0
        for alarm in alarms:
            last = max(block.placed for block in alarm.blocks)
            others = [one for one in kernels if one is not alarm and one.launched < last]
            placed = [block.placed for one in others for block in one.blocks]
            passed[policy] += sum(alarm.opened[0] < cycle < last for cycle in placed)
            if policy == "priority":
                below = (one for one in others if one.parent is not None)
                assert any(block.placed > last for one in below for block in one.blocks)
    assert took["priority"] < took["none"]
    assert passed["priority"] == 0 < passed["none"], passed


DATA_OF_A_CHILD = """
[[copy]]
name = "x"
stream = "solver"
size = 128

[[kernel]]
name = "top"
stream = "solver"
kernel = "launch in turn"
grid = 1
block = 32
args = { FIRST = "sums" }

[[child]]
name = "sums"
kernel = "prefix sum"
grid = 1
block = 32
args = { X = "x" }

[[copy]]
name = "result"
stream = "filter"
source = "sums"
size = 128
"""


@pytest.mark.nightly
def test_a_copy_waits_for_data_of_a_child(tmp_path: Path):
    """Another channel waits for the kernel that the driver launched: children have no fence."""
    path = tmp_path / "child.toml"
    path.write_text(EXAMPLE.read_text().split("# The solver: kernels")[0] + DATA_OF_A_CHILD)
    run = simulate_workload(path, "priority", seed=1)
    found = activity(run.result, run.events)
    (record,) = (one for one in run.result.records if one.name == "result")
    waits = [span.name for span in found.waits[record.channel]]
    assert "waits for the end of top" in waits


# What is lost


def without_launch(events: list[trace.Event]) -> list[trace.Event]:
    """Remove the launch of a child."""
    asked = [event for event in events if isinstance(event, trace.Asked)][-1]
    answered = next(
        event
        for event in events
        if isinstance(event, trace.Answered)
        and event.cycle > asked.cycle
        and (event.sm, event.slot) == (asked.sm, asked.slot)
    )
    return [event for event in events if event not in (asked, answered)]


def without_answer(events: list[trace.Event]) -> list[trace.Event]:
    """Remove the last answer to a launch, and everything after it."""
    last = max(n for n, event in enumerate(events) if isinstance(event, trace.Answered))
    return events[:last]


def other_record(events: list[trace.Event]) -> list[trace.Event]:
    """A block launches a record that belongs to no kernel."""
    first = next(event for event in events if isinstance(event, trace.Asked))
    return [replace(event, page=1) if event is first else event for event in events]


def other_row(events: list[trace.Event]) -> list[trace.Event]:
    """A child is launched for a kernel other than the block's."""
    last = [event for event in events if isinstance(event, trace.Asked)][-1]
    rows = {event.row for event in events if isinstance(event, trace.TaskOpened)} - {last.row}
    return [replace(event, row=max(rows)) if event is last else event for event in events]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_row, r"SM \d: .*\(\d, 0, 0\).* launched a child of \S+"),
        (without_launch, r"row \d got the record at 0x\w+, which was not launched"),
        (without_answer, r"a launch by a block was not answered"),
        (other_record, r"\(0, 0, 0\) launched a record at 0x100 that is no kernel's"),
    ],
)
def test_what_is_lost_is_noticed(change: Callable, message: str):
    run = played("priority")
    with pytest.raises(Lost, match=message):
        kernel_activity(run.result, change(run.events), NESTED)


@pytest.mark.nightly
def test_refused_launches_have_no_child():
    """A refused launch is shown at its block, and is no kernel."""
    run, found = played("priority"), done("priority").compute.kernels
    leaf = next(
        child
        for child in reversed(children("priority"))
        if len(child.blocks) == len(child.opened) == 1 and not child.blocks[0].launches
    )
    activity = kernel_activity(run.result, list(refused(run, leaf)), NESTED)
    launches = [launch for sm in activity.sms for block in sm.blocks for launch in block.launches]
    (one,) = (launch for launch in launches if launch.child is None)
    assert one.name == "refused launch: ROOM" and one.start == leaf.launched
    assert len(activity.kernels) == len(found) - 1


def refused(run: Run, leaf: KernelLife) -> Iterator[trace.Event]:
    """Events of the run as if the launch of a childless child had been refused."""
    (block,), start = leaf.blocks, run.result.start
    asked, over = leaf.launched + start, leaf.over + start
    ends = {(warp.end + start, block.sm, warp.warp) for warp in block.warps}
    answered, rows = False, set()
    for event in run.events:
        match event:
            case trace.Answered(cycle, block_sm, slot, _) if cycle > asked and not answered:
                mine = trace.Asked(asked, block_sm, slot, 0, leaf.record.page)
                answered = any(replace(one, row=0) == mine for one in _asked(run))
                yield replace(event, refusal=Refusal.ROOM) if answered else event
            case trace.TaskOpened(cycle, row, _, leaf.record.page) if asked < cycle < over:
                rows.add(row)
            case trace.TaskOver(cycle, _, leaf.record.page) if cycle == over:
                rows.clear()
            case trace.BlockPlaced() | trace.WarpStarted() if event.row in rows:
                pass
            case trace.WarpEnded(cycle, sm, warp) if (cycle, sm, warp) in ends:
                pass
            case _:
                yield event


def _asked(run: Run) -> list[trace.Asked]:
    return [event for event in run.events if isinstance(event, trace.Asked)]


# The timeline


def test_an_arrow(tmp_path: Path):
    """A made-up run: a kernel launches another one, whose block is placed before the answer; its
    second launch is refused. The arrow leads from the first launch to that block."""
    sizes = {"grid": (1, 1, 1), "block": (32, 1, 1)}
    times = dict.fromkeys(("requested", "submitted", "ready", "completed"), 0)
    place = {"stream": "s", "channel": 0, "priority": 0, "index": 0}
    parent = KernelRecord(name="p", kernel="k", asid=0, page=1, **sizes, **times, **place)
    child = ChildRecord(title="", kernel="c", asid=0, page=2, **sizes)
    result = Result(load(EXAMPLE), "priority", (), 0, (), (), (parent,), (child,))
    events = [
        trace.TaskLaunched(10, 0, 0, 1),
        trace.TaskOpened(12, 0, 0, 1),
        trace.BlockPlaced(14, 0, 0, Step.WHOLE, 0, 0, 0),
        trace.WarpStarted(20, 0, 0, 0, 0, 0),
        trace.Asked(30, 0, 0, 0, 2),
        trace.TaskOpened(38, 1, 0, 2),
        trace.BlockPlaced(40, 1, 1, Step.WHOLE, 0, 0, 0),
        trace.Answered(42, 0, 0, Refusal.NONE),
        trace.WarpStarted(45, 1, 3, 1, 2, 0),
        trace.WarpEnded(70, 1, 3),
        trace.TaskOver(72, 0, 2, Refusal.NONE),
        trace.Asked(74, 0, 0, 0, 2),
        trace.Answered(78, 0, 0, Refusal.ROOM),
        trace.WarpEnded(80, 0, 0),
        trace.TaskOver(90, 0, 1, Refusal.NONE),
    ]
    found = kernel_activity(result, events, NESTED)
    assert [(one.title, one.depth, one.over) for one in found.kernels] == [
        ("p", 1, 90),
        ("p.1", 2, 72),
    ]
    shown = begun(read_back(tmp_path / "timeline.pftrace", {"run": Activity(compute=found)}))
    starts = {one[2].name: one for one in shown if one[0][1].startswith("SM ")}
    assert {"launch of p.1", "refused launch: ROOM"} < set(starts)
    launch, block = starts["launch of p.1"], starts["p.1 (0, 0, 0)"]
    assert (launch[0], launch[1], launch[3]) == (("run", "SM 0", "block slot 0"), 30, "p (0, 0, 0)")
    assert (block[0], block[1]) == (("run", "SM 1", "block slot 2"), 40)
    assert list(launch[2].flow_ids) == list(block[2].flow_ids) != []
    assert not starts["refused launch: ROOM"][2].flow_ids
    assert [one[0] for one in shown if one[2].name == "p.1"] == [
        ("run", timeline.KERNELS, timeline.child_track("s", 2, 1))
    ]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """The timeline of the run with priorities."""
    file = tmp_path_factory.mktemp("timeline") / "timeline.pftrace"
    return read_back(file, {"run": done("priority")})


Begun = tuple[tuple[str, ...], int, TrackEvent, str]
"""A slice: its track, its start, its first event, and the name of the outermost slice around it."""


def begun(shown: Events) -> list[Begun]:
    """All slices, in order of time; checks that each has an end, within those around it."""
    found: list[Begun] = []
    for track, listed in shown.items():
        opened: list[str] = []
        for cycle, event in sorted(listed, key=lambda one: one[0]):
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                opened.append(event.name)
                found.append((track, cycle, event, opened[0]))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                opened.pop()
        assert not opened, track
    return found


@pytest.mark.nightly
def test_arrows_to_children(shown: Events):
    """An arrow leads from each launch, in the slice of the parent's block, to the child's first
    block."""
    ends: dict[int, list[Begun]] = defaultdict(list)
    for one in begun(shown):
        for flow in one[2].flow_ids:
            ends[flow].append(one)
    arrows = {
        launch[2].name.removeprefix("launch of "): (launch, *others)
        for launch, *others in (sorted(some, key=lambda one: one[1]) for some in ends.values())
        if launch[2].name.startswith("launch of ")
    }
    found = children("priority")
    assert sorted(arrows) == sorted(child.title for child in found)
    for child in found:
        launch, block = arrows[child.title]
        parent, first = child.parent, child.blocks[0]
        assert parent is not None
        assert launch[2].name == f"launch of {child.title}" and launch[1] == child.launched
        assert launch[0][1].startswith("SM ") and launch[0][2].startswith("block slot ")
        assert launch[3].startswith(f"{parent.title} (")
        assert block[0] == ("run", timeline.sm_track(first.sm), timeline.block_track(first.slot))
        assert block[1] == child.first_block and block[2].name == block[3] == first.name


@pytest.mark.nightly
def test_launches_are_those_of_the_trace(shown: Events):
    """Slices of launches begin with the block's request and end with the answer."""
    run, start = played("priority"), played("priority").result.start
    seen, spans = Counter(), Counter()
    for track, listed in shown.items():
        opened: list[tuple[str, int]] = []
        for cycle, event in sorted(listed, key=lambda one: one[0]):
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                opened.append((event.name, cycle))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                name, since = opened.pop()
                if name.startswith("launch of ") and opened:
                    spans[int(track[1].removeprefix("SM ")), since + start, cycle + start] += 1
    asking: dict[tuple[int, int], int] = {}
    for event in run.events:
        if isinstance(event, trace.Asked):
            asking[event.sm, event.slot] = event.cycle
        elif isinstance(event, trace.Answered):
            seen[event.sm, asking.pop((event.sm, event.slot)), event.cycle] += 1
    assert spans == seen and seen.total() == len(children("priority"))


@pytest.mark.nightly
def test_children_are_tasks_of_their_own(shown: Events):
    """Each child is a slice of its own, from its launch to its end, and names its parent."""
    titles = {child.title: child for child in children("priority")}
    seen = []
    for (track, cycle, event, outer), name in ((one, one[2].name) for one in begun(shown)):
        if track[1] == timeline.KERNELS and name == outer and name in titles:
            child = titles[name]
            parent, notes = child.parent, {note.name: note for note in event.debug_annotations}
            assert parent is not None
            assert cycle == child.launched
            assert track[2].startswith(f"solver, depth {child.depth} (")
            assert notes["launched by"].string_value == parent.title
            assert notes["depth"].int_value == child.depth
            seen.append(name)
    assert sorted(seen) == sorted(titles)


# Printed output


@pytest.mark.nightly
def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(workload, "simulate_workload", lambda file, policy, **_: played(policy))
    out = io.StringIO()
    assert workload.main([str(EXAMPLE), "--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("every byte verified: 11 copies, 10 kernels") == 2
    rows: list[list[Any]] = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    for depth, number in ((2, 2), (3, 4), (4, 8)):
        level = [
            child
            for child in children("priority")
            if child.root.title == "sort" and child.depth == depth
        ]
        starts = [child.first_warp.start - child.launched for child in level]
        ends = [child.over - child.launched for child in level]
        cells = ["sort", f"{depth}", f"{depth - 1}", f"{number}"]
        for cycles in (starts, ends):
            cells += [f"{min(cycles):,}", f"{sum(cycles) / number:,.0f}", f"{max(cycles):,}"]
        assert cells in rows
    assert text.count("launched by kernels, by depth") == 2
    assert not any("sort." in line for line in text.splitlines())
    assert "timeline-nested.pftrace" in text and not capsys.readouterr().err


@pytest.mark.nightly
def test_timeline_of_a_server(tmp_path: Path):
    """Recorded by a server, the same trace shows the same children, launches and arrows."""
    run, found = played("priority"), children("priority")
    start, file = run.result.start, tmp_path / "timeline.pftrace"
    channels = sorted({kernel.channel for kernel in run.result.kernels})
    entries = [Entry(0, Kind.CAME, 0, "all", 1)]
    entries += [Entry(0, Kind.OPENED, 0, "all", 1, channel) for channel in channels]
    write(file, entries, run.events, sms=NESTED.sms)
    events = read(file)
    tasks = [
        pair for track, listed in events.items() if track[0] != MACHINE for pair in lives(listed)
    ]
    wanted = Counter((child.launched + start, child.over + start) for child in found)
    assert Counter(tasks) == wanted
    slices = [one for one in begun(events) if one[0][0] == MACHINE]
    launches = [one for one in slices if one[2].name.startswith("launch of ")]
    assert len(launches) == len(found)
    blocks = {
        flow: (track, cycle)
        for track, cycle, event, _ in slices
        for flow in event.flow_ids
        if not event.name.startswith("launch of ")
    }
    arrows = Counter(
        (launched[0], launched[1], blocks[launched[2].flow_ids[0]]) for launched in launches
    )
    assert arrows == Counter(
        (
            (MACHINE, timeline.sm_track(block.sm), timeline.block_track(block.slot)),
            launch.start + start,
            first_block(launch.child, start),
        )
        for sm in done("priority").compute.sms
        for block in sm.blocks
        for launch in block.launches
        if launch.child is not None
    )


def lives(listed: list[tuple[int, TrackEvent]]) -> list[tuple[int, int]]:
    """Start and end of each slice of a track that is a task launched by another one."""
    ends = iter(listed)
    found = [(cycle, event, next(ends)[0]) for cycle, event in ends if event.HasField("name")]
    return [
        (cycle, end)
        for cycle, event, end in found
        for note in event.debug_annotations
        if note.name == "launched by" and note.string_value != "the driver"
    ]


def first_block(child: KernelLife, start: int) -> tuple[tuple[str, ...], int]:
    """Track of the block with the first warp of a kernel, and the cycle in which that starts."""
    block = min(child.blocks, key=lambda one: min(warp.start for warp in one.warps))
    track = MACHINE, timeline.sm_track(block.sm), timeline.block_track(block.slot)
    return track, child.first_warp.start + start
