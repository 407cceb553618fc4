"""Tables that a person understands: what a workload's copies took, with priorities and without."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from driver.replay import CopyRecord, Result

__all__ = ["Latency", "compare", "records_table", "table"]


@dataclass(frozen=True)
class Latency:
    """Latencies of one series in cycles; jitter is the largest less the smallest."""

    count: int
    least: int
    mean: float
    most: int

    @classmethod
    def of(cls, records: Sequence[CopyRecord]) -> "Latency":
        """Latencies of some copies, at least one."""
        values = [record.latency for record in records]
        return cls(len(values), min(values), fmean(values), max(values))

    @property
    def jitter(self) -> int:
        """Largest less smallest."""
        return self.most - self.least


def table(rows: Sequence[Sequence[object]], head: Sequence[str]) -> str:
    """Rows as aligned text: the first column to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        rest = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        return "  ".join([row[0].ljust(widths[0]), *rest]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def records_table(result: Result) -> str:
    """Every copy of a run, in the order of their ends."""
    rows = [
        (f"{r.name}[{r.index}]", r.priority, r.size, r.submitted, r.ready, r.completed, r.latency)
        for r in sorted(result.records, key=lambda record: record.completed)
    ]
    head = ("copy", "priority", "bytes", "submitted", "ready", "completed", "latency")
    return table(rows, head)


def compare(results: Mapping[str, Result]) -> str:
    """Latency of every series and total time, one group of columns for each named run of the same
    workload."""
    first = next(iter(results.values()))
    head = ["copy", "priority", "count"]
    head += [f"{name} {what}" for name in results for what in ("mean", "max", "jitter")]
    rows: list[Sequence[object]] = []
    for spec in first.workload.copies:
        row: list[object] = [spec.name, first.of(spec.name)[0].priority, spec.count]
        for result in results.values():
            latency = Latency.of(result.of(spec.name))
            row += [f"{latency.mean:.0f}", latency.most, latency.jitter]
        rows.append(row)
    total: list[object] = ["total cycles", "", ""]
    for result in results.values():
        total += [result.total_cycles, "", ""]
    return table([*rows, total], head)
