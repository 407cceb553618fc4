"""Runs a pushbuffer written by other software on the RTL, and reports the outcome.

    python -m signalbox.tb.simulation.raw FILE [--memory IMAGE] [options]

`driver.raw.submission` describes FILE and IMAGE. The exit status is 0 if everything was executed
and memory is as the image expects, 1 if not, 2 for unusable files.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.disassembler import Method, folded
from signalbox.driver.raw.report import bound_objects
from signalbox.driver.raw.submission import ImageError, MemoryImage, load_dwords, load_image
from signalbox.hw.config import Config
from signalbox.hw.methods import HostMethod
from signalbox.hw.options import add_options, chosen, count, number, program
from signalbox.hw.top import Signalbox
from signalbox.tb.folders import PACKAGE, shown
from signalbox.tb.simulation import trace
from signalbox.tb.simulation.runner import SIMULATORS
from signalbox.tb.simulation.top import (
    LARGEST_MEMORY,
    MEMORY_BYTES,
    TRACE,
    check_memory,
    simulate_top,
)

__all__ = ["JOB", "RESULT", "Outcome", "cycles", "event_lines", "simulate_raw"]

JOB = "RAW_JOB"
"""Environment variable: JSON object with `file`, `memory` (or null), `slice` and `patience`."""

RESULT = "raw.json"
"""File in the run folder: JSON object with `refused`; or with `good`, `text`, `channel` and
`first`, the cycle of the pushbuffer's doorbell."""

_LOG = "simulation.log"

_EXAMPLE = [shown(PACKAGE / "driver" / "pushbuffers" / f"copy.{end}") for end in ("txt", "toml")]

_NO_FILE = f"""\
Which pushbuffer? Give a file of dwords, and the memory beside it:
    make raw PUSHBUFFER=file IMAGE=file, or signalbox raw file --memory file
There is an example:
    {_EXAMPLE[0]} and {_EXAMPLE[1]}
The formats are described at the top of driver/raw/submission.py."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a pushbuffer.

    Members
    -------
    good : whether everything was executed and memory is as the image expects.
    text : the report.
    events : trace of the channel as text, one line per event.
    folder : folder of the run.
    """

    good: bool
    text: str
    events: tuple[str, ...]
    folder: Path


def simulate_raw(
    file: Path,
    memory: Path | None = None,
    config: Config | None = None,
    *,
    simulator: str = "verilator",
    slice_cycles: int = 2000,
    patience: int = 20_000,
    waves: bool = False,
) -> Outcome:
    """Run the pushbuffer in `file`, with the memory image `memory`, on a machine with `config`.

    Parameters
    ----------
    config : configuration of the machine, including the size of the simulated memory. By default
        the machine has no compute engine, and `MEMORY_BYTES` bytes of memory.
    simulator : "verilator" or "icarus".
    slice_cycles : time slice of the channel, in cycles.
    patience : cycles in which the channel executes nothing, after which the run is abandoned.
    waves : record `dump.fst` in the run folder.

    Raises
    ------
    ImageError : a file is unusable.
    ValueError : a time slice or patience out of range.
    ConfigError : more memory than `LARGEST_MEMORY`.
    RuntimeError : a tool is missing, or the design did not build.
    AssertionError : the simulation failed.
    """
    load_dwords(file)
    _ = load_image(memory) if memory else MemoryImage()
    config = config or Config(sms=0, memory_bytes=MEMORY_BYTES)
    check_memory(config)
    ChannelSettings(slice_cycles=slice_cycles)
    if patience < 1:
        raise ValueError(f"patience = {patience} is not at least 1")
    job = {
        "file": str(file.resolve()),
        "memory": str(memory.resolve()) if memory else None,
        "slice": slice_cycles,
        "patience": patience,
    }
    folder = simulate_top(
        Signalbox(replace(config, trace=True)),
        "signalbox.tb.simulation.cocotb_raw",
        simulator=simulator,
        name="raw",
        env={JOB: json.dumps(job)},
        waves=waves,
        log=_LOG,
    )
    outcome = json.loads((folder / RESULT).read_text())
    if "refused" in outcome:
        raise ImageError(outcome["refused"])
    events = trace.read(folder / TRACE)
    since = [event for event in events if event.cycle >= outcome["first"]]
    lines = tuple(event_lines(since, outcome["channel"], compute=config.compute))
    return Outcome(outcome["good"], outcome["text"], lines, folder)


def cycles(events: Sequence[trace.Event], channel: int) -> tuple[int, int]:
    """Cycle of a channel's last doorbell, and cycle of its last method, passed acquire, end of a
    copy or error since then. Raises `ValueError` if the channel has no doorbell."""
    first = max(e.cycle for e in events if isinstance(e, trace.Doorbell) and e.channel == channel)
    last = first
    for event in events:
        match event:
            case (
                trace.Method(cycle, number)
                | trace.Acquire(cycle, number, True)
                | trace.Done(cycle, _, number)
                | trace.Error(cycle, number)
            ) if number == channel:
                last = max(last, cycle)
    return first, last


def event_lines(events: Iterable[trace.Event], channel: int, *, compute: bool) -> Iterable[str]:
    """Events of a channel and of the on-chip semaphores, one line each; repeated lines are folded.
    `compute` : whether the machine has a compute engine."""
    objects = bound_objects(compute)
    told = ((event, _words(event, channel, objects)) for event in events)
    return folded((str(event.cycle), words) for event, words in told if words)


def _words(event: trace.Event, channel: int, objects: dict[int, int]) -> str:
    """Description of an event; empty if it belongs to another channel. `objects` : class bound to
    each subchannel; SET_OBJECT updates it."""
    match event:
        case trace.Semaphore(_, index, value):
            return f"on-chip semaphore {index} := {value:#x}"
        case trace.Doorbell(_, number) if number == channel:
            return "doorbell"
        case trace.Method(_, number, subchannel, offset, data) if number == channel:
            if offset == HostMethod.SET_OBJECT:
                objects[subchannel] = data & 0xFFFF
            return Method(0, subchannel, offset, data, objects.get(subchannel, 0)).text
        case trace.Acquire(_, number, passed) if number == channel:
            return f"acquire {'passes' if passed else 'fails'}"
        case trace.Start(_, engine, number) if number == channel:
            return f"copy engine {engine} starts"
        case trace.Done(_, engine, number, failed) if number == channel:
            return f"copy engine {engine} {'fails' if failed else 'is done'}"
        case trace.Error(_, number, cause) if number == channel:
            return f"channel halts with {cause.name}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit status."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.simulation.raw"),
        description="Run a raw pushbuffer on the RTL and report. The memory has "
        f"{MEMORY_BYTES >> 20} MiB unless --memory-bytes is given, "
        f"{LARGEST_MEMORY >> 20} MiB at most: it is simulated in full. Without --sms it has no "
        "compute engine.",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="hexadecimal dwords (.txt) or binary, little-endian ones"
    )
    parser.add_argument("--memory", type=Path, metavar="IMAGE", help="TOML or JSON memory image")
    parser.add_argument("--simulator", choices=SIMULATORS, default="verilator")
    parser.add_argument("--slice", type=number, default=2000, metavar="N", help="cycles of a slice")
    parser.add_argument(
        "--patience",
        type=number,
        default=20_000,
        metavar="N",
        help="cycles until it counts as stuck",
    )
    parser.add_argument("--events", type=count, default=100, metavar="N", help="events to show")
    parser.add_argument("--waves", action="store_true", help="record a waveform (FST)")
    add_options(parser)
    parser.set_defaults(memory_bytes=MEMORY_BYTES, sms=0)
    args = parser.parse_args(arguments)
    if args.file is None:
        print(_NO_FILE, file=sys.stderr)
        return 2
    print("A machine that was not simulated before is built first: one to three minutes.")
    sys.stdout.flush()
    try:
        outcome = simulate_raw(
            args.file,
            args.memory,
            chosen(parser, args),
            simulator=args.simulator,
            slice_cycles=args.slice,
            patience=args.patience,
            waves=args.waves,
        )
    except (ValueError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except AssertionError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    print(outcome.text)
    print(f"Events ({min(args.events, len(outcome.events))} of {len(outcome.events)}):")
    for line in outcome.events[: args.events]:
        print(f"  {line}")
    print(f"Trace and log: {outcome.folder}")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
