"""Kernels that launch kernels: sort, refinement and search, compared with numpy (NEST-10 … 13); and
their flat versions, on a machine without nested launches."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.child import NestingError
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.nested.breadth_first import UNREACHED, BreadthFirst
from signalbox.driver.nested.breadth_first_flat import FlatBreadthFirst
from signalbox.driver.nested.family import LaunchRefused
from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.nested.merge_sort_flat import FlatMergeSort
from signalbox.driver.nested.refinement import Refinement
from signalbox.driver.nested.refinement_flat import FlatRefinement
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.nested_jobs import distances, graph, refined, rough_field
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import MOMENTS, interrupt
from signalbox.tb.simulation.runner import choose_seed

PLAIN = Config(memory_bytes=SPACE)
NESTED = Config(memory_bytes=SPACE, save_places=8, nested_kernels=60)

Body = Callable[[Device, Stream], Coroutine[Any, Any, None]]


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, with the seed printed."""
    seed = choose_seed()
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def run(depth: int, body: Body) -> FakeMachine:
    """Run a body with a nesting depth; 0: on a machine without nested launches."""
    machine = FakeMachine(NESTED if depth else PLAIN)

    async def main() -> None:
        device = await Device.open(machine, NoPriorityPolicy(1))
        if depth:
            device.set_limit(Limit.NESTING_DEPTH, depth)
        await asyncio.wait_for(body(device, await device.stream()), HANGS)
        await device.close()

    asyncio.run(main())
    return machine


def launches(machine: FakeMachine) -> int:
    """Number of kernels that the host has launched."""
    assert machine.compute is not None
    return len(machine.compute.over)


@pytest.mark.parametrize("kind", [MergeSort, FlatMergeSort])
@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 65, 100, 129, 256])
def test_merge_sort(
    rng: np.random.Generator, count: int, kind: type[MergeSort | FlatMergeSort]
) -> None:
    """Random words, some of them equal, are sorted; words behind them do not change. A second run
    sorts other words."""

    async def body(device: Device, stream: Stream) -> None:
        data = await device.allocate(4 * count + 64)
        sort = await kind.prepare(device, stream, data, count)
        for most in (1 << 32, 5):
            words = rng.integers(0, most, count + 16, dtype=np.uint32)
            data.write(words)
            await sort.run()
            found = data.read(np.uint32, count + 16)
            assert np.array_equal(found[:count], np.sort(words[:count]))
            assert np.array_equal(found[count:], words[count:])
        await sort.free()

    depth = MergeSort.depth(count)
    machine = run(depth if kind is MergeSort else 0, body)
    if kind is FlatMergeSort:
        assert launches(machine) == 2 * depth


@pytest.mark.parametrize("kind", [Refinement, FlatRefinement])
@pytest.mark.parametrize(("size", "levels"), [(1, 1), (2, 2), (8, 3), (16, 4), (32, 3)])
def test_refinement(
    rng: np.random.Generator, size: int, levels: int, kind: type[Refinement | FlatRefinement]
) -> None:
    """Only rough cells are divided: in an even field none, in a rough one all."""

    async def body(device: Device, stream: Stream) -> None:
        even = np.full((size, size), 7, np.uint32)
        rough = rng.integers(0, 1 << 32, (size, size), dtype=np.uint32)
        for field in (rough_field(rng, size), even, rough):
            job = await kind.prepare(device, stream, field, 20, levels)
            await job.run()
            found = job.levels.read(np.uint32, size * size).reshape(size, size)
            assert np.array_equal(found, refined(field, 20, levels))
            await job.free()

    run(levels if kind is Refinement else 0, body)


@pytest.mark.parametrize("kind", [Refinement, FlatRefinement])
def test_number_of_cells(kind: type[Refinement | FlatRefinement]) -> None:
    """Kernels run only where needed, one block each: a single spot needs four per level. The flat
    version has these blocks in one kernel per level, until no cell is rough."""

    async def body(device: Device, stream: Stream) -> None:
        for spots in (0, 1):
            field = np.zeros((16, 16), np.uint32)
            field[3, 12] = spots
            job = await kind.prepare(device, stream, field, 0, 4)
            await job.run()
            await job.free()

    machine = run(4 if kind is Refinement else 0, body)
    assert machine.compute is not None
    assert len(machine.compute.order) == 1 + (1 + 3 * 4)
    assert launches(machine) == (2 if kind is Refinement else 1 + 4)


@pytest.mark.parametrize("kind", [BreadthFirst, FlatBreadthFirst])
@pytest.mark.parametrize("count", [1, 5, 40, 100])
def test_breadth_first(
    rng: np.random.Generator, count: int, kind: type[BreadthFirst | FlatBreadthFirst]
) -> None:
    """Distances from several vertices, two of them with many edges. In the nested search, each
    vertex with many edges that is reached has a kernel of its own, once."""
    expected = []

    async def body(device: Device, stream: Stream) -> None:
        rows, columns = graph(rng, count, 50) if count > 1 else (np.array([0, 1]), np.array([0]))
        search = await kind.prepare(device, stream, rows, columns)
        heavy = np.diff(rows) > 32
        for source in (int(np.argmax(heavy)), *rng.integers(0, count, 3)):
            await search.run(int(source))
            found = search.distances.read(np.uint32, count)
            assert np.array_equal(found, distances(rows, columns, int(source)))
            expected.append(int(np.count_nonzero(heavy & (found != UNREACHED))))
        await search.free()

    machine = run(3 if kind is BreadthFirst else 0, body)
    if kind is BreadthFirst:
        assert machine.compute is not None
        roots = machine.compute.over
        assert [sum(len(level.children) for level in one.children) for one in roots] == expected
        assert expected[0] or count == 1


@pytest.mark.parametrize(("heavy", "kernels"), [(39, 2), (40, 1)])
def test_heavy_vertices(heavy: int, kernels: int) -> None:
    """The flat search launches one kernel per level, and a second one if there are vertices with
    many edges. Its last level finds no vertex."""

    async def body(device: Device, stream: Stream) -> None:
        rows = np.array([0, 40, *[40] * 40])
        search = await FlatBreadthFirst.prepare(device, stream, rows, np.arange(1, 41), heavy)
        await search.run(0)
        assert search.distances.read(np.uint32, 41).tolist() == [0, *[1] * 40]
        await search.free()

    assert launches(run(0, body)) == 2 * kernels


def test_refused(rng: np.random.Generator) -> None:
    """Without the necessary depth, an algorithm reports why it has no result."""

    async def body(device: Device, stream: Stream) -> None:
        data = await device.allocate(4 * 64)
        sort = await MergeSort.prepare(device, stream, data, 64)
        with pytest.raises(LaunchRefused, match="could not launch one of its children: DEPTH"):
            await sort.run()
        search = await BreadthFirst.prepare(device, stream, *graph(rng, 8, 50))
        with pytest.raises(LaunchRefused, match="DEPTH") as caught:
            await search.run(0)
        assert caught.value.answer == 12
        job = await Refinement.prepare(device, stream, rough_field(rng, 8), 0, 2)
        with pytest.raises(LaunchRefused, match="DEPTH"):
            await job.run()
        assert "answer 0xf" in str(LaunchRefused(15)) and "CHECK" in str(LaunchRefused(4 | 9 << 8))

    run(1, body)


def test_nothing_is_left(rng: np.random.Generator) -> None:
    """If not all children can be prepared, the prepared ones are freed, and so are the buffers."""
    machine = FakeMachine(Config(memory_bytes=SPACE))

    async def main() -> None:
        device = await Device.open(machine, NoPriorityPolicy(1))
        stream = await device.stream()
        data = await device.allocate(4 * 64)
        await stream.launch(SPIN, 1, 32, {"CYCLES": 1})  # allocates what the space keeps
        free = device.memory.free_bytes
        jobs = (
            MergeSort.prepare(device, stream, data, 64),
            Refinement.prepare(device, stream, rough_field(rng, 8), 0, 2),
            BreadthFirst.prepare(device, stream, *graph(rng, 8, 50)),
        )
        for job in jobs:
            with pytest.raises(NestingError):
                await job
            assert device.memory.free_bytes == free
        await device.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", MOMENTS)
def test_interrupted_freeing(turns: int) -> None:
    """Freeing an algorithm's memory can be repeated, wherever it was interrupted."""

    async def body(device: Device, stream: Stream) -> None:
        data = await device.allocate(4 * 100)
        await stream.launch(SPIN, 1, 32, {"CYCLES": 1})  # allocates what the space keeps
        await stream.synchronize()
        await (await MergeSort.prepare(device, stream, data, 100)).free()
        free = device.memory.free_bytes
        job = await MergeSort.prepare(device, stream, data, 100)
        await interrupt(job.free(), turns)
        for _ in range(2):
            await job.free()
            assert device.memory.free_bytes == free

    run(3, body)


@pytest.mark.parametrize("depth", [3, 0])
def test_wrong_input(depth: int) -> None:
    """Meaningless input is refused before anything is prepared."""

    async def body(device: Device, stream: Stream) -> None:
        data = await device.allocate(4)
        for count, message in ((0, "nothing to sort"), (2, "does not have 2 words")):
            with pytest.raises(ValueError, match=message):
                await (MergeSort if depth else FlatMergeSort).prepare(device, stream, data, count)
        refine = Refinement if depth else FlatRefinement
        for shape, levels in (((3, 3), 1), ((4, 8), 1), ((4, 4), 4), ((4, 4), 0), ((), 1)):
            with pytest.raises(ValueError, match=f"has no {levels} levels"):
                await refine.prepare(device, stream, np.zeros(shape, np.uint32), 1, levels)
        for content in (np.float64(0.5), np.int64(-1), np.int64(1 << 32)):
            with pytest.raises(ValueError, match="its numbers are unsigned words"):
                await refine.prepare(device, stream, np.full((4, 4), content), 1, 1)
        for tolerance in (-1, 1 << 32):
            with pytest.raises(ValueError, match=f"tolerance = {tolerance} is not an unsigned"):
                await refine.prepare(device, stream, np.zeros((4, 4), np.uint32), tolerance, 1)
        search = BreadthFirst if depth else FlatBreadthFirst
        for rows, columns in (([0], []), ([0, 2], [0]), ([0, 1], [1]), ([1, 1], [0])):
            with pytest.raises(ValueError, match="compressed rows"):
                await search.prepare(device, stream, np.array(rows), np.array(columns))
        for rows in (np.array([0, 2, 1, 3], np.uint32), np.array([0, 1.5, 2, 3])):
            with pytest.raises(ValueError, match="compressed rows"):
                await search.prepare(device, stream, rows, np.zeros(3, np.uint32))
        job = await search.prepare(device, stream, np.array([0, 0]), np.array([]))
        with pytest.raises(ValueError, match="vertex 1 is outside 0 … 0"):
            await job.run(1)

    run(depth, body)
