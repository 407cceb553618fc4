"""Workloads with kernels on the RTL: the default workload of `make sim`, its tables and
timeline."""

import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from signalbox.driver.workload.reader import load
from signalbox.driver.workload.records import KernelRecord
from signalbox.hw.qmd import Urgency
from signalbox.tb.reports import timeline, workload
from signalbox.tb.reports.activity import OWN_KERNEL, Activity, activity
from signalbox.tb.reports.kernel_lives import KernelActivity, Lost, kernel_activity
from signalbox.tb.reports.kernel_tables import kernels_table, lives_table, sms_table
from signalbox.tb.reports.readback import Events, read_back
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.sizes import COMPUTE
from signalbox.tb.simulation.workload import Run, machine, simulate_workload

BLOCKS = {"long": 40, "weighted": 8, "running": 8, "product": 9, "sums": 5, "urgent": 4}
FEWER = {"long": 16, "weighted": 8, "urgent": 4}
LEFT_OUT = (
    *("product", "sums", "running", "matrix a", "matrix b", "numbers"),
    *("product out", "sums out", "running out"),
)


@cache
def played(policy: str) -> Run:
    """A run of the default workload, shared by several tests."""
    return simulate_workload(workload.DEFAULT, policy, seed=1)


@cache
def done(policy: str) -> Activity:
    run = played(policy)
    return activity(run.result, run.events)


def shorter(folder: Path) -> KernelActivity:
    """Compute activity of a shorter workload, for Icarus: `FEWER` blocks and an earlier alarm."""
    text = workload.DEFAULT.read_text().replace("grid = 40", "grid = 16")
    entries = text.replace("at = 5000", "at = 2500").split("\n[[")
    names = [f'name = "{name}"' for name in LEFT_OUT]
    kept = [each for each in entries if not set(names) & set(each.splitlines())]
    file = folder / "shorter.toml"
    file.write_text("\n[[".join(kept))
    run = simulate_workload(file, "priority", seed=1, simulator="icarus")
    return activity(run.result, run.events).compute


def lives(found: KernelActivity) -> dict[str, Any]:
    return {kernel.title: kernel for kernel in found.kernels}


def test_machine():
    """Other tests use the same machine, so it is built only once."""
    assert machine(load(workload.DEFAULT)) == COMPUTE


def test_applications(simulator: str, tmp_path: Path):
    """All results equal numpy's, or the run would fail; the urgent kernel does not wait for
    others."""
    fast = simulator == "verilator"
    found, counts = (done("priority").compute, BLOCKS) if fast else (shorter(tmp_path), FEWER)
    kernels = lives(found)
    assert {title: len(kernel.blocks) for title, kernel in kernels.items()} == counts
    for kernel in kernels.values():
        moments = (kernel.launched, kernel.opened[0], kernel.first_block, kernel.first_warp.start)
        assert list(moments) == sorted(moments)
        assert kernel.first_warp.start < kernel.last_exit < kernel.over <= kernel.record.completed
        assert kernel.record.ready <= kernel.launched
    urgent, long = kernels["urgent"], kernels["long"]
    assert long.first_block < urgent.launched < urgent.over < long.over
    waiting = [b for b in long.blocks if urgent.opened[0] + 2 < b.placed < urgent.blocks[-1].placed]
    assert not waiting, "less urgent blocks were placed in between"
    assert sum(len(sm.blocks) for sm in found.sms) == sum(counts.values())
    assert all(sm.look_ups > sm.hits > 0 and sm.peak == COMPUTE.sm_blocks for sm in found.sms)


def test_priorities_help_the_urgent_kernel():
    runs = {policy: lives(done(policy).compute)["urgent"] for policy in ("priority", "none")}
    took = {policy: kernel.over - kernel.launched for policy, kernel in runs.items()}
    assert 2 * took["priority"] < took["none"]
    waits = done("priority").waits[runs["priority"].record.channel]
    assert OWN_KERNEL in {span.name for span in waits}


def without_block(events: list[trace.Event]) -> list[trace.Event]:
    """Remove the last placed block and its warps."""
    last = next(e for e in reversed(events) if isinstance(e, trace.BlockPlaced))
    on_sm = (trace.WarpStarted, trace.WarpEnded)
    return [
        e
        for e in events
        if e is not last and not (isinstance(e, on_sm) and e.cycle > last.cycle and e.sm == last.sm)
    ]


def twice(events: list[trace.Event]) -> list[trace.Event]:
    """Give a block the grid position of another."""
    blocks = [e for e in events if isinstance(e, trace.BlockPlaced)]
    return [replace(e, x=0, y=0) if e is blocks[-1] else e for e in events]


def without_end(events: list[trace.Event]) -> list[trace.Event]:
    last = next(e for e in reversed(events) if isinstance(e, trace.WarpEnded))
    return [e for e in events if e is not last]


def without_launch(events: list[trace.Event]) -> list[trace.Event]:
    return [
        e
        for e in events
        if not isinstance(
            e,
            trace.TaskLaunched
            | trace.BlockPlaced
            | trace.WarpStarted
            | trace.WarpEnded
            | trace.TaskOpened
            | trace.TaskOver,
        )
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_block, r"sums: block \(\d, 0, 0\) never ran"),
        (twice, r"sums: block \(4, 0, 0\) never ran"),
        (without_end, r"sums: of block \(\d, 0, 0\) warps \[[01]\] ran and ended"),
        (without_launch, r"long: it was not launched and ended"),
    ],
)
def test_what_is_lost_is_noticed(change: Callable, message: str):
    run = played("priority")
    with pytest.raises(Lost, match=message):
        kernel_activity(run.result, change(run.events), COMPUTE)


# The timeline


def slices(listed: Sequence[tuple[int, TrackEvent]]) -> list[tuple[str, int, int]]:
    """Name, start and end of each slice of a track; checks that they are in order and do not
    overlap."""
    begun = [(cycle, e.name) for cycle, e in listed if e.type == TrackEvent.TYPE_SLICE_BEGIN]
    ends = [cycle for cycle, e in listed if e.type == TrackEvent.TYPE_SLICE_END]
    found = [(name, start, end) for (start, name), end in zip(begun, ends, strict=True)]
    assert all(start <= end for _, start, end in found)
    assert all(one[2] <= other[1] for one, other in pairwise(found)), "slices overlap"
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """The timeline of the run with priorities."""
    file = tmp_path_factory.mktemp("timeline") / "timeline.pftrace"
    return read_back(file, {"run": done("priority")})


def test_timeline_has_each_block_once(shown: Events):
    """The timeline has the blocks and warps of the trace, each with the same start."""
    run = played("priority")
    start = run.result.start
    blocks, warps = Counter(), Counter()
    for sm in range(COMPUTE.sms):
        tracks = {names[2]: listed for names, listed in shown.items() if f"SM {sm}" in names}
        for name, listed in tracks.items():
            if name.startswith("block slot"):
                blocks.update((sm, begin) for _, begin, _ in slices(listed))
            elif name.startswith("warp "):
                place = int(name.removeprefix("warp "))
                warps.update((sm, place, begin, end) for _, begin, end in slices(listed))
        counts = [event.counter_value for _, event in tracks[timeline.WARPS]]
        assert max(counts) <= COMPUTE.sm_warps and counts[-1] == 0 == min(counts)
    placed = [e for e in run.events if isinstance(e, trace.BlockPlaced)]
    assert blocks == Counter((e.sm, e.cycle - start) for e in placed)
    started = Counter(
        (e.sm, e.warp, e.cycle - start) for e in run.events if isinstance(e, trace.WarpStarted)
    )
    ended = Counter(
        (e.sm, e.warp, e.cycle - start) for e in run.events if isinstance(e, trace.WarpEnded)
    )
    assert Counter((sm, place, begin) for sm, place, begin, _ in warps.elements()) == started
    assert Counter((sm, place, end) for sm, place, _, end in warps.elements()) == ended
    names = [
        event.name
        for track, listed in shown.items()
        if len(track) == 3 and track[2].startswith("block slot")
        for _, event in listed
        if event.name
    ]
    assert len(set(names)) == len(names) == sum(BLOCKS.values())
    assert Counter(name.partition(" ")[0] for name in names) == BLOCKS


def test_timeline_of_kernels(shown: Events):
    """A kernel's slice contains its phases, without gaps."""
    kernels = lives(done("priority").compute)
    seen = []
    for stream in ("solver", "filter", "alarm"):
        opened: list[list[Any]] = []
        for cycle, event in shown["run", timeline.KERNELS, stream]:
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                if opened:
                    opened[0].append(cycle)
                opened.append([event.name, cycle])
            else:
                name, *cycles = opened.pop()
                if not opened:
                    seen.append(name)
                    kernel = kernels[name]
                    assert cycles[0] == cycles[1] == kernel.launched and cycle == kernel.over
                    assert cycles[2:] == [kernel.opened[0], kernel.first_block, kernel.last_exit]
        assert not opened
    assert sorted(seen) == sorted(BLOCKS)


def first_warp(run: Run, record: KernelRecord) -> int:
    """Cycle of the first warp in the trace for a kernel's row."""
    mine = record.asid, record.page
    events = iter(run.events)
    opened = next(e for e in events if isinstance(e, trace.TaskOpened) and (e.asid, e.page) == mine)
    started = (e for e in events if isinstance(e, trace.WarpStarted) and e.row == opened.row)
    return next(started).cycle


def test_arrows_of_kernels(shown: Events):
    """Arrows lead from each launch in its channel to the first warp and to the end, in this
    order."""
    run, flows = played("priority"), defaultdict(list)
    for track, listed in shown.items():
        for cycle, event in listed:
            for flow in (*event.flow_ids, *event.terminating_flow_ids):
                flows[flow].append((cycle, track, event.name, bool(event.terminating_flow_ids)))
    found = {}
    for ends in flows.values():
        launch, warp, end = sorted(ends, key=lambda one: one[0])
        if launch[2].startswith("launch of "):
            found[launch[2].removeprefix("launch of ")] = launch, warp, end
        assert (launch[3], warp[3], end[3]) == (False, False, True)
    assert set(found) == set(BLOCKS)
    assert len(flows) == len(run.result.records) + len(BLOCKS)
    start = run.result.start
    for title, (launch, warp, end) in found.items():
        (record,) = (record for record in run.result.kernels if record.name == title)
        channel = f"channel {record.channel} ({record.stream})"
        assert launch[1] == end[1] == ("run", channel)
        assert warp[1][1].startswith("SM ") and warp[1][2].startswith("warp ")
        assert warp[2].startswith(f"{title} (")
        assert end[2] == f"end of {title}"
        mine = [e for e in run.events if getattr(e, "channel", None) == record.channel]
        launched = [
            e.cycle - start
            for e in mine
            if isinstance(e, trace.TaskLaunched) and e.page == record.page
        ]
        over = [
            e.cycle - start for e in mine if isinstance(e, trace.TaskOver) and e.page == record.page
        ]
        assert ([launch[0]], [end[0]]) == (launched, over)
        assert launch[0] < warp[0] < end[0]
        assert warp[0] == first_warp(run, record) - start


# Printed output


def test_what_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Tables of both runs are printed, with the numbers of the trace."""
    monkeypatch.setattr(workload, "simulate_workload", lambda file, policy, **_: played(policy))
    out = io.StringIO()
    assert workload.main(["--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("every byte verified: 12 copies, 6 kernels") == 2
    assert "each block ran exactly once, each result is numpy's" in text
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    titles = ["", "kernel", "stream", "ASID", "priority", "grid", "block", "blocks", "warps"]
    assert titles[1:] in rows
    assert ["product", "matrix multiply", "solver", "0", "0", "3x3", "4x4", "9", "9"] in rows
    runs = {policy: lives(done(policy).compute)["urgent"] for policy in ("priority", "none")}
    times = [
        n for k in runs.values() for n in (k.first_warp.start - k.launched, k.over - k.launched)
    ]
    gain = f"{times[3] / times[1]:.2f}x"
    assert ["urgent", "63", *(f"{cycles:,}" for cycles in times), gain] in rows
    for sm, life in enumerate(done("priority").compute.sms):
        assert [f"SM {sm}", f"{len(life.blocks)}", f"{life.warps}"] in [row[:3] for row in rows]
    assert "task lists (ASID 7)" in text and "Address spaces: 3, with" in text
    assert "timeline-two-applications.pftrace" in text and not capsys.readouterr().err


def test_lost_blocks_fail_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    run = played("priority")
    broken = replace(run, events=twice(run.events))
    monkeypatch.setattr(workload, "simulate_workload", lambda *_, **__: broken)
    assert workload.main(["--no-baseline"], io.StringIO()) == 1
    assert "FAILED: sums: block (4, 0, 0) never ran" in capsys.readouterr().err


def test_many_kernels_are_cut_short():
    found = done("priority").compute
    text = kernels_table(KernelActivity(found.kernels * 5, found.sms)).splitlines()
    assert len(text) == 2 + 24 + 1 and text[-1].strip() == "and 6 more"
    assert len(lives_table(KernelActivity(found.kernels * 5, found.sms)).splitlines()) == 2 + 24


def test_many_sms_are_summed_up():
    found = done("priority").compute
    many = KernelActivity(found.kernels, found.sms * 66)
    text = sms_table(many, COMPUTE).splitlines()
    assert [line.split()[0] for line in text[2:]] == ["least", "mean", "most"]


# Blocks that are stopped


@cache
def preempted(urgency: Urgency) -> Run:
    """A run of the workload of `--preempt`."""
    return simulate_workload(workload.PREEMPTED, "priority", urgency=urgency, seed=1)


@cache
def stopped(urgency: Urgency) -> Activity:
    run = preempted(urgency)
    return activity(run.result, run.events)


@pytest.mark.nightly
def test_urgent_kernels_have_blocks_stopped():
    """With SAVE, urgent kernels run while others never end, and these continue; with DRAIN they
    wait until the others are cancelled."""
    save, drain = (lives(stopped(urgency).compute) for urgency in (Urgency.SAVE, Urgency.DRAIN))
    assert save["counting"].record.cancelled and drain["counting"].record.cancelled
    urgent = [kernel for title, kernel in save.items() if title.startswith("urgent")]
    assert all(kernel.over < save["counting"].over - 10_000 for kernel in urgent)
    assert drain["urgent[0]"].first_block > 40_000, "cancel_at of the others"
    counting = save["counting"]
    assert len(counting.stops) == sum(block.restores for block in counting.blocks) >= 12
    assert counting.placed == 6 and not drain["counting"].stops
    for block in counting.stops:
        assert block.placed < block.saving < block.saved
        assert all(block.saving < warp.end <= block.saved for warp in block.warps)


@pytest.mark.nightly
def test_timeline_of_stopped_blocks(tmp_path: Path):
    """Each stop is a slice inside the slice of its block; a restored block is marked as such."""
    found = stopped(Urgency.SAVE)
    events = read_back(tmp_path / "timeline.pftrace", {"run": found})
    begun = Counter(
        event.name
        for track in events.values()
        for _, event in track
        if event.type == TrackEvent.TYPE_SLICE_BEGIN
    )
    counting = lives(found.compute)["counting"]
    assert begun[timeline.SAVING] == len(counting.stops)
    restored = [block for block in counting.blocks if block.restores]
    assert all(begun[block.name] for block in restored)
    assert {block.name for block in restored} >= {"counting (0, 0, 0) (restored)"}


def save_lost(events: list[trace.Event]) -> list[trace.Event]:
    """Remove the record that a block was stopped."""
    last = next(e for e in reversed(events) if isinstance(e, trace.BlockStopped))
    return [e for e in events if e is not last]


def save_invented(events: list[trace.Event]) -> list[trace.Event]:
    """Claim that another SM stopped a block."""
    last = next(e for e in reversed(events) if isinstance(e, trace.BlockStopped))
    return [replace(e, sm=1 - e.sm) if e is last else e for e in events]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (save_lost, r"counting: block \(\d, 0, 0\) ran 2 times"),
        (save_invented, r"counting \(\d, 0, 0\): SM \d stopped it, but does not have it"),
    ],
)
def test_lost_stops_are_noticed(change: Callable, message: str):
    run = preempted(Urgency.SAVE)
    with pytest.raises(Lost, match=message):
        kernel_activity(run.result, change(run.events), machine(run.result.workload))


@pytest.mark.nightly
def test_preemption_is_printed(monkeypatch: pytest.MonkeyPatch):
    """`--preempt save` compares both urgencies and shows the stopped blocks."""

    def simulated(file: Path, policy: str, *, urgency: Urgency, **_: Any) -> Run:
        assert (file, policy) == (workload.PREEMPTED, "priority")
        return preempted(urgency)

    monkeypatch.setattr(workload, "simulate_workload", simulated)
    out = io.StringIO()
    assert workload.main(["--preempt", "save", "--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    stops = lives(stopped(Urgency.SAVE).compute)["counting"].stops
    assert ["counting", f"{len(stops)}", f"{len(stops)}"] in [row[:3] for row in rows]
    assert text.count("Blocks with save that were stopped") == 1
    assert "Blocks with drain that" not in text
