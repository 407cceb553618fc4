"""Many small tasks in separate address spaces: all together, and one context at a time."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks.compute_machine import MOST_TASKS
from signalbox.tb.benchmarks.plots import Panel, save_plot
from signalbox.tb.models.timing import Timing

__all__ = ["COUNTS", "TIMING", "WARPS", "WAYS", "key", "keys", "most_key", "plot", "table"]

COUNTS = (1, 2, 4, 8, 16, 32)
"""Number of address spaces, and of tasks."""

WARPS = 2
"""Warps of a task, which is a single block; 32 tasks fill the machine."""

TIMING = Timing(
    accesses=7, store=1, stride=1024, base=0x10_0000_0000, cycles=560, spread=127, warp_bytes=64
)
"""About 5,000 cycles, with stores to two pages."""

WAYS = {
    "together": "all in one context",
    "turns": "one context at a time",
}

_TITLE = f"""\
Cycles until small tasks are over, each of an address space of its own: one block of {WARPS} warps
that last about 5,000 cycles. At once: how many ran at the same time, when all are in one context.
One context at a time: each is launched when the last one is over."""

assert max(COUNTS) <= MOST_TASKS


def key(count: int, way: str) -> str:
    """Name of one measurement."""
    return f"tasks of {count} spaces, {way}"


def most_key(count: int) -> str:
    """Name of the measurement of the maximum number of concurrent tasks."""
    return f"tasks of {count} spaces, most at once"


def keys() -> list[str]:
    """Names of all measurements."""
    cycles = [key(count, way) for count in COUNTS for way in WAYS]
    return cycles + [most_key(count) for count in COUNTS]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    lines = [
        _TITLE,
        "",
        f"| address spaces | at once | {' | '.join(WAYS.values())} | ratio |",
        "|--:|--:|--:|--:|--:|",
    ]
    for count in COUNTS:
        together, turns = (values[key(count, way)] for way in WAYS)
        most, ratio = values[most_key(count)], turns / together
        lines.append(f"| {count} | {most} | {together} | {turns} | {ratio:.1f} |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot all measurements: one line per way."""
    lines = {what: [values[key(count, way)] for count in COUNTS] for way, what in WAYS.items()}
    panel = Panel("", "address spaces, one task each", COUNTS, lines)
    save_plot(file, "Many small tasks", "cycles until all are over", [panel])
