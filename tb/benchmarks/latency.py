"""Latency of urgent copies: measurements, table and plot."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = ["NUMBERS", "SERIES", "SIZES", "URGENT", "key", "keys", "save", "table"]

NUMBERS = (1, 2, 4, 8, 16)
"""Number of queued low copies, including the running one."""

SIZES = tuple(kib << 10 for kib in (1, 4, 16, 64))
"""Bytes of a low copy."""

URGENT = 1024
"""Bytes of the urgent copy."""

_NAME = "urgent-latency"


@dataclass(frozen=True)
class Series:
    """A policy and its time slice in cycles."""

    title: str
    priorities: bool
    slice_cycles: int


SERIES = {
    "priority": Series("priorities, slices of 2,000 cycles", True, 2000),
    "baseline": Series("no priorities, slices of 2,000 cycles", False, 2000),
    "issue-order": Series("no priorities, endless slices", False, 1 << 30),
}


def key(series: str, number: int, size: int) -> str:
    """Name of one measurement."""
    return f"urgent, {series}, {number} low copies of {size >> 10} KiB"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(name, n, size) for name in SERIES for n in NUMBERS for size in SIZES]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown: one line per number and size, one column per
    series."""
    what = f"a copy of {URGENT >> 10} KiB, asked for while the first of some low copies runs"
    lines = [
        f"Cycles from doorbell to end of {what}.",
        "",
        "| low copies | of KiB | " + " | ".join(s.title for s in SERIES.values()) + " |",
        "|--:|--:|" + "--:|" * len(SERIES),
    ]
    for number in NUMBERS:
        for size in SIZES:
            cells = [str(values[key(name, number, size)]) for name in SERIES]
            lines.append(f"| {number} | {size >> 10} | {' | '.join(cells)} |")
    return "\n".join(lines)


def save(values: Mapping[str, int], folder: Path) -> None:
    """Write plot and table."""
    folder.mkdir(exist_ok=True)
    _plot(values, folder / f"{_NAME}.png")
    text = f"# Latency of an urgent copy\n\n![plot]({_NAME}.png)\n\n{table(values)}\n"
    (folder / f"{_NAME}.md").write_text(text)


def _plot(values: Mapping[str, int], file: Path) -> None:
    """Plot all measurements: one panel per series, one line per size."""
    panels = [
        Panel(
            series.title,
            "low copies queued when the urgent one is asked for",
            NUMBERS,
            {
                f"{size >> 10} KiB": [values[key(name, number, size)] for number in NUMBERS]
                for size in SIZES
            },
        )
        for name, series in SERIES.items()
    ]
    title = f"Latency of an urgent copy of {URGENT >> 10} KiB (memory latency 16)"
    save_plot(file, title, "cycles from doorbell to end", panels, "size of a low copy")
