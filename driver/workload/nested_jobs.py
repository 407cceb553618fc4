"""Algorithms of `driver.nested` in workload files: inputs from a seed, results by numpy and plain
Python.

    job = await ALGORITHMS["merge sort"].prepare(device, stream, numbers, 200, 1)
    task = await job.launch(priority=5)
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer, page_for
from signalbox.driver.nested.breadth_first import (
    BREADTH_FIRST,
    EDGES,
    LEVEL,
    UNREACHED,
    BreadthFirst,
)
from signalbox.driver.nested.family import Family
from signalbox.driver.nested.merge_sort import MERGE_SORT, MergeSort
from signalbox.driver.nested.refinement import REFINE, Refinement
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.expected_data import GUARD, ExpectedData
from signalbox.hw.qmd import QMD_BYTES

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "NestedJob",
    "distances",
    "graph",
    "refined",
    "rough_field",
]

_TOLERANCE = 20
"""Maximum difference of words in a cell that is not rough."""

_HEAVY = 40
"""Number of edges of the two vertices with most edges."""

_LIGHT = 3
"""Maximum number of edges of the other vertices."""

_RECORD_BYTES = 4 * 2 * QMD_BYTES
"""Memory for the record of a child and its arguments: the driver allocates records in chunks, each
of which takes a page of four times its size."""


# Inputs and results


def rough_field(numbers: np.random.Generator, size: int) -> np.ndarray:
    """A field that is smooth but for a few spots."""
    field = np.full((size, size), 1000, np.uint32)
    field += numbers.integers(0, 10, (size, size), np.uint32)
    for _ in range(2):
        x, y = numbers.integers(0, size, 2)
        field[y, x] += numbers.integers(100, 1 << 30)
    return field


def refined(field: np.ndarray, tolerance: int, levels: int) -> np.ndarray:
    """Level of each word's cell. A cell whose words differ by more than `tolerance` is divided into
    quarters, down to level `levels` - 1."""
    size, result = field.shape[0], np.zeros(field.shape, np.uint32)
    for level in range(levels):
        cell = size >> level
        cells = field.astype(np.int64).reshape(1 << level, cell, 1 << level, cell)
        rough = cells.max((1, 3)) - cells.min((1, 3)) > tolerance
        divided = np.kron(rough, np.ones((cell, cell), bool))
        if level + 1 < levels:
            result[divided & (result == level)] = level + 1
    return result


def graph(numbers: np.random.Generator, count: int, heavy: int) -> tuple[np.ndarray, np.ndarray]:
    """A random graph in compressed rows. Two vertices have `heavy` edges, the others few or
    none."""
    degrees = numbers.integers(0, _LIGHT + 1, count)
    degrees[numbers.choice(count, 2, replace=False)] = heavy
    rows = np.concatenate(([0], np.cumsum(degrees)))
    return rows, numbers.integers(0, count, int(rows[-1]))


def distances(rows: np.ndarray, columns: np.ndarray, source: int) -> np.ndarray:
    """Number of edges from `source` to each vertex."""
    found = np.full(len(rows) - 1, UNREACHED, np.uint32)
    found[source] = 0
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for other in columns[rows[vertex] : rows[vertex + 1]]:
            if found[other] == UNREACHED:
                found[other] = found[vertex] + 1
                queue.append(other)
    return found


# Jobs


class _Launch(Protocol):
    def __call__(self, *, priority: int | None = None) -> Awaitable[Task]: ...


@dataclass(frozen=True)
class NestedJob:
    """A prepared algorithm with its input.

    Members
    -------
    family : its children, and whether all of their launches were accepted.
    launch : launches its first kernel.
    expected : its expected result.
    data : its buffer that does not belong to the family, or None.
    """

    family: Family
    launch: _Launch
    expected: ExpectedData
    data: Buffer | None = None

    @property
    def buffers(self) -> list[Buffer]:
        """All of its buffers."""
        return self.family.buffers + ([] if self.data is None else [self.data])

    async def free(self) -> None:
        """Free its memory, once nothing runs."""
        await self.family.free()
        if self.data is not None:
            await self.family.device.free(self.data)


def _expected(buffer: Buffer, result: np.ndarray) -> ExpectedData:
    """The result at the start of a buffer that has its initial contents."""
    image = np.ascontiguousarray(result, np.uint32).view(np.uint8).reshape(1, -1)
    return ExpectedData(buffer, 0, image.size, image, buffer.read())


async def _merge_sort(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    words = numbers.integers(0, 1 << 32, n + GUARD // 4, np.uint32)
    data = await device.upload(words, space=stream.space, name="words to sort")
    try:
        job = await MergeSort.prepare(device, stream, data, n)
    except BaseException:
        await device.free(data)
        raise
    return NestedJob(job.family, job.launch, _expected(data, np.sort(words[:n])), data)


async def _refinement(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    field = rough_field(numbers, n)
    job = await Refinement.prepare(device, stream, field, _TOLERANCE, levels)
    result = refined(field, _TOLERANCE, levels)
    return NestedJob(job.family, job.launch, _expected(job.levels, result))


async def _breadth_first(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    rows, columns = graph(numbers, n, _HEAVY)
    source = int(np.argmax(np.diff(rows)))
    job = await BreadthFirst.prepare(device, stream, rows, columns)
    expected = _expected(job.distances, distances(rows, columns, source))
    return NestedJob(job.family, partial(job.launch, source), expected)


def _pages(*sizes: int) -> int:
    """Bytes of the pages of buffers."""
    pages = [(size, page_for(size)) for size in sizes]
    return sum(-(-size // page) * page for size, page in pages)


def _merge_sort_memory(n: int, levels: int) -> int:
    data, temp, status = 4 * n + GUARD, 4 * n, 4
    return _pages(data, temp, status) + MergeSort.children(n) * _RECORD_BYTES


def _refinement_memory(n: int, levels: int) -> int:
    field, result, status, quarters = 4 * n * n, 4 * n * n, 4, 4 * 8
    children = Refinement.children(levels)
    tables = children // 4 * _pages(quarters)
    return _pages(field, result, status) + tables + children * _RECORD_BYTES


def _breadth_first_memory(n: int, levels: int) -> int:
    edges = 2 * _HEAVY + (n - 2) * _LIGHT
    rows, columns, distances, records = 4 * (n + 1), 4 * (edges + 1), 4 * n, 8 * n
    state, status = 8, 4
    return _pages(rows, columns, distances, records, state, status) + 3 * _RECORD_BYTES


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with nested launches.

    Members
    -------
    kernels : all of its kernels, beginning with the root; their blocks have at most one warp.
    threads : threads of the root's only block.
    least, most : limits of its size `n`.
    words : number of 32-bit words of the result, by `n`.
    depth : nesting depth that it needs, by `n` and `levels`.
    memory : upper bound of the memory of a prepared job in bytes, without kernels and page tables,
        by `n` and `levels`.
    prepare : prepares it on a stream, with random input of size `n`. Raises as the algorithm's own
        `prepare`.
    """

    kernels: tuple[Kernel, ...]
    threads: int
    least: int
    most: int
    words: Callable[[int], int]
    depth: Callable[[int, int], int]
    memory: Callable[[int, int], int]
    prepare: Callable[[Device, Stream, np.random.Generator, int, int], Awaitable[NestedJob]]


ALGORITHMS = {
    "merge sort": Algorithm(
        kernels=(MERGE_SORT,),
        threads=32,
        least=1,
        most=1 << 16,
        words=lambda n: n,
        depth=lambda n, levels: MergeSort.depth(n),
        memory=_merge_sort_memory,
        prepare=_merge_sort,
    ),
    "refinement": Algorithm(
        kernels=(REFINE,),
        threads=32,
        least=1,
        most=1 << 10,
        words=lambda n: n * n,
        depth=lambda n, levels: levels,
        memory=_refinement_memory,
        prepare=_refinement,
    ),
    "breadth first": Algorithm(
        kernels=(BREADTH_FIRST, LEVEL, EDGES),
        threads=1,
        least=2,
        most=1 << 16,
        words=lambda n: n,
        depth=lambda n, levels: 3,
        memory=_breadth_first_memory,
        prepare=_breadth_first,
    ),
}
"""Algorithms by name."""
