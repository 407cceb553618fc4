"""`make sim`: runs a workload on the RTL, with and without priorities, and shows the results.

    python -m signalbox.tb.reports.workload [FILE] [--policy none] [--simulator icarus] [--waves]

Exit status: 0 if every byte and every block of both runs was verified, and kernels started when the
file expects it under its own policy; 1 if not; 2 if the workload or the machine is not usable as
given.
"""

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from signalbox.driver.text_table import counted, number, table
from signalbox.driver.workload import report
from signalbox.driver.workload.reader import load
from signalbox.driver.workload.records import Result, SpaceRecord
from signalbox.driver.workload.specs import Workload
from signalbox.driver.workload.toml_table import WorkloadError
from signalbox.hw import options
from signalbox.hw.config import Config
from signalbox.hw.options import program
from signalbox.hw.qmd import Urgency
from signalbox.hw.sm.port import CoreError
from signalbox.tb.folders import PACKAGE, SIM_BUILD, shown
from signalbox.tb.reports import timeline
from signalbox.tb.reports.activity import Activity, activity
from signalbox.tb.reports.expected_starts import missed
from signalbox.tb.reports.kernel_lives import Lost
from signalbox.tb.reports.kernel_tables import (
    children_table,
    gains_table,
    kernels_table,
    lives_table,
    sms_table,
    stops_table,
)
from signalbox.tb.reports.turns import turns_table
from signalbox.tb.simulation.runner import SIMULATORS, choose_seed
from signalbox.tb.simulation.workload import (
    Progress,
    Run,
    RunError,
    machine,
    simulate_workload,
    with_save_places,
)

__all__ = ["main"]

SUPPLIED = PACKAGE / "driver" / "workloads"
"""Folder of the supplied workloads. On the command line, they need neither folder nor suffix."""

_SUFFIXES = (".toml", ".json")

DEFAULT = SUPPLIED / "two-applications.toml"

PREEMPTED = SUPPLIED / "never-ending.toml"
"""Workload that `--preempt` runs by default."""

WITH, WITHOUT = "with priorities", "without priorities"
"""Names of the two runs in tables."""

_TITLES = {"priority": WITH, "count-first": WITH, "none": WITHOUT}
"""Name of the run under each policy."""

_PREEMPTION = {Urgency.SAVE: "with save", Urgency.DRAIN: "with drain"}
"""Name of the run with each urgency, if an urgency was chosen."""

_FEW_SMS = 4
"""Maximum number of SMs for which the shorter estimate of the build time is shown."""

_FEW_COPIES = 12
"""Maximum number of copies that are listed individually."""


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Run the command. Returns its exit status."""
    chosen = _parser().parse_args(arguments)
    try:
        return _run(chosen, out or sys.stdout)
    except WorkloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (CoreError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RunError, Lost) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.reports.workload"),
        description="Run a workload on the RTL, with priorities and without.",
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=_file,
        help=f"workload: a file, or one of {', '.join(_supplied())}; default: two-applications",
    )
    parser.add_argument("--policy", choices=tuple(_TITLES), help="instead of the file's own")
    parser.add_argument(
        "--preempt",
        choices=[one.name.lower() for one in _PREEMPTION],
        help="urgent kernels have less urgent blocks stopped and saved, or wait for their ends; "
        "compared with the latter; default workload: never-ending",
    )
    parser.add_argument("--no-baseline", action="store_true", help="one run only")
    parser.add_argument("--simulator", choices=SIMULATORS, default=SIMULATORS[0])
    parser.add_argument(
        "--seed",
        type=options.count,
        help="of the random data, not of the cycles; default: a fresh one",
    )
    options.add_core(parser)
    parser.add_argument("--waves", action="store_true", help="record waveforms (FST)")
    return parser


def _supplied() -> list[str]:
    """Names of the supplied workloads."""
    return sorted(file.stem for end in _SUFFIXES for file in SUPPLIED.glob(f"*{end}"))


def _file(name: str) -> Path:
    """File of a workload. `name` : its path, or the name of a supplied workload."""
    supplied = [SUPPLIED / f"{name}{end}" for end in _SUFFIXES]
    found = next((file for file in supplied if file.is_file()), None)
    return found if found and not Path(name).exists() else Path(name)


def _run(chosen: argparse.Namespace, out: TextIO) -> int:
    urgency = Urgency[chosen.preempt.upper()] if chosen.preempt else None
    chosen.file = chosen.file or (PREEMPTED if chosen.preempt else DEFAULT)
    workload = load(chosen.file)
    if urgency is not None:
        workload = with_save_places(workload)
    if chosen.core is not None and not workload.launches:
        raise WorkloadError(f"{workload.name}: it has no kernels, so no SMs are built for a core")
    config = machine(workload)  # rejects unusable sizes before anything is printed
    seed = choose_seed(chosen.seed)
    _introduce(workload, config, chosen, seed, out)
    planned = _runs(chosen, workload.policy.kind, urgency)
    own = next((title for title, run in planned.items() if run == (workload.policy.kind, None)), "")
    if not own and any(spec.starts for spec in workload.kernels):
        print(
            "Starts that the file expects are not checked: they are those of its own policy, "
            f"{workload.policy.kind}.",
            file=out,
        )
    runs: dict[str, Run] = {}
    for title, settings in planned.items():
        print(f"\n{title}:", file=out, flush=True)
        runs[title] = _simulate(chosen, *settings, seed, out)
    done = {title: activity(run.result, run.events) for title, run in runs.items()}
    _show(workload, runs, done, out)
    file = SIM_BUILD / f"timeline-{workload.name}.pftrace"
    timeline.write(file, done)
    _show_files(file, runs, out)
    if own and (wrong := missed(workload, done[own].compute)):
        raise RunError("; ".join(wrong))
    return 0


def _runs(
    chosen: argparse.Namespace, kind: str, urgency: Urgency | None
) -> dict[str, tuple[str, Urgency | None]]:
    """Policy and urgency of each run by its name, the baseline last."""
    policy = chosen.policy or kind
    if urgency is None:
        runs = {_TITLES[one]: (one, urgency) for one in (policy, "none")}
    else:
        runs = {_PREEMPTION[one]: (policy, one) for one in (urgency, Urgency.DRAIN)}
    return dict([*runs.items()][: 1 if chosen.no_baseline else 2])


def _introduce(
    workload: Workload, config: Config, chosen: argparse.Namespace, seed: int, out: TextIO
) -> None:
    copies = sum(copy.count for copy in workload.copies)
    size = sum(copy.count * copy.size for copy in workload.copies)
    work = f"{counted(copies, 'copy', 'copies')} of {counted(size, 'byte')}"
    if workload.launches:
        work += f", {counted(sum(launch.count for launch in workload.launches), 'kernel')}"
    streams = counted(len(workload.streams), "stream")
    print(f"Workload {workload.name}: {work}, {streams} (seed {seed})", file=out)
    print(
        f"Machine: {counted(config.channels, 'channel')}, "
        f"{counted(config.copy_engines, 'copy engine')}, {config.data_width}-bit memory port, "
        f"slices of {counted(workload.policy.slice, 'cycle')}; "
        f"on {chosen.simulator.capitalize()}",
        file=out,
    )
    if workload.policy.scheduling == "runlist":
        room = counted(config.runlist_entries, "turn")
        print(f"Scheduling: by a runlist, with room for {room}.", file=out)
    if workload.launches:
        core = "timing cores" if config.timing_core else counted(config.lanes, "lane")
        if chosen.core is not None:
            core = f"core {getattr(chosen.core, '__qualname__', chosen.core)}"
        print(
            f"SMs: {config.sms}, each with {counted(config.sm_warps, 'warp')}, "
            f"{counted(config.sm_blocks, 'block slot')}, {core}.",
            file=out,
        )
        if (chosen.policy or workload.policy.kind) == "none":
            print("Policy none: all kernels run at priority 0, whatever the file says.", file=out)
    print(f"Memory: {config.memory_bytes >> 20} MiB.", file=out)
    minutes = "one to three minutes" if config.sms <= _FEW_SMS else "many minutes"
    print(f"A machine that was not simulated before is built first: {minutes}.", file=out)
    out.flush()


def _simulate(
    chosen: argparse.Namespace, policy: str, urgency: Urgency | None, seed: int, out: TextIO
) -> Run:
    """Simulate one run, printing its progress."""

    began = time.monotonic()

    def show(progress: Progress) -> None:
        passed = f"{time.monotonic() - began:.0f} s"
        if progress.cycle:
            print(_progress_line(progress, passed), file=out, flush=True)
        else:
            print(f"  preparing the simulation ... {passed}", file=out, flush=True)

    with contextlib.redirect_stdout(io.StringIO()):
        run = simulate_workload(
            chosen.file,
            policy,
            urgency=urgency,
            seed=seed,
            simulator=chosen.simulator,
            waves=chosen.waves,
            core=chosen.core,
            progress=show,
        )
    work = counted(len(run.result.records), "copy", "copies")
    if run.result.kernels:
        work += f", {counted(len(run.result.kernels), 'kernel')}"
    cycles = counted(run.result.total_cycles, "cycle")
    print(
        f"  all done, every byte verified: {work} in {cycles} ({time.monotonic() - began:.0f} s)",
        file=out,
        flush=True,
    )
    return run


def _progress_line(progress: Progress, passed: str) -> str:
    """Text of a run's progress. The present cycle is shown too, as all work may complete only near
    the end. `passed` : text of the time that has passed."""
    total = number(progress.total)
    return (
        f"  {passed}: cycle {number(progress.cycle)}, "
        f"{progress.done} of {total} done, "
        f"{number(progress.rate)} cycles per second"
    )


# Tables


def _show(workload: Workload, runs: dict[str, Run], done: dict[str, Activity], out: TextIO) -> None:
    results = {title: run.result for title, run in runs.items()}
    if workload.launches:
        _show_kernels(workload, done, out)
    line = report.pipeline(workload)
    if line is not None:
        print(
            f"\nPipeline of {line.frames} frames through {', '.join(line.stages)}; latencies in "
            "cycles from when a stage\ncould begin (its input is complete) to its last byte; "
            "jitter = largest - smallest:\n",
            file=out,
        )
        print(report.stages_table(line, results), file=out)
        print("\nLatency of every frame, by stage:\n", file=out)
        print(report.frames_table(line, results), file=out)
    if len(next(iter(results.values())).records) <= _FEW_COPIES:
        print("\nCopies in the order of their ends (cycles from the start of the run):\n", file=out)
        print(report.order_table(results), file=out)
    if workload.copies:
        print("\nLatency of copies by stream, in cycles (lower priority numbers are more", file=out)
        print("urgent, as in CUDA), from when a copy could begin to its last byte:\n", file=out)
        print(report.streams_table(results), file=out)
    if workload.policy.scheduling == "runlist":
        first = next(iter(results.values()))
        print(
            "\nTurns of address spaces by the runlist, and cycles in which they had the", file=out
        )
        print("time slice (adjacent turns of one space count as one):\n", file=out)
        print(turns_table(first, {title: run.turns for title, run in done.items()}), file=out)
    print("\nThe machine:\n", file=out)
    print(_machine_table(workload, runs, done), file=out)
    _show_translation(results, done, out)


def _show_kernels(workload: Workload, done: dict[str, Activity], out: TextIO) -> None:
    """Print the launches, their outcome, and the load of SMs."""
    runs = {title: run.compute for title, run in done.items()}
    first = next(iter(runs.values()))
    if workload.config.timing_core:
        print("\nKernels; each block ran exactly once (SMs that only take time):\n", file=out)
    else:
        print("\nKernels; each block ran exactly once, each result is numpy's:\n", file=out)
    print(kernels_table(first), file=out)
    print(
        "\nCycles from each launch to its first warp and to its end (63 is the most urgent):\n",
        file=out,
    )
    print(gains_table(runs), file=out)
    for title, run in runs.items():
        print(
            f"\nKernels {title}: when they were launched, and cycles from then on (steps: A",
            file=out,
        )
        print(
            "room for a block, B room for a warp, C no room, but less urgent blocks there):\n",
            file=out,
        )
        print(lives_table(run), file=out)
        if children := children_table(run):
            print(
                f"\nKernels {title} launched by kernels, by depth, with cycles from the launch:\n",
                file=out,
            )
            print(children, file=out)
        if stops := stops_table(run):
            print(f"\nBlocks {title} that were stopped, and continued later:\n", file=out)
            print(stops, file=out)
        print(f"\nSMs {title}, from the first warp to the end of the last:\n", file=out)
        print(sms_table(run, workload.config), file=out)


def _show_translation(results: dict[str, Result], done: dict[str, Activity], out: TextIO) -> None:
    """Print the overlap of address spaces, the translations of each, and faults."""
    spaces = next(iter(results.values())).spaces
    print(f"\nAddress spaces: {_spaces_line(spaces)}.", file=out)
    for title, run in done.items():
        print(f"\nTranslation {title} (L1: first-level TLBs; walks in cycles):\n", file=out)
        print(_translation_table(run), file=out)
    for title, result in results.items():
        if result.faults:
            print(f"\nFaults {title}:\n", file=out)
            print(report.faults(result), file=out)


def _spaces_line(spaces: Sequence[SpaceRecord]) -> str:
    """Sentence about the number of address spaces, and the size of the virtual addresses that they
    share."""
    spaces = [space for space in spaces if space.addresses]
    common = report.common_addresses(spaces)
    if len(spaces) == 1 or not common:
        return str(len(spaces))
    size = counted(sum(last + 1 - first for first, last in common), "byte")
    return f"{len(spaces)}, with {size} at the same addresses, from {common[0][0]:#x} on"


def _translation_table(run: Activity) -> str:
    """Table of look-ups, hits, misses, walks and faults of every address space."""
    rows = [
        (
            space.title,
            number(space.lookups),
            number(space.hits),
            number(len(space.misses)),
            number(len(space.begun)),
            f"{space.walk_cycles:.1f}",
            number(len(space.faults)),
        )
        for space in run.translation.spaces.values()
    ]
    head = ("space", "look-ups", "L1 hits", "L1 misses", "walks", "mean walk", "faults")
    return table(rows, head)


def _machine_table(workload: Workload, runs: dict[str, Run], done: dict[str, Activity]) -> str:
    """Table of total time, use of the engines, and simulation speed."""
    rows: list[list[str]] = [["total cycles"]]
    rows[0] += [number(run.result.total_cycles) for run in runs.values()]
    for engine in range(workload.config.copy_engines):
        row = [f"copy engine {engine} busy"]
        for title, run in runs.items():
            busy = done[title].busy_cycles(engine) / run.result.total_cycles
            row.append(f"{100 * busy:.1f} %")
        rows.append(row)
    rows.append(["bytes per cycle"])
    rows[-1] += [f"{r.result.total_bytes / r.result.total_cycles:.2f}" for r in runs.values()]
    rows.append(["simulated cycles per second"])
    rows[-1] += [number(run.rate) if run.rate else "-" for run in runs.values()]
    return table(rows, ["", *runs])


def _show_files(file: Path, runs: dict[str, Run], out: TextIO) -> None:
    print(f"\nTimeline: {shown(file)}", file=out)
    print(
        "  Open https://ui.perfetto.dev in a browser and drop the file there (it stays on your\n"
        "  machine): channels, waits, semaphores, copy engines, kernels, blocks and warps on SMs,\n"
        "  and translation of every run, 1 ns = 1 cycle.\n"
        "  In the timeline a copy ends when its release is answered,\n"
        "  in the tables when it is written.",
        file=out,
    )
    for title, run in runs.items():
        if run.waves is not None:
            print(f"Waveform {title}: {shown(run.waves)}", file=out)


if __name__ == "__main__":
    sys.exit(main())
