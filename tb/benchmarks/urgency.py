"""An urgent kernel on a machine full of long blocks: measurements, table and plot."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from signalbox.tb.benchmarks.plots import Panel, save_plot
from signalbox.tb.models.timing import Timing

__all__ = [
    "ARRIVALS",
    "LENGTHS",
    "LOW_BLOCKS",
    "LOW_WARPS",
    "POLICIES",
    "URGENT",
    "URGENT_BLOCKS",
    "URGENT_WARPS",
    "WAVES",
    "Policy",
    "key",
    "keys",
    "low_timing",
    "plot",
    "table",
]

LENGTHS = (100, 300, 1000, 3000, 10_000)
"""Mean duration of the low kernel's warps in cycles; durations are spread evenly over a range about
as large as the mean."""

LOW_WARPS, WAVES = 5, 8
LOW_BLOCKS = 12 * WAVES
"""Four SMs have room for 12 such blocks: three on each SM, plus one warp."""

URGENT_BLOCKS, URGENT_WARPS = 4, 4
URGENT = Timing(cycles=50)

ARRIVALS = (1.5, 2.37, 3.23, 4.11)
"""Arrivals of urgent kernels, in multiples of the length, after the start of the first low warp."""


@dataclass(frozen=True)
class Policy:
    """A placement policy.

    Members
    -------
    urgent, other : priorities of the urgent kernels, and of the kernel with a warp on every SM.
    barrier : whether urgent blocks have a barrier.
    """

    title: str
    urgent: int
    other: int
    barrier: bool


LOW = 1
"""Priority of the low kernel."""

POLICIES = {
    "arrival": Policy("first come first served", LOW, LOW, False),
    "whole": Policy("priority, whole blocks", 10, 10, True),
    "design": Policy("this design", 10, LOW, False),
}
"""Whole blocks: blocks with a barrier skip step B, and a warp of equal priority on every SM
excludes step C, so that only step A places them."""

_WHAT = {"first": "to its first warp", "last": "to its last warp", "worst": "to its first, worst"}

_TITLE = f"""\
Cycles from the launch of an urgent kernel of {URGENT_BLOCKS} blocks of {URGENT_WARPS} warps, on 4
SMs full of a low kernel ({LOW_BLOCKS} blocks of {LOW_WARPS} warps), by how long its warps last; in
brackets: divided by those of this design. Mean of {len(ARRIVALS)} launches. First come: all are
equally urgent, and the low kernel's blocks are placed before. Whole blocks: the urgent ones have a
barrier, and a warp of equal priority is on every SM, so that only step A places them; such a warp,
but of low priority, is there under the other policies, too."""


def low_timing(length: int) -> Timing:
    """Timing of the low kernel's warps."""
    spread = (1 << length.bit_length() - 1) - 1
    return Timing(cycles=length - spread // 2, spread=spread)


def key(what: str, policy: str, length: int) -> str:
    """Name of one measurement."""
    return f"urgent kernel, {what}, {policy}, low warps of {length}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(what, policy, n) for policy in POLICIES for n in LENGTHS for what in _WHAT]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    heads = [
        f"{_WHAT[what]}: {policy.title}"
        for what in ("first", "last")
        for policy in POLICIES.values()
    ]
    lines = [
        _TITLE,
        "",
        f"| low warps last | {' | '.join(heads)} | worst first warp of this design |",
        "|--:|" + "--:|" * (len(heads) + 1),
    ]
    for length in LENGTHS:
        cells = []
        for what in ("first", "last"):
            least = values[key(what, "design", length)]
            for policy in POLICIES:
                value = values[key(what, policy, length)]
                ratio = f" ({value / least:.1f})" if policy != "design" else ""
                cells.append(f"{value}{ratio}")
        cells.append(str(values[key("worst", "design", length)]))
        lines.append(f"| {length} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the means: one panel for the first warp, one for the last, one line per policy."""
    panels = [
        Panel(
            f"launch {_WHAT[what]}",
            "cycles that a warp of the low kernel lasts",
            LENGTHS,
            {
                policy.title: [values[key(what, name, length)] for length in LENGTHS]
                for name, policy in POLICIES.items()
            },
        )
        for what in ("first", "last")
    ]
    save_plot(file, "An urgent kernel on four SMs full of a low one", "cycles, mean", panels)
