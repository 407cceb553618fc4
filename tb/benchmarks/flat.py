"""Algorithms whose kernels launch kernels, compared with their flat versions: measurements, table
and plot."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = ["CASES", "LATENCIES", "REACTIONS", "WAYS", "key", "keys", "plot", "table", "waits_key"]

LATENCIES = (16, 64, 200)
"""Memory latencies, of reads and of writes."""

SIZES = {
    "merge sort": ("words", 64, 128),
    "refinement": ("words a side", 16, 32),
    "breadth-first search": ("vertices", 48, 192),
}
"""Unit of each algorithm's input; a small and a large size in these units."""

CASES = tuple(
    case
    for name, (_, small, large) in SIZES.items()
    for case in ((name, small, LATENCIES[0]), *((name, large, latency) for latency in LATENCIES))
)
"""Algorithm, size and memory latency of the runs."""

REACTIONS = (0, 1000)
"""Cycles from an interrupt until the host acts."""

WAYS = {"nested": "nested", **{f"flat {n}": f"flat, host reacts in {n}" for n in REACTIONS}}


def key(way: str, name: str, size: int, latency: int) -> str:
    """Name of the cycles of one run."""
    return f"{name} of {size}, {way}, latency {latency}"


def waits_key(name: str, size: int) -> str:
    """Name of the number of times that the host of the flat version waits for the machine."""
    return f"{name} of {size}, flat, waits of the host"


def keys() -> list[str]:
    """Names of all measurements."""
    found = [key(way, *case) for case in CASES for way in WAYS]
    return found + list(dict.fromkeys(waits_key(name, size) for name, size, _ in CASES))


_TITLE = """\
Algorithms of `driver/nested` and their flat versions, which do the same work with the same code
per block: cycles from the first doorbell to the end of the last kernel, on two SMs of the
supplied core. In the nested versions the host launches one kernel. In the flat ones it launches
each level, through the same driver: the sort, whose levels are known before, all at once; the
others when it has read a result of the level before: which cells are rough, whether a vertex was
found. Each such wait within the measured time is a round trip.

Python takes no cycles in a simulation, nor does the host's access to memory. So the time of a
real host between an interrupt and the next doorbell is a parameter: it notices each interrupt
that many cycles late. With 0, only its register accesses take time. Equal at: with this parameter
both versions would take as long. Not included, as they are made before: task records of the nested
versions, one for each kernel that may be launched, and tables of the flat ones. Before each
measured run, the version ran once.

Here the nested versions are slower: by the time of launches, one after the other; of the program
and arguments, which each kernel reads anew on each SM; and of blocks that are stopped for more
urgent children, on SMs with room for two to three blocks."""


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    heads = [*WAYS.values(), *(f"nested ÷ flat, {n}" for n in REACTIONS), "round trips", "equal at"]
    lines = [
        _TITLE,
        "",
        f"| algorithm | memory latency | {' | '.join(heads)} |",
        "|---|--:|" + "--:|" * len(heads),
    ]
    for name, size, latency in CASES:
        cells = [f"{name}, {size} {SIZES[name][0]}", latency, *_row(values, name, size, latency)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _row(values: Mapping[str, int], name: str, size: int, latency: int) -> list[object]:
    """Cells of one run: cycles, ratios, round trips, and the reaction time at which both versions
    are equal."""
    nested, *flat = [values[key(way, name, size, latency)] for way in WAYS]
    trips = values[waits_key(name, size)] - 1
    equal = round((nested - flat[0]) / trips) if trips else "–"
    return [nested, *flat, *(f"{nested / one:.2f}" for one in flat), trips, equal]


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the larger sizes against the memory latency: one panel per algorithm."""
    panels = [
        Panel(
            f"{name}, {size} {unit}",
            "memory latency",
            LATENCIES,
            {
                title: [values[key(way, name, size, latency)] for latency in LATENCIES]
                for way, title in WAYS.items()
            },
        )
        for name, (unit, _, size) in SIZES.items()
    ]
    save_plot(file, "Nested and flat", "cycles", panels)
