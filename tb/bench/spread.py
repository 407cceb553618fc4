"""Kernels of several address spaces by policy of placement: translation and run time."""

from collections.abc import Mapping

from hw.qmd import Placement

__all__ = [
    "BLOCKS",
    "MEASURES",
    "PAGES",
    "POLICIES",
    "SPACES",
    "TASKS",
    "WARPS",
    "key",
    "keys",
    "table",
]

PAGES = (4, 12, 48)
"""Of a space; all its warps read all of them once. A first level has 16 entries."""

SPACES, TASKS, BLOCKS, WARPS = 8, 4, 8, 2
"""Tasks of each space, blocks of each; so many blocks fill one of four SMs."""

POLICIES = {
    "wide": Placement.WIDE,
    "deep": Placement.DEEP,
    "affinity": Placement.AFFINITY,
}

MEASURES = {
    "misses": "misses in L1",
    "walks": "walks",
    "cycles": "cycles",
}

_TITLE = f"""\
{SPACES} address spaces, each with {TASKS} kernels of {BLOCKS} blocks of {WARPS} warps, all launched
at once on 4 SMs, memory latency 100. Every warp reads every page of its space once. It is all done
twice, and the second time is measured."""


def key(what: str, policy: str, pages: int) -> str:
    """Name of one measurement."""
    return f"{SPACES} spaces of {pages} pages, {policy}, {what}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(what, policy, n) for n in PAGES for policy in POLICIES for what in MEASURES]


def table(values: Mapping[str, int]) -> str:
    """All measurements in Markdown."""
    reads = SPACES * TASKS * BLOCKS * WARPS
    heads = [f"{what}: {policy}" for what in MEASURES.values() for policy in POLICIES]
    lines = [
        _TITLE,
        "",
        f"| pages of a space | reads | {' | '.join(heads)} |",
        "|--:|--:|" + "--:|" * len(heads),
    ]
    for pages in PAGES:
        cells = [str(values[key(what, policy, pages)]) for what in MEASURES for policy in POLICIES]
        lines.append(f"| {pages} | {reads * pages} | {' | '.join(cells)} |")
    return "\n".join(lines)
