"""Priorities of streams with nested launches: number of levels for streams, and an urgent parent
beside low work; tables and plot."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.driver.compute.priority_bands import PriorityBands
from signalbox.hw.config import NESTING, PRIORITIES
from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = [
    "BLOCKS",
    "IDLE",
    "LENGTHS",
    "THREADS",
    "WAYS",
    "WORDS",
    "key",
    "keys",
    "levels",
    "plot",
    "table",
]

LENGTHS = (300, 1000, 3000, 10_000)
"""Cycles that a block of the low kernel computes."""

WAVES = 4
BLOCKS, THREADS = 6 * WAVES, 64
"""Blocks of the low kernel, and threads of each: six blocks fill the machine."""

WORDS = 64
"""Sums computed by each of the urgent kernel's two children."""

WAYS = {"bands": "its stream's priority", "lowest": "lowest priority"}
"""Priority of the urgent parent."""

IDLE = "urgent parent, idle machine"
"""Name of the cycles of the urgent kernel on an idle machine."""

_WHAT = {"urgent": "urgent kernel", "low": "low kernel"}


def key(what: str, way: str, length: int) -> str:
    """Name of one measurement."""
    return f"urgent parent, {_WHAT[what]}, {WAYS[way]}, low blocks of {length}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [IDLE, *(key(what, way, n) for what in _WHAT for way in WAYS for n in LENGTHS)]


# -- levels ----------------------------------------------------------------------------------------

_LEVELS = f"""\
Stream priorities that have a device priority of their own, of {PRIORITIES} device priorities, by
nesting depth. Bands: those of this design, as wide as the depth that the application sets; given
in advance (`PriorityBands.table`) or on demand (`PriorityBands.of`), there are as many. Bands for
the deepest: of {NESTING}, whatever the depth, so that the application need not set it. One block
for all children: the top {NESTING - 1} device priorities are reserved for them. That leaves more
to streams than bands at any depth above 1, but the children of the least urgent stream go before
the kernels of the most urgent one."""


def levels(depth: int) -> int:
    """Number of stream priorities that have a device priority of their own."""
    bands = PriorityBands(PRIORITIES, depth)
    advance, demand = set(bands.table), {bands.of(rank) for rank in range(PRIORITIES)}
    assert advance == demand, (depth, advance, demand)
    return len(demand)


def _levels_table() -> str:
    depths = range(1, NESTING + 1)
    fixed, block = levels(NESTING), PRIORITIES - (NESTING - 1)
    lines = [
        _LEVELS,
        "",
        "| nesting depth | bands | bands for the deepest | one block for all children |",
        "|--:|--:|--:|--:|",
    ]
    lines += [f"| {depth} | {levels(depth)} | {fixed} | {block} |" for depth in depths]
    return "\n".join(lines)


# -- urgent parent ---------------------------------------------------------------------------------

_URGENT = f"""\
A kernel of an urgent stream launches two children, vector additions of {WORDS // 32} blocks each,
and waits for them, while a kernel of the least urgent stream fills the machine: {BLOCKS} blocks of
{THREADS // 32} warps, {BLOCKS // WAVES} at a time. Rows: cycles for which each of these blocks
computes. Columns: cycles from the doorbell to the end of the urgent kernel and its children, and
from the doorbell to the end of the low kernel. Its stream's priority: the urgent kernel has that
of its stream's band. Lowest priority: the baseline, which launches every kernel that has children
at the lowest device priority, here that of the low kernel, so that the urgent kernel waits for all
of the low one's blocks. Two SMs of the supplied core, memory latency 16; with nested launches,
blocks of lower priority are stopped for more urgent ones."""


_IDLE = "On an idle machine the urgent kernel takes {} cycles."


def table(values: Mapping[str, int]) -> str:
    """Both tables in Markdown."""
    return f"{_urgent_table(values)}\n\n{_levels_table()}"


def _urgent_table(values: Mapping[str, int]) -> str:
    heads = [f"{what}: {way}" for what in _WHAT.values() for way in WAYS.values()]
    lines = [
        f"{_URGENT}\n\n{_IDLE.format(values[IDLE])}",
        "",
        f"| low blocks compute for | {' | '.join(heads)} | urgent: gain |",
        "|--:|" + "--:|" * (len(heads) + 1),
    ]
    for length in LENGTHS:
        cells = [values[key(what, way, length)] for what in _WHAT for way in WAYS]
        gain = cells[1] / cells[0]
        lines.append(f"| {length} | {' | '.join(map(str, cells))} | {gain:.1f}x |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot both kernels: one panel each, one line per way."""
    panels = [
        Panel(
            title,
            "cycles that a block of the low kernel computes",
            LENGTHS,
            {WAYS[way]: [values[key(what, way, n)] for n in LENGTHS] for way in WAYS},
        )
        for what, title in _WHAT.items()
    ]
    save_plot(
        file, "An urgent parent beside a low kernel", "cycles", panels, "priority of the parent"
    )
