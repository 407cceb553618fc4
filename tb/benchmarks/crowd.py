"""Launches by all warps of all SMs at once: measurements, table and plot (page 40, what to
measure)."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.tb.benchmarks import nested
from signalbox.tb.benchmarks.nested import LATENCIES
from signalbox.tb.benchmarks.plots import Panel, save_plot
from signalbox.tb.testbench.configs import CROWDS

__all__ = ["CHILDREN", "STEPS", "blocks", "children", "key", "keys", "plot", "table"]

CHILDREN = 4
"""Children that each warp launches, one after the other."""

STEPS = {
    "answer": "first launch → last answer",
    "begins": "→ all children have begun",
    "joined": "→ the last `join` has returned",
}
"""Cycles from the earliest instruction before a first launch."""

_TITLE = f"""\
The same for all warps of all SMs at once: each SM is full of warps, in blocks of several, that
launch {CHILDREN} children each and wait for them. From the first launch of all: until the last
answer, until every child has begun, and until the last `join` has returned. The children are more
urgent than the warps that launch, and find no room: so blocks are stopped for them, computing ones
too, and return. The task unit takes one launch at a time, from all SMs together."""


def blocks(sms: int) -> int:
    """Blocks that fill the machine."""
    return sms * CROWDS[sms].sm_blocks


def children(sms: int) -> int:
    """Children of all warps."""
    return CHILDREN * sms * CROWDS[sms].sm_warps


def key(step: str, sms: int, latency: int) -> str:
    """Name of one measurement."""
    return f"nested launch by all warps, {step}, {sms} SMs, latency {latency}"


def keys() -> list[str]:
    """Names of all measurements."""
    return [key(step, sms, latency) for step in STEPS for sms in CROWDS for latency in LATENCIES]


def table(values: Mapping[str, int]) -> str:
    """Table of all measurements in Markdown."""
    columns = [(sms, latency) for sms in CROWDS for latency in LATENCIES]
    heads = [f"{sms} × {latency}" for sms, latency in columns]
    counts = [children(sms) for sms, _ in columns]
    lines = [_TITLE, "", f"| SMs × latency | {' | '.join(heads)} |"]
    lines.append("|---|" + "--:|" * len(heads))
    lines.append(f"| children | {' | '.join(map(str, counts))} |")
    for step, what in STEPS.items():
        found = [values[key(step, *column)] for column in columns]
        lines.append(f"| {what} | {' | '.join(map(str, found))} |")
    each = [f"{per_child(values, *column):.0f}" for column in columns]
    lines.append(f"| per child | {' | '.join(each)} |")
    return "\n".join(lines)


def per_child(values: Mapping[str, int], sms: int, latency: int) -> float:
    """Cycles per child, from the first launch to the return of the last `join`."""
    return values[key("joined", sms, latency)] / children(sms)


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot cycles per child against the memory latency."""
    lines = {
        f"all warps of {sms} SMs": [per_child(values, sms, latency) for latency in LATENCIES]
        for sms in CROWDS
    }
    most = nested.COUNTS[-1]
    lines["one warp"] = [
        values[nested.key("joined", most, latency)] / most for latency in LATENCIES
    ]
    panel = Panel("", "memory latency", LATENCIES, lines)
    save_plot(file, "All warps launch kernels", "cycles per child", [panel])
