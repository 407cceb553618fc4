"""Flat versions of the algorithms in workload files: the same input and results as
`driver.workload.nested_jobs`, with kernels that the host launches in steps.

    job = await FLAT["merge sort"].prepare(device, stream, numbers, 200, 1)
    job.start()
    while launched := await job.algorithm.step(priority=5):
        ...
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.breadth_first_flat import (
    HEAVY_VERTICES,
    LIGHT_VERTICES,
    FlatBreadthFirst,
)
from signalbox.driver.nested.flat import Flat
from signalbox.driver.nested.merge_sort_flat import (
    MERGE_NODES,
    SORT_LEAVES,
    FlatMergeSort,
    nodes_by_level,
)
from signalbox.driver.nested.refinement_flat import REFINE_LEVEL, FlatRefinement
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.expected_data import GUARD, ExpectedData
from signalbox.driver.workload.nested_jobs import (
    RECORD_BYTES,
    expected,
    field_to_refine,
    graph_to_search,
    pages,
    search_memory,
    words_to_sort,
)

__all__ = ["FLAT", "FlatAlgorithm", "FlatJob"]


@dataclass(frozen=True)
class FlatJob:
    """A prepared flat algorithm with its input.

    Members
    -------
    algorithm : the algorithm; after `start`, its `step` launches kernels.
    start : begins a run.
    expected : expected result.
    data : buffer of the input, if the algorithm does not own it; else None.
    """

    algorithm: Flat
    start: Callable[[], None]
    expected: ExpectedData
    data: Buffer | None = None

    @property
    def buffers(self) -> list[Buffer]:
        """All of its buffers."""
        own = self.algorithm.workspace.buffers
        return own + ([] if self.data is None else [self.data])

    async def free(self) -> None:
        """Free its memory, once nothing runs."""
        await self.algorithm.free()
        if self.data is not None:
            await self.algorithm.workspace.device.free(self.data)


async def _merge_sort(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> FlatJob:
    async with words_to_sort(device, stream, numbers, n) as (data, result):
        job = await FlatMergeSort.prepare(device, stream, data, n)
        return FlatJob(job, job.start, expected(data, result), data)


async def _refinement(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> FlatJob:
    field, result = field_to_refine(numbers, n, levels)
    job = await FlatRefinement.prepare(device, stream, *field)
    return FlatJob(job, job.start, expected(job.levels, result))


async def _breadth_first(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> FlatJob:
    graph, source, result = graph_to_search(numbers, n)
    job = await FlatBreadthFirst.prepare(device, stream, *graph)
    return FlatJob(job, partial(job.start, source), expected(job.distances, result))


def _merge_sort_memory(n: int, levels: int) -> int:
    tables = [8 * len(nodes) for nodes in nodes_by_level(n)]
    return pages(4 * n + GUARD, 4 * n, *tables) + len(tables) * RECORD_BYTES


def _refinement_memory(n: int, levels: int) -> int:
    field, result, cells = 4 * n * n, 4 * n * n, 4 * 4 ** (levels - 1)
    return pages(field, result, cells, cells) + RECORD_BYTES


def _breadth_first_memory(n: int, levels: int) -> int:
    heavy = 4 * 3
    return search_memory(n) + pages(heavy) + 2 * RECORD_BYTES


@dataclass(frozen=True)
class FlatAlgorithm:
    """The flat version of an algorithm. Members as of `nested_jobs.Algorithm`."""

    kernels: tuple[Kernel, ...]
    memory: Callable[[int, int], int]
    prepare: Callable[[Device, Stream, np.random.Generator, int, int], Awaitable[FlatJob]]


FLAT = {
    "merge sort": FlatAlgorithm((SORT_LEAVES, MERGE_NODES), _merge_sort_memory, _merge_sort),
    "refinement": FlatAlgorithm((REFINE_LEVEL,), _refinement_memory, _refinement),
    "breadth first": FlatAlgorithm(
        (LIGHT_VERTICES, HEAVY_VERTICES), _breadth_first_memory, _breadth_first
    ),
}
"""Flat versions, by name."""
