"""Algorithms of `driver.nested` in workload files: random inputs, and their expected results,
computed by numpy and plain Python.

    job = await ALGORITHMS["merge sort"].prepare(device, stream, numbers, 200, 1)
    task = await job.launch(priority=5)
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
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
    "RECORD_BYTES",
    "Algorithm",
    "NestedJob",
    "distances",
    "expected",
    "field_to_refine",
    "graph",
    "graph_to_search",
    "pages",
    "refined",
    "rough_field",
    "search_memory",
    "words_to_sort",
]

Field = tuple[np.ndarray, int, int]
"""A field, the tolerance of its words, and the number of levels."""

Graph = tuple[np.ndarray, np.ndarray]
"""A graph in compressed rows: first edge of each vertex, and vertex to which each edge leads."""

_TOLERANCE = 20
"""Maximum difference of words in a cell that is not rough."""

_HEAVY = 40
"""Number of edges of the two vertices with most edges."""

_LIGHT = 3
"""Maximum number of edges of the other vertices."""

RECORD_BYTES = 4 * 2 * QMD_BYTES
"""Upper bound of the memory for the record of a child and its arguments, in bytes. The driver
allocates records in chunks; a chunk takes a page of four times its size."""


# Inputs and results


def rough_field(numbers: np.random.Generator, size: int) -> np.ndarray:
    """A random field of `size` × `size` words, smooth but for two spots."""
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
    """A random graph of `count` vertices. Two of them have `heavy` edges, the others few or
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
    family : its children, and the status of their launches.
    launch : launches the root.
    expected : expected result.
    data : buffer of the input, if the family does not own it; else None.
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


def expected(buffer: Buffer, result: np.ndarray) -> ExpectedData:
    """The data expected in a buffer: `result` at its start, then its present contents."""
    image = np.ascontiguousarray(result, np.uint32).view(np.uint8).reshape(1, -1)
    return ExpectedData(buffer, 0, image.size, image, buffer.read())


@asynccontextmanager
async def words_to_sort(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int
) -> AsyncGenerator[tuple[Buffer, np.ndarray]]:
    """Context manager for the preparation of a sort. Yields a buffer of `n` random words and a
    guard, and the sorted words. The buffer is freed if the preparation fails."""
    words = numbers.integers(0, 1 << 32, n + GUARD // 4, np.uint32)
    data = await device.upload(words, space=stream.space, name="words to sort")
    try:
        yield data, np.sort(words[:n])
    except BaseException:
        await device.free(data)
        raise


def field_to_refine(numbers: np.random.Generator, n: int, levels: int) -> tuple[Field, np.ndarray]:
    """A rough field of side `n`, with its tolerance and number of levels; and the expected level of
    each word's cell."""
    field = rough_field(numbers, n)
    return (field, _TOLERANCE, levels), refined(field, _TOLERANCE, levels)


def graph_to_search(numbers: np.random.Generator, n: int) -> tuple[Graph, int, np.ndarray]:
    """A graph of `n` vertices, a vertex with most edges, and the distances from that vertex."""
    rows, columns = graph(numbers, n, _HEAVY)
    source = int(np.argmax(np.diff(rows)))
    return (rows, columns), source, distances(rows, columns, source)


async def _merge_sort(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    async with words_to_sort(device, stream, numbers, n) as (data, result):
        job = await MergeSort.prepare(device, stream, data, n)
        return NestedJob(job.family, job.launch, expected(data, result), data)


async def _refinement(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    field, result = field_to_refine(numbers, n, levels)
    job = await Refinement.prepare(device, stream, *field)
    return NestedJob(job.family, job.launch, expected(job.levels, result))


async def _breadth_first(
    device: Device, stream: Stream, numbers: np.random.Generator, n: int, levels: int
) -> NestedJob:
    found, source, result = graph_to_search(numbers, n)
    job = await BreadthFirst.prepare(device, stream, *found)
    return NestedJob(job.family, partial(job.launch, source), expected(job.distances, result))


def pages(*sizes: int) -> int:
    """Bytes of the pages that buffers of these sizes, in bytes, take."""
    pages = [(size, page_for(size)) for size in sizes]
    return sum(-(-size // page) * page for size, page in pages)


def _merge_sort_memory(n: int, levels: int) -> int:
    data, temp, status = 4 * n + GUARD, 4 * n, 4
    return pages(data, temp, status) + MergeSort.children(n) * RECORD_BYTES


def _refinement_memory(n: int, levels: int) -> int:
    field, result, status, quarters = 4 * n * n, 4 * n * n, 4, 4 * 8
    children = Refinement.children(levels)
    tables = children // 4 * pages(quarters)
    return pages(field, result, status) + tables + children * RECORD_BYTES


def _breadth_first_memory(n: int, levels: int) -> int:
    records, status = 8 * n, 4
    return search_memory(n) + pages(records, status) + 3 * RECORD_BYTES


def search_memory(n: int) -> int:
    """Upper bound of the bytes of a graph of `n` vertices, of the distances, and of the state of
    the search."""
    edges = 2 * _HEAVY + (n - 2) * _LIGHT
    rows, columns, distances, state = 4 * (n + 1), 4 * (edges + 1), 4 * n, 8
    return pages(rows, columns, distances, state)


@dataclass(frozen=True)
class Algorithm:
    """An algorithm with nested launches.

    Members
    -------
    kernels : all of its kernels, beginning with the root; their blocks have at most one warp.
    threads : threads of the root's only block.
    least, most : limits of the size `n` of its input.
    words : number of 32-bit words of the result, by `n`.
    depth : nesting depth that it needs, by `n` and `levels`.
    memory : upper bound of the memory of a prepared job in bytes, without kernels and page tables,
        by `n` and `levels`.
    prepare : prepares a job, with arguments device, stream, random numbers, `n` and `levels`.
        Raises as the `prepare` of the algorithm's class.
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
