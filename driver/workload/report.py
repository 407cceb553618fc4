"""Readable tables of a workload's copies, with and without priorities.

Functions take finished runs of one workload by name, the baseline last. Latencies are in cycles;
jitter is the largest value minus the smallest. With two runs, tables fit 100 columns.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, pstdev

from signalbox.driver.text_table import counted, number, table, times
from signalbox.driver.workload.records import Result, SpaceRecord
from signalbox.driver.workload.specs import CopySpec, Workload

__all__ = [
    "Pipeline",
    "Spread",
    "common_addresses",
    "faults",
    "frames_table",
    "order_table",
    "pipeline",
    "records_table",
    "stages_table",
    "streams_table",
]

Runs = Mapping[str, Result]


@dataclass(frozen=True)
class Spread:
    """Statistics of numbers of cycles."""

    count: int
    least: int
    mean: float
    median: float
    most: int
    deviation: float

    @classmethod
    def of(cls, values: Sequence[int]) -> "Spread":
        """Statistics of at least one value."""
        return cls(
            count=len(values),
            least=min(values),
            mean=fmean(values),
            median=median(values),
            most=max(values),
            deviation=pstdev(values),
        )

    @property
    def jitter(self) -> int:
        """Largest value minus the smallest."""
        return self.most - self.least


def _group_head(runs: Runs, columns: int, first: int, *, gain: bool) -> list[object]:
    """Heading with the names of the runs, each above `columns` columns, after `first` empty
    columns. `gain` : another empty column follows."""
    head: list[object] = [""] * first
    for name in runs:
        head += [name, *[None] * (columns - 1)]
    return [*head, ""] if gain else head


# Any workload


def streams_table(runs: Runs) -> str:
    """Copy latencies by stream. With several runs, the gain is the mean latency of the baseline
    divided by that of the first run."""
    compared = len(runs) > 1
    first = next(iter(runs.values()))
    rows = []
    for stream in first.workload.streams:
        records = [record for record in first.records if record.stream == stream.name]
        if not records:
            continue
        size = sum(record.size for record in records)
        row: list[object] = [stream.name, stream.priority, len(records), number(size)]
        means = []
        for result in runs.values():
            spread = Spread.of([r.latency for r in result.records if r.stream == stream.name])
            means.append(spread.mean)
            row += [number(spread.mean), number(spread.median), number(spread.most)]
        rows.append([*row, times(means[-1], means[0])] if compared else row)
    head = ["stream", "priority", "copies", "bytes", *["mean", "median", "max"] * len(runs)]
    groups = _group_head(runs, 3, 4, gain=compared)
    return table(rows, groups, [*head, "gain"] if compared else head)


def order_table(runs: Runs) -> str:
    """Copies in the order of their ends, with times."""
    columns = [sorted(result.records, key=lambda r: r.completed) for result in runs.values()]
    rows = []
    for place, records in enumerate(zip(*columns, strict=True), 1):
        row: list[object] = [place]
        for result, record in zip(runs.values(), records, strict=True):
            row += [result.title(record), number(record.completed), number(record.latency)]
        rows.append(row)
    head = ["", *["copy", "ended", "latency"] * len(runs)]
    return table(rows, _group_head(runs, 3, 1, gain=False), head)


def records_table(result: Result) -> str:
    """All copies of one run, in the order of their ends."""
    rows = [
        (result.title(r), r.priority, r.size, r.submitted, r.ready, r.completed, r.latency)
        for r in sorted(result.records, key=lambda record: record.completed)
    ]
    head = ("copy", "priority", "bytes", "submitted", "ready", "completed", "latency")
    return table(rows, head)


# Address spaces


def common_addresses(spaces: Sequence[SpaceRecord]) -> list[tuple[int, int]]:
    """Ranges (first, last) of virtual addresses in use in all spaces."""
    common, *others = [list(space.addresses) for space in spaces] or [[]]
    for other in others:
        overlaps = [
            (max(first, begin), min(last, end)) for first, last in common for begin, end in other
        ]
        common = [(first, last) for first, last in overlaps if first <= last]
    return sorted(common)


def faults(result: Result) -> str:
    """All faults as reported by the driver, with their repair and the progress of other streams
    meanwhile."""
    paragraphs = []
    for fault in result.faults:
        others = [
            record
            for record in result.records
            if record.stream != fault.stream and fault.faulted < record.completed < fault.resumed
        ]
        ended = counted(len(others), "copy", "copies")
        text = (
            f"Cycle {number(fault.faulted)}, {fault.name}[{fault.index}] of {fault.stream}: "
            f"{fault.report}. Mapped and resumed in cycle {number(fault.resumed)}; in between "
            f"{ended} of other streams ended."
        )
        paragraphs.append(textwrap.fill(text, 100, subsequent_indent="  "))
    return "\n".join(paragraphs)


# Pipelines of frames


@dataclass(frozen=True)
class Pipeline:
    """A chain of series of copies, each the source of the next. A frame is one copy of each series.
    A stage is the part of the chain in one stream."""

    series: tuple[CopySpec, ...]

    @property
    def frames(self) -> int:
        """Number of frames."""
        return self.series[0].count

    @property
    def stages(self) -> dict[str, tuple[CopySpec, ...]]:
        """Series of each stage, by name of its stream."""
        found: dict[str, tuple[CopySpec, ...]] = {}
        for spec in self.series:
            found[spec.stream] = (*found.get(spec.stream, ()), spec)
        return found

    def stage_latencies(self, result: Result, stage: str) -> list[int]:
        """Cycles of each frame from the time when the stage was ready to the end of the stage."""
        series = self.stages[stage]
        return self._latencies(result, series)

    def frame_latencies(self, result: Result) -> list[int]:
        """Cycles of each frame from the time when its first copy was ready to the end of its last
        one."""
        return self._latencies(result, self.series)

    def intervals(self, result: Result) -> list[int]:
        """Cycles between the ends of consecutive frames."""
        ends = [record.completed for record in result.of(self.series[-1].name)]
        return [later - earlier for earlier, later in pairwise(ends)]

    @staticmethod
    def _latencies(result: Result, series: Sequence[CopySpec]) -> list[int]:
        first, last = result.of(series[0].name), result.of(series[-1].name)
        return [end.completed - begin.ready for begin, end in zip(first, last, strict=True)]


def pipeline(workload: Workload) -> Pipeline | None:
    """The longest chain of series of copies; None unless all of its series have the same number of
    frames, more than one, and it has several stages."""
    by_name = {spec.name: spec for spec in workload.copies}
    best: tuple[CopySpec, ...] = ()
    for spec in workload.copies:
        chain = [spec]
        while chain[-1].source in by_name:
            chain.append(by_name[chain[-1].source])
        if chain[-1].source is None and len(chain) > len(best):
            best = tuple(reversed(chain))
    found = Pipeline(best)
    if len({spec.count for spec in best}) != 1 or found.frames == 1 or len(found.stages) == 1:
        return None
    return found


def stages_table(line: Pipeline, runs: Runs) -> str:
    """Latency of each stage and of whole frames, and intervals between frames."""
    compared = len(runs) > 1
    measures = {
        stage: [Spread.of(line.stage_latencies(run, stage)) for run in runs.values()]
        for stage in line.stages
    }
    measures["whole frame"] = [Spread.of(line.frame_latencies(run)) for run in runs.values()]
    measures["frame interval"] = [Spread.of(line.intervals(run)) for run in runs.values()]
    rows = []
    for name, spreads in measures.items():
        row: list[object] = [name]
        for spread in spreads:
            row += map(number, (spread.mean, spread.most, spread.jitter, spread.deviation))
        if compared:
            row += [times(spreads[-1].mean, spreads[0].mean) if name != "frame interval" else ""]
            row += [times(spreads[-1].jitter, spreads[0].jitter)]
        rows.append(row)
    head: list[object] = ["", *["mean", "max", "jitter", "stdev"] * len(runs)]
    groups = _group_head(runs, 4, 1, gain=False)
    if compared:
        return table(rows, [*groups, "gain", None], [*head, "mean", "jitter"])
    return table(rows, groups, head)


def frames_table(line: Pipeline, runs: Runs) -> str:
    """Latency of each stage of each frame."""
    compared = len(runs) > 1
    rows = []
    for frame in range(line.frames):
        row: list[object] = [frame]
        totals = []
        for run in runs.values():
            row += [number(line.stage_latencies(run, stage)[frame]) for stage in line.stages]
            totals.append(line.frame_latencies(run)[frame])
            row.append(number(totals[-1]))
        rows.append([*row, times(totals[-1], totals[0])] if compared else row)
    head: list[object] = ["frame", *[*line.stages, "total"] * len(runs)]
    groups = _group_head(runs, len(line.stages) + 1, 1, gain=compared)
    return table(rows, groups, [*head, "gain"] if compared else head)
