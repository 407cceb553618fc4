"""`make sim`: example workloads on the RTL, the printed output, the timeline, and errors."""

import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

from signalbox.driver.workload import report
from signalbox.driver.workload.reader import load, parse
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.reports import timeline, workload
from signalbox.tb.reports.activity import HALTED, OWN_COPY, activity
from signalbox.tb.reports.readback import Events, read_back
from signalbox.tb.reports.turns import turns_table
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.workload import (
    RESULT,
    Progress,
    Run,
    RunError,
    machine,
    read_run,
    simulate_workload,
    with_save_places,
)

EXAMPLES = ROOT / "driver" / "workloads"
RUNLISTS = "[machine]\nrunlist_entries = 16\n"
"""With this setting, an example runs on the default machine of other tests, so it needs no build of
its own. Runlists are off after reset and then cost no cycles."""

ONE_COPY = "[[stream]]\nname = 's'\n[[copy]]\nstream = 's'\nsize = 100\n"


@cache
def example(name: str) -> Path:
    """A copy of an example that runs on the machine of other tests."""
    folder = SIM_BUILD / "examples"
    folder.mkdir(parents=True, exist_ok=True)
    file, fresh = folder / f"{name}.toml", folder / f"{name}.{os.getpid()}"
    text = (EXAMPLES / file.name).read_text()
    table = "[machine]\n"
    fresh.write_text(text.replace(table, RUNLISTS) if table in text else RUNLISTS + text)
    return fresh.replace(file)


@cache
def played(name: str, policy: str, simulator: str = "verilator") -> Run:
    """A run of an example, shared by several tests."""
    return simulate_workload(example(name), policy, seed=1, simulator=simulator)


def both(name: str) -> dict[str, Run]:
    """The run under the file's own policy, as "priority", and the baseline."""
    own = load(example(name)).policy.kind
    return {"priority": played(name, own), "none": played(name, "none")}


def test_published_order(simulator: str):
    """Copies end in the order of COPY, worked examples 1 and 2."""
    runs = {policy: played("published-order", policy, simulator) for policy in ("priority", "none")}
    orders = {policy: run.result.completion_order() for policy, run in runs.items()}
    assert orders["priority"] == ["low1", "high1", "high2", "low2", "low3"]
    assert orders["none"] == ["low1", "low2", "low3", "high1", "high2"]
    done = activity(runs["priority"].result, runs["priority"].events)
    values = [value for _, value in done.semaphores[0]]
    changes = [later for earlier, later in pairwise(values) if earlier != later]
    assert changes == [1, 0, 1, 0]
    risen = next(cycle for cycle, value in done.semaphores[0] if value == 1)
    assert done.copies[0].name == "low1"
    assert done.copies[0].start < risen < done.copies[0].end


@pytest.mark.nightly
def test_video():
    """Next to a saturating bulk stream, video frames take fewer cycles, with less jitter, for the
    same requests."""
    runs = both("video")
    with_priorities, without = runs["priority"].result, runs["none"].result
    for first, second in zip(with_priorities.records, without.records, strict=True):
        assert (first.name, first.index) == (second.name, second.index)
        assert abs(first.submitted - second.submitted) < 100
    line = report.pipeline(with_priorities.workload)
    assert line is not None
    assert list(line.stages) == ["decode", "scale", "filter", "encode"]
    urgent = report.Spread.of(line.frame_latencies(with_priorities))
    plain = report.Spread.of(line.frame_latencies(without))
    assert plain.mean / urgent.mean > 4
    assert plain.jitter / urgent.jitter > 10
    last_frame = max(r.completed for r in with_priorities.of("encode out"))
    for run in runs.values():
        done = activity(run.result, run.events)
        busy = sum(copy.end - copy.start for copy in done.copies if copy.end <= last_frame)
        assert busy > 0.9 * last_frame


def test_eight_priorities():
    runs = both("eight-priorities")
    means = defaultdict(dict)
    for policy, run in runs.items():
        for stream in run.result.workload.streams:
            latencies = [r.latency for r in run.result.records if r.stream == stream.name]
            means[stream.name][policy] = report.Spread.of(latencies).mean
    gains = [means[stream]["none"] / means[stream]["priority"] for stream in means]
    # The more urgent a stream, the larger its gain. The three most urgent ones never wait long, but
    # each copy has to fetch its translations first.
    *lower, soon, urgent, now = gains
    assert lower == sorted(lower), gains
    assert lower[0] < 1 < lower[-2] and min(soon, urgent, now) > max(2.5, lower[-1]), gains


def test_runlist(tmp_path: Path):
    """HOST-7: by its interleave level, the sensor has turns sooner than the programs that copy all
    the time, which share the rest equally; table and timeline show the turns of the trace."""
    assert machine(load(EXAMPLES / "runlist.toml")) == SIZES["default"]
    run, low = played("runlist", "none"), tmp_path / "low.toml"
    low.write_text(example("runlist").read_text().replace('interleave = "high"', ""))
    later = simulate_workload(low, "none", seed=1)
    means = [
        report.Spread.of([record.latency for record in one.result.of("sample")]).mean
        for one in (run, later)
    ]
    assert 5 * means[0] < means[1]
    done = {"none": activity(run.result, run.events)}
    turns = done["none"].turns
    assert all(first.name != second.name for first, second in pairwise(turns))
    assert all(first.end <= second.start for first, second in pairwise(turns))
    counts = Counter(turn.name for turn in turns)
    bulk = [counts[name] for name in ("camera", "backup", "logs")]
    assert counts["sensor"] >= 12 and max(bulk) - min(bulk) <= 2, counts
    rows = [line.split() for line in turns_table(run.result, {"run": turns}).splitlines()]
    shown = [row[:5] for row in rows if row[0] in counts]
    assert shown == [
        ["sensor", "high", "515", "3", str(counts["sensor"])],
        *(
            [name, "low", "1,030", "1", str(count)]
            for name, count in zip(("camera", "backup", "logs"), bulk, strict=True)
        ),
    ]
    events = read_back(tmp_path / "timeline.pftrace", done)["none", timeline.TURN]
    names = [event.name for _, event in events if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert names == [turn.name for turn in turns]
    assert balanced(events)
    flat = played("published-order", "none")
    assert not activity(flat.result, flat.events).turns


def test_runlist_is_shown():
    out = io.StringIO()
    assert workload.main([str(example("runlist")), "--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert "Scheduling: by a runlist, with room for 16 turns.\n" in text
    run = played("runlist", "none")
    done = activity(run.result, run.events)
    assert turns_table(run.result, {workload.WITHOUT: done.turns}) in text


def test_waits_are_named():
    run = played("published-order", "priority")
    done = activity(run.result, run.events)
    low, high = done.waits[0], done.waits[1]
    assert "waits for S2 == 0" in {span.name for span in low}
    assert OWN_COPY in {span.name for span in high}
    for spans in (low, high):
        ordered = sorted(spans, key=lambda span: span.start)
        assert all(a.end <= b.start for a, b in pairwise(ordered))
    assert [copy.record.completed for copy in done.copies] == pytest.approx(
        [copy.end for copy in done.copies], abs=80
    )


def test_timeline_says_what_the_trace_says(tmp_path: Path):
    """The timeline's tracks, slices, counters and arrows, read back, agree with the trace."""
    runs = both("published-order")
    done = {policy: activity(run.result, run.events) for policy, run in runs.items()}
    events = read_back(tmp_path / "timeline.pftrace", done)
    assert {track[0] for track in events} == {"priority", "none"}
    for policy, run in runs.items():
        later = [event for event in run.events if event.cycle >= run.result.start]
        check_process(policy, run, later, events)
        check_translation(policy, run, later, events)
    flows = Counter(
        flow
        for listed in events.values()
        for _, event in listed
        for flow in (*event.flow_ids, *event.terminating_flow_ids)
    )
    assert len(flows) == 10
    assert set(flows.values()) == {3}


def check_translation(policy: str, run: Run, later: list, events: Events) -> None:
    """Check the translation tracks of one run."""
    start = run.result.start

    def listed(name: str) -> list:
        return events.get((policy, timeline.TRANSLATION, name), [])

    titles = {space.asid: f"{space.name} (ASID {space.asid})" for space in run.result.spaces}
    for asid, title in titles.items():
        mine = [event for event in later if getattr(event, "asid", None) == asid]
        misses = [e.cycle - start for e in mine if isinstance(e, trace.Lookup) and not e.hit]
        shown = [(cycle, event.counter_value) for cycle, event in listed(f"{title}: L1 misses")]
        assert shown == [(0, 0), *zip(misses, range(1, len(misses) + 1), strict=True)]
        walks, count = {0: 0}, 0
        for event in mine:
            if isinstance(event, trace.Walk | trace.Walked):
                count += 1 if isinstance(event, trace.Walk) else -1
                walks[event.cycle - start] = count
        shown = [(c, e.counter_value) for c, e in listed(f"{title}: page walks under way")]
        assert dict(shown) == walks
        assert count == 0 < max(walks.values())
    invalidations = [
        (event.cycle - start, f"{event.scope.name}: {titles[event.asid]}")
        for event in later
        if isinstance(event, trace.Invalidation)
    ]
    assert invalidations == [(cycle, event.name) for cycle, event in listed("invalidations")]
    faults = [(e.cycle - start, e.asid, hex(e.va)) for e in later if isinstance(e, trace.Fault)]
    shown = []
    for cycle, event in listed("faults"):
        notes = {note.name: note for note in event.debug_annotations}
        asid, va = notes["asid"].int_value, notes["va"].string_value
        shown.append((cycle, asid, va))
        assert notes["requester"].string_value == "copy engine 0"
        cause, access = notes["cause"].string_value, notes["access"].string_value
        assert event.name == f"{cause}: {access} of {va}, {titles[asid]}"
    assert shown == faults


def check_process(policy: str, run: Run, later: list, events: Events) -> None:
    """Check the tracks of one run."""
    start = run.result.start
    starts = [event.cycle - start for event in later if isinstance(event, trace.Start)]
    ends = [event.cycle - start for event in later if isinstance(event, trace.Done)]
    engine = events[policy, timeline.engine_track(0)]
    assert balanced(engine)
    assert [cycle for cycle, event in engine if event.type == TrackEvent.TYPE_SLICE_END] == ends
    begun = [(cycle, e.name) for cycle, e in engine if e.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert begun[0] == (starts[0], "low: low1")
    assert all(cycle >= start for (cycle, _), start in zip(begun, starts, strict=True))
    for channel, name in enumerate(("channel 0 (low)", "channel 1 (high)")):
        listed = events[policy, name]
        assert balanced(listed)
        bells = [e.cycle - start for e in later if e == trace.Doorbell(e.cycle, channel)]
        assert bells == [cycle for cycle, event in listed if event.name.startswith("doorbell")]
        methods = [e for e in later if isinstance(e, trace.Method) and e.channel == channel]
        launches = [event for _, event in listed if event.name == "LAUNCH_DMA"]
        assert len(launches) == sum(method.offset == 0x300 for method in methods) > 0
    assert balanced(events[policy, timeline.FLOOR])
    counted = [
        (event.cycle - start, event.value) for event in later if isinstance(event, trace.Semaphore)
    ]
    counters = [(cycle, event.counter_value) for cycle, event in events.get((policy, "S2"), [])]
    assert counters[-len(counted) :] == counted if counted else policy == "none"


def balanced(listed: list) -> bool:
    """Whether the slices of a track neither overlap nor stay open."""
    opened, last = False, 0
    for cycle, event in listed:
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            if opened or cycle < last:
                return False
            opened, last = True, cycle
        elif event.type == TrackEvent.TYPE_SLICE_END:
            if not opened or cycle < last:
                return False
            opened, last = False, cycle
    return not opened


def test_what_is_printed(capsys: pytest.CaptureFixture):
    out = io.StringIO()
    assert workload.main([str(example("published-order")), "--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("every byte verified") == 2
    rows = [line.split() for line in text.splitlines()]
    order = [(row[1], row[4]) for row in rows if row and row[0] in set("12345") and len(row) == 7]
    assert order == [
        ("low1", "low1"),
        ("high1", "low2"),
        ("high2", "low3"),
        ("low2", "high1"),
        ("low3", "high2"),
    ]
    assert "sim_build/timeline-published-order.pftrace" in text
    assert "ui.perfetto.dev" in text
    assert (ROOT / "sim_build" / "timeline-published-order.pftrace").stat().st_size > 1000
    assert not capsys.readouterr().err


def test_fault_repair_resume(tmp_path: Path):
    """Faults agree with the trace; only work that depends on faulting copies waits."""
    run = played("fault-repair", "none")
    done = activity(run.result, run.events)
    recorded = [event for event in run.events if isinstance(event, trace.Fault)]
    assert len(run.result.faults) == 2
    for fault, access in zip(run.result.faults, ("write", "read"), strict=True):
        cycles = [
            event.cycle - run.result.start
            for event in recorded
            if event.access.name.lower() == access
        ]
        assert abs(fault.faulted - cycles[0]) < 50
        assert fault.report.startswith(f"{access} of 0x")
    assert [copy.name for copy in done.copies if copy.failed] == ["late destination", "late source"]
    assert [cause for _, _, cause in done.errors] == ["COPY_WRITE_FAULT", "COPY_READ_FAULT"]
    first = run.result.faults[0]
    halted = [span for span in done.waits[0] if span.name == HALTED]
    assert len(halted) == 2
    assert halted[0].start < first.resumed <= halted[0].end + 100
    assert run.result.of("behind")[0].completed > first.resumed
    others = [record for record in run.result.records if record.stream != "faulting"]
    assert max(record.latency for record in others) < 3000
    assert sum(first.faulted < record.completed < first.resumed for record in others) >= 4
    events = read_back(tmp_path / "timeline.pftrace", {"none": done})
    later = [event for event in run.events if event.cycle >= run.result.start]
    check_translation("none", run, later, events)
    names = [event.name for _, event in events["none", timeline.engine_track(0)]]
    assert "faulting: late destination (faulted)" in names


def test_translation_is_shown():
    """The table's numbers agree with the trace; spaces, shared addresses and faults are printed."""
    out = io.StringIO()
    assert workload.main([str(example("fault-repair")), "--seed", "1"], out) == 0
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 100
    run = played("fault-repair", "none")
    for space in run.result.spaces:
        mine = [
            event
            for event in run.events
            if event.cycle >= run.result.start and getattr(event, "asid", None) == space.asid
        ]
        kinds = Counter(type(event) for event in mine)
        hits = sum(isinstance(event, trace.Lookup) and event.hit for event in mine)
        begun = sum(event.cycle for event in mine if isinstance(event, trace.Walk))
        ended = sum(event.cycle for event in mine if isinstance(event, trace.Walked))
        lookups, walks = kinds[trace.Lookup], kinds[trace.Walk]
        title = f"{space.name} (ASID {space.asid})"
        (row,) = (line for line in text.splitlines() if line.startswith(title))
        assert row.removeprefix(title).split() == [
            f"{lookups:,}",
            f"{hits:,}",
            f"{lookups - hits:,}",
            f"{walks:,}",
            f"{(ended - begun) / walks:.1f}",
            f"{kinds[trace.Fault]:,}",
        ]
    assert "Address spaces: 2, with 49,152 bytes at the same addresses, from 0x200000 on." in text
    flat = " ".join(text.split())
    for fault in run.result.faults:
        assert fault.report in flat
    assert flat.count("Mapped and resumed in cycle") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[stream", "not TOML"),
        (ONE_COPY + "[machine]\nchannels = 65", "channels = 65 is outside its limits 1 … 64"),
        ("[[stream]]\nname = 's'\n", r"there is no [[copy]]"),
        (
            ONE_COPY.replace("100", "4000000000"),
            "MiB of memory, more than the 256 MiB that a simulation has",
        ),
    ],
)
def test_unusable_workloads(tmp_path: Path, capsys: pytest.CaptureFixture, text: str, message: str):
    file = tmp_path / "broken.toml"
    file.write_text(text)
    out = io.StringIO()
    assert workload.main([str(file)], out) == 2
    assert not out.getvalue()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_progress(monkeypatch: pytest.MonkeyPatch):
    """A slow run shows its progress even before anything has ended."""

    def stand_in(*arguments: object, progress: Callable[[Progress], None], **options: object):
        progress(Progress(0, 1, 0, 0.0))
        progress(Progress(0, 1, 2346, 233.4))
        raise RunError("far enough")

    monkeypatch.setattr(workload, "simulate_workload", stand_in)
    out = io.StringIO()
    assert workload.main([str(example("published-order"))], out) == 1
    assert "  preparing the simulation ... 0 s\n" in out.getvalue()
    assert "  0 s: cycle 2,346, 0 of 1 done, 233 cycles per second\n" in out.getvalue()


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert workload.main([str(tmp_path / "nowhere.toml")], io.StringIO()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere.toml: cannot be read" in line


def test_negative_seed(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit, match="2"):
        workload.main(["--seed=-1"])
    assert "argument --seed: '-1' is negative" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("Icarus Verilog (iverilog) is not installed"), 2),
        (RunError("frame[2]: 3 of 100 bytes are wrong"), 1),
    ],
)
def test_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, error: Exception, status: int
):
    def fail(*arguments: object, **options: object) -> Run:
        raise error

    monkeypatch.setattr(workload, "simulate_workload", fail)
    assert workload.main([str(example("published-order"))], io.StringIO()) == status
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "error"), [("failed", RunError), ("refused", WorkloadError)])
def test_errors_of_the_simulation(tmp_path: Path, kind: str, error: type[Exception]):
    outcome = {"error": {"kind": kind, "message": "channel 3 halted"}}
    (tmp_path / RESULT).write_text(json.dumps(outcome))
    with pytest.raises(error, match="channel 3 halted"):
        read_run(tmp_path, load(example("published-order")))


def test_memory_follows_the_workload():
    config = machine(parse(ONE_COPY.replace("100", "20000000")))
    assert config.trace
    assert config.memory_bytes == 1 << 26
    assert machine(load(example("published-order"))).memory_bytes == 1 << 24


NESTED = """
[machine]
save_places = 8
nested_kernels = 60
[limits]
nesting_depth = 24
[[stream]]
name = 's'
[[nested]]
stream = 's'
"""


@pytest.mark.parametrize(
    ("nested", "mebibytes"),
    [
        ("kernel = 'merge sort'\nn = 200", 16),
        ("kernel = 'merge sort'\nn = 32\ncount = 500", 16),  # 12 KiB each
        ("kernel = 'merge sort'\nn = 65536\ncount = 3", 32),  # 8.5 MiB each, mostly records
        ("kernel = 'refinement'\nn = 256\nlevels = 8", 128),  # one buffer per divided cell
    ],
)
def test_memory_of_nested_kernels(nested: str, mebibytes: int):
    """The machine has memory for the records and buffers of all kernels that may be launched."""
    assert machine(parse(NESTED + nested)).memory_bytes == mebibytes << 20


def test_too_many_nested_kernels():
    with pytest.raises(
        WorkloadError, match=r"w: it needs 4.* MiB of memory, more than the 256 MiB"
    ):
        machine(parse(NESTED + "kernel = 'refinement'\nn = 1024\nlevels = 11", "w"))


def test_memory_for_saved_blocks():
    """With --preempt, there is memory for the state of all blocks; task lists are small."""
    file = load(EXAMPLES / "many-sms.toml")
    assert machine(file).memory_bytes == 1 << 24
    saving = machine(with_save_places(file))
    assert saving.save_places * saving.place_bytes < saving.memory_bytes == 1 << 27
