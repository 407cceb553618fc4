"""Kernels of several address spaces under each placement policy: translation and run time."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from signalbox.hw.qmd import Placement
from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = [
    "BLOCKS",
    "MEASURES",
    "PAGES",
    "POLICIES",
    "SPACES",
    "TASKS",
    "TURNS",
    "WARPS",
    "key",
    "keys",
    "plot",
    "table",
]

PAGES = (12, 48)
"""Pages per space; each warp reads all of them once. A first-level TLB has 16 entries."""

SPACES, TASKS, BLOCKS, WARPS = 8, 4, 8, 2
"""Spaces, tasks per space, blocks per task, warps per block; 8 such blocks fill one of four SMs."""

POLICIES = {
    "wide": Placement.WIDE,
    "deep": Placement.DEEP,
    "affinity": Placement.AFFINITY,
}

TURNS = {1: "first time", 2: "second time"}

MEASURES = {
    "misses": "SMs' misses in L1",
    "walks": "misses in L2",
    "cycles": "cycles",
}

_TITLE = f"""\
{SPACES} address spaces, each with {TASKS} kernels of {BLOCKS} blocks of {WARPS} warps, all launched
at once on 4 SMs, memory latency 100. Every warp reads every page of its space once. The same
is done twice: the first time no translation is known. Each miss in L2 starts a walk; walks of one
page that are under way at the same time read memory once."""


def key(what: str, policy: str, pages: int, turn: int) -> str:
    """Name of one measurement."""
    return f"{SPACES} spaces of {pages} pages, {policy}, {TURNS[turn]}, {what}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [
        key(what, policy, pages, turn)
        for pages, turn in product(PAGES, TURNS)
        for policy in POLICIES
        for what in MEASURES
    ]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    reads = SPACES * TASKS * BLOCKS * WARPS
    heads = [f"{what}: {policy}" for what in MEASURES.values() for policy in POLICIES]
    lines = [
        _TITLE,
        "",
        f"| pages of a space | | reads | {' | '.join(heads)} |",
        "|--:|---|--:|" + "--:|" * len(heads),
    ]
    for pages, turn in product(PAGES, TURNS):
        cells = [
            str(values[key(what, policy, pages, turn)]) for what in MEASURES for policy in POLICIES
        ]
        lines.append(f"| {pages} | {TURNS[turn]} | {reads * pages} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot run times: one panel per pass, one line per policy."""
    panels = [
        Panel(
            title,
            "pages of each address space",
            PAGES,
            {
                policy: [values[key("cycles", policy, pages, turn)] for pages in PAGES]
                for policy in POLICIES
            },
        )
        for turn, title in TURNS.items()
    ]
    save_plot(file, f"Kernels of {SPACES} address spaces", "cycles until all are over", panels)
