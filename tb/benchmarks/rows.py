"""The recorded rows: descriptions and budgets (spec page 70). All values are cycles."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BIG", "OPERATIONS", "PIPELINED_BIG", "PIPELINED_PAGES", "ROWS", "Row", "table"]

OPERATIONS = 64
PIPELINED_PAGES, PIPELINED_BIG = 23, 3
BIG = 65_536

_SHARE = 0.98
"""Minimum fraction of cycles with a beat of 16 bytes."""


@dataclass(frozen=True)
class Row:
    """One measurement. `budget`, `least` : maximum and minimum, each None if there is none."""

    what: str
    budget: int | None = None
    least: int | None = None

    @property
    def bound(self) -> str:
        """The budget as text."""
        if self.least is not None:
            return f"≥ {self.least}"
        return "" if self.budget is None else f"≤ {self.budget}"

    def missed(self, value: int) -> bool:
        """Whether a measured value is outside the budget."""
        return (self.budget is not None and value > self.budget) or (
            self.least is not None and value < self.least
        )


def _beats(count: int, size: int) -> Row:
    beats = count * size // 16
    what = f"{count} pipelined copies of {size >> 10} KiB, {beats} beats, memory latency 100"
    return Row(what, int(beats / _SHARE))


ROWS = {
    "decode": Row("pushbuffer decode: 1,000 methods", 1000),
    "semaphore_visible": Row("on-chip operation: offered to visible", 2),
    "semaphore_operations": Row(f"{OPERATIONS} on-chip operations of one channel"),
    "switch_blocked": Row("acquire blocked to next method of a prefetched channel", 4),
    "switch_counting": Row("the same, acquire of a counting semaphore before a copy", 4),
    "switch_slice": Row("slice over: last method to next channel's first", 4),
    "wake": Row("semaphore update to blocked acquire decided again", 4),
    "wake_counting": Row("the same, counting semaphore before a copy", 4),
    "copy_pages": _beats(PIPELINED_PAGES, 4096),
    "copy_big": _beats(PIPELINED_BIG, BIG),
    "copy_alone": Row("one copy of 64 KiB, 4096 beats, start to end, memory latency 100"),
    "priority_wait": Row("urgent copy: counted and engine free to its start, at worst", 16),
    "priority_count": Row("urgent copy: doorbell to counted, memory busy, latency 16, at worst"),
    "priority_doorbell": Row(
        "urgent copy: doorbell and low copy of then over to its start, at worst"
    ),
    "doorbell_near": Row("doorbell to first method, memory latency 2"),
    "doorbell_far": Row("doorbell to first method, memory latency 100"),
}


def table(rows: Mapping[str, Row], measured: Mapping[str, int]) -> str:
    """Measured rows with their budgets, in Markdown."""
    lines = ["| what | cycles | budget | |", "|---|--:|--:|---|"]
    for name, row in rows.items():
        value = measured[name]
        missed = "MISSED" if row.missed(value) else ""
        lines.append(f"| {row.what} | {value} | {row.bound} | {missed} |")
    return "\n".join(lines)
