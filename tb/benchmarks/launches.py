"""Duration of a launch on an idle machine: measurements, table and plot."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = ["LATENCIES", "NUMBERS", "STEPS", "key", "keys", "plot", "table"]

LATENCIES = (16, 64, 200)
"""Memory latencies, of reads and of writes."""

NUMBERS = {0: "cold", 2: "warm"}
"""The measured launches of a task: the first and the third. The first comes directly after a bind
of its address space; even the second launch still finds no cached translations."""

STEPS = {
    "doorbell": "doorbell → the task unit takes the launch",
    "slot": "→ the record is read and checked, the task has its slot",
    "block": "→ the first block is valid at an SM",
    "warp": "→ its core has read what the kernel is, the first warp starts",
    "over": "→ the task is over: 4 blocks of 4 warps that end at once",
}
"""Cycles of each step are counted from the previous one."""

_SHORT = {
    "doorbell": "launch taken",
    "slot": "slot",
    "block": "first block",
    "warp": "first warp",
    "over": "task over",
}

_INNER = ("slot", "block", "warp")

_TITLE = """\
Cycles of a launch on an idle machine, by memory latency. Cold: the first launch, its address space
is bound before, and no translation is known. Warm: the same task again."""


def key(step: str, latency: int, number: int) -> str:
    """Name of one measurement."""
    return f"launch, {step}, latency {latency}, {NUMBERS[number]}"


def _columns() -> list[tuple[int, int]]:
    return [(latency, number) for number in NUMBERS for latency in LATENCIES]


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(step, *column) for column in _columns() for step in STEPS]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    heads = [f"{NUMBERS[number]}, {latency}" for latency, number in _columns()]
    lines = [_TITLE, "", f"| what | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for step, what in STEPS.items():
        cells = [str(values[key(step, *column)]) for column in _columns()]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    sums = [str(sum(values[key(step, *column)] for step in _INNER)) for column in _columns()]
    lines.append(f"| launch taken → first warp | {' | '.join(sums)} |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot accumulated cycles: one panel per launch, one line from its doorbell to each step."""
    panels = []
    for number, title in NUMBERS.items():
        lines, sums = {}, dict.fromkeys(LATENCIES, 0)
        for step in STEPS:
            sums = {n: before + values[key(step, n, number)] for n, before in sums.items()}
            lines[_SHORT[step]] = list(sums.values())
        panels.append(Panel(title, "memory latency", LATENCIES, lines))
    save_plot(file, "A launch on an idle machine", "cycles from the doorbell", panels)
