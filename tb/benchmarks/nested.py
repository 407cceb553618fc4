"""Launches of kernels by kernels: measurements, table and plot (page 40, what to measure)."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = ["COUNTS", "LATENCIES", "STEPS", "key", "keys", "plot", "table"]

LATENCIES = (1, 16, 64, 200)
"""Memory latencies, of reads and of writes."""

COUNTS = (1, 16)
"""Children that a warp launches, one after the other."""

STEPS = {
    "answer": "first launch → last answer",
    "begins": "→ the first instruction of the last child",
    "joined": "→ `join` has returned",
}
"""Cycles from the instruction before the first launch."""

_TITLE = """\
Cycles of launches by a warp of the supplied core, on an idle compute engine of two SMs, by memory
latency. From the instruction before the first `launch`: until the last one has its answer, until
the last child executes its first instruction, and until `join` has returned. The children, of one
warp, store a word and end. Last line: cycles per child of a warp that launches 16 of them. The
memory of the task unit and of the SMs accepts each beat at once; addresses are not translated. A
launch reads a record of 256 bytes, and does so again when the child gets its slot, unless that is
at once; a child reads its program and its arguments."""


def key(step: str, count: int, latency: int) -> str:
    """Name of one measurement."""
    return f"nested launch, {step}, {count} children, latency {latency}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(step, n, latency) for step in STEPS for n in COUNTS for latency in LATENCIES]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    columns = [(count, latency) for count in COUNTS for latency in LATENCIES]
    heads = [f"{count} × {latency}" for count, latency in columns]
    lines = [_TITLE, "", f"| children × latency | {' | '.join(heads)} |"]
    lines.append("|---|" + "--:|" * len(heads))
    for step, what in STEPS.items():
        cells = [str(values[key(step, *column)]) for column in columns]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    most = COUNTS[-1]
    each = [f"{values[key('joined', most, latency)] / most:.0f}" for latency in LATENCIES]
    lines.append(f"| per child | {' | '.join([*[''] * len(LATENCIES), *each])} |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the steps against the memory latency: one panel per number of children."""
    panels = [
        Panel(
            "1 child" if count == 1 else f"{count} children",
            "memory latency",
            LATENCIES,
            {step: [values[key(step, count, latency)] for latency in LATENCIES] for step in STEPS},
        )
        for count in COUNTS
    ]
    save_plot(file, "Kernels that launch kernels", "cycles from the first launch", panels)
