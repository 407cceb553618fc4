"""Kernels that launch kernels, from the driver to memory, on the whole machine (NEST-10 … 15)."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.compute.child import Child
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN, VECTOR_ADD, Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.breadth_first import UNREACHED, BreadthFirst
from signalbox.driver.nested.breadth_first_flat import FlatBreadthFirst
from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.nested.merge_sort_flat import FlatMergeSort
from signalbox.driver.nested.refinement import Refinement
from signalbox.driver.nested.refinement_flat import FlatRefinement
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.workload.nested_jobs import distances, graph, refined, rough_field
from signalbox.hw.errors import Refusal
from signalbox.tb.driver.compute_bodies import failure, physical
from signalbox.tb.driver.nested_bodies import (
    LEAVE,
    STORE,
    WRAP,
    cancelled_trees,
    chain_of_a_fault,
    chain_of_a_refusal,
)
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.trace import Asked, BlockPlaced, Event, TaskOpened, TaskOver
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

TWO = Kernel(
    "two",
    f"""
    ldc    r2, [A]
    ldc    r3, [A + 4]
    launch r6, [r2]
    ldc    r2, [B]
    ldc    r3, [B + 4]
    launch r7, [r2]
    join   r8
    {STORE}
    """,
    {"A": 8, "B": 8, "OUT": 8},
)
"""Launches A and B and waits for both. Stores to OUT both answers, and whether a descendant
failed."""


FIRST_OF_TWO = Kernel(
    "first of two",
    f"""
    ldc    r2, [B]
    ldc    r3, [B + 4]
    launch r6, [r2]
    bany   r6, end
    ldc    r2, [A]
    ldc    r3, [A + 4]
    launch r6, [r2]
    bany   r6, end
    ldc    r2, [DONE_A]
    ldc    r3, [DONE_A + 4]
    join   r6, [r2]
    ldc    r2, [DONE_B]
    ldc    r3, [DONE_B + 4]
    ldg    r8, [r2]
    join   r7
end:
    {STORE}
    """,
    {"A": 8, "B": 8, "DONE_A": 8, "DONE_B": 8, "OUT": 8},
)
"""Launches B and A and waits for A alone. Stores to OUT whether A has failed, whether a child has
failed, and the word of B when the wait for A ended. If a launch is refused, only its answer."""


FAULT = Kernel(
    "fault",
    """
    ldc    r2, [CYCLES]
    wait   r2
    mov    r2, 0x76543000
    mov    r3, 0
    stg    [r2], r2
    exit
    """,
    {"CYCLES": 4},
)
"""Stores to an unmapped page, after some cycles."""


READ = Kernel(
    "read",
    f"""
    ldc    r2, [IN]
    ldc    r3, [IN + 4]
    ldg    r6, [r2]
    {STORE}
    """,
    {"IN": 8, "OUT": 8},
)
"""Stores the word at IN to OUT."""


@dataclass
class FirstOfTwo:
    """A launch of FIRST_OF_TWO with its results."""

    task: Task
    out: Buffer

    def read(self) -> list[int]:
        """The three words."""
        return self.out.read(np.uint32, 3).tolist()


async def first_of_two(
    device: Device, stream: Stream, kernel: Kernel, cycles: int, other: int
) -> tuple[FirstOfTwo, Callable[[], bool], Callable[[], bool]]:
    """Launch FIRST_OF_TWO; A is `kernel` with `cycles`, B spins for `other` cycles. Returns also
    whether A, and whether B, has released its word."""
    words = [await device.upload(np.zeros(4, np.uint32)) for _ in range(3)]
    a = await stream.child(kernel, 1, 32, {"CYCLES": cycles}, done=words[0])
    b = await stream.child(SPIN, 2, 64, {"CYCLES": other}, done=words[1])
    args = {"A": a, "B": b, "DONE_A": words[0], "DONE_B": words[1], "OUT": words[2]}
    task = await stream.launch(FIRST_OF_TWO, 1, 32, args)

    def released(word: Buffer) -> bool:
        return bool(word.read(np.uint32, 1)[0])

    return FirstOfTwo(task, words[2]), partial(released, words[0]), partial(released, words[1])


async def fill(device: Device) -> None:
    """Fill the machine with kernels of low priority."""
    low = await device.stream()
    await low.launch(SPIN, 40, 64, {"CYCLES": 4000})


def random_numbers() -> np.random.Generator:
    return np.random.default_rng(int(os.environ["COCOTB_RANDOM_SEED"]))


def first_placed(events: list[Event], page: int) -> int:
    """Page of the task whose block is the first one placed after the task of `page` has a slot."""
    rows: dict[int, int] = {}
    for one in events:
        if isinstance(one, TaskOpened):
            rows[one.row] = one.page
        elif isinstance(one, BlockPlaced) and page in rows.values():
            return rows[one.row]
    raise AssertionError(f"no block was placed behind task {page:#x}")


async def device_of(dut: Any, depth: int) -> tuple[Device, Stream]:
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(2))
    device.set_limit(Limit.NESTING_DEPTH, depth)
    return device, await device.stream(-1)


@cocotb.test(**LIMIT)
@cocotb.parametrize(busy=[False, True])
async def wait_for_one_child(dut: Any, busy: bool) -> None:
    """A parent waits for a word released by one child while another child continues, even if
    kernels of low priority fill the machine."""
    device, stream = await device_of(dut, 3)
    if busy:
        await fill(device)
    words, a_done, b_done = await first_of_two(device, stream, SPIN, 300, 20_000)
    await words.task.synchronize()
    assert words.read() == [0, 0, 0] and a_done() and b_done()
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(busy=[False, True], cycles=[300, 8000])
async def wait_for_a_failed_child(dut: Any, busy: bool, cycles: int) -> None:
    """The wait for a child that fails, and so releases nothing, ends with an error once the block
    has no children left; the host has the child's error (NEST-12)."""
    device, stream = await device_of(dut, 3)
    if busy:
        await fill(device)
    words, a_done, b_done = await first_of_two(device, stream, FAULT, cycles, 4000)
    error = await failure(words.task)
    assert (error.kernel, error.root) == ("fault", words.task.record)
    await stream.channel.resume()
    assert await failure(words.task) == error
    assert words.read() == [1, 1, 1] and b_done() and not a_done()
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(depth=[3, 4])
async def generations(dut: Any, depth: int) -> None:
    """A vector addition, its parent, grandparent and great-grandparent: with a depth of 4 each sees
    the results below it; with a depth of 3 the addition is not launched, and its parent reads the
    reason (example 5)."""
    device, stream = await device_of(dut, depth)
    count, words = 64, np.random.default_rng(depth)
    a, b = (words.integers(0, 1 << 32, count, np.uint32) for _ in range(2))
    buffers = [await device.allocate(4 * count) for _ in range(3)]
    for buffer, content in zip(buffers, (a, b), strict=False):
        buffer.write(content.tobytes())
    buffers[2].write(bytes(4 * count))
    outs = [await device.allocate(16) for _ in range(3)]
    args = {**dict(zip("ABC", buffers, strict=True)), "N": count}
    child: Child = await stream.child(VECTOR_ADD, 2, 32, args)
    children, below = [child], buffers[2]
    for out in outs[:2]:
        how = {"CHILD": children[-1], "IN": below, "OUT": out}
        children.append(await stream.child(WRAP, 1, 32, how))
        below = out
    task = await stream.launch(WRAP, 1, 32, {"CHILD": children[-1], "IN": below, "OUT": outs[2]})
    await task.synchronize()
    got = [out.read(np.uint32, 3).tolist() for out in outs]
    results = buffers[2].read(np.uint32, count)
    if depth == 4:
        assert np.array_equal(results, a + b)
        assert got == [[0, 0, int((a + b)[0])], [0, 0, 0], [0, 0, 0]]
    else:
        assert not results.any()
        assert got == [[Refusal.DEPTH.value, 0, 0], [0, 0, Refusal.DEPTH.value], [0, 0, 0]]
    refused = await device.engine.refused_child()
    assert (refused is None) == (depth == 4)
    if refused is not None:
        assert (refused.reason, refused.depth, refused.count) == (Refusal.DEPTH, 4, 1)
        assert (refused.record, refused.channel) == (child.record, stream.channel.index)
        assert await device.engine.refused_child() is None
    for one in children:
        one.free()
    await device.close()


@cocotb.test(**LIMIT)
async def next_in_the_stream(dut: Any) -> None:
    """A kernel, its child and its grandchild, none of which waits: the next kernel of the stream
    starts only when the grandchild, the child and the kernel are over, in this order (example
    4)."""
    device, stream = await device_of(dut, 3)
    done, out = [await device.upload(np.zeros(4, np.uint32)) for _ in range(2)]
    grandchild = await stream.child(SPIN, 3, 64, {"CYCLES": 6000}, done=done)
    child = await stream.child(LEAVE, 1, 32, {"CHILD": grandchild})
    assert isinstance(device.machine, SimMachine)
    trace = await TraceFile.open(device.machine)
    first = await stream.launch(LEAVE, 1, 32, {"CHILD": child})
    second = await stream.launch(READ, 1, 32, {"IN": done, "OUT": out})
    await second.synchronize()
    assert first.query() and out.read(np.uint32, 1)[0] == 1
    pages = [one.record >> 8 for one in (grandchild, child, first, second)]
    events = await trace.events()
    over = {one.page: one.cycle for one in events if isinstance(one, TaskOver)}
    assert list(over) == pages
    opened = {one.page: one.cycle for one in events if isinstance(one, TaskOpened)}
    assert opened[pages[3]] > over[pages[2]] > over[pages[0]] > opened[pages[0]] + 6000
    for one in (child, grandchild):
        one.free()
    await device.close()


@cocotb.test(**LIMIT)
async def urgent_family(dut: Any) -> None:
    """Of an urgent stream, a kernel that launches children and one that launches none both have the
    stream's priority: they take the place of kernels of a lower one, none of whose blocks goes
    before theirs (example 6)."""
    device, stream = await device_of(dut, 2)
    assert isinstance(device.machine, SimMachine)
    low, trace = await device.stream(), await TraceFile.open(device.machine)
    crowd = [await low.launch(SPIN, 9, 64, {"CYCLES": 3000}, overlap=True) for _ in range(6)]
    await device.machine.wait_cycles(4000)
    out = await device.upload(np.zeros(4, np.uint32))
    child = await stream.child(SPIN, 2, 32, {"CYCLES": 300})
    urgent = [
        await stream.launch(WRAP, 1, 32, {"CHILD": child, "IN": out, "OUT": out}),
        await stream.launch(SPIN, 2, 64, {"CYCLES": 300}),
    ]
    for task in urgent:
        record = device.machine.memory_read(physical(task), 256)
        assert record[16] == stream.device_priority == 2
        await task.synchronize()
    assert not crowd[-1].query()
    events = await trace.events()
    for page in (task.record >> 8 for task in urgent):
        first = first_placed(events, page)
        assert first == page, f"a block of {first:#x} goes before those of {page:#x}"
    await low.synchronize()
    child.free()
    await device.close()


@cocotb.test(**LIMIT)
async def faulty_descendant(dut: Any) -> None:
    """See `chain_of_a_fault`."""
    device, _ = await device_of(dut, 4)
    await chain_of_a_fault(device)
    await device.close()


@cocotb.test(**LIMIT)
async def refused_descendant(dut: Any) -> None:
    """See `chain_of_a_refusal`."""
    device, _ = await device_of(dut, 3)
    await chain_of_a_refusal(device)
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(waits=[False, True])
async def cancelled_tree(dut: Any, waits: bool) -> None:
    """See `cancelled_trees`."""
    device, _ = await device_of(dut, 4)
    await cancelled_trees(device, random_numbers(), waits=waits)
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(limit=[1, 2])
async def pending_launches(dut: Any, limit: int) -> None:
    """With a limit of one pending launch, a second one is refused while the first child runs, and
    both parent and host can read the reason (NEST-15); with a limit of two it is accepted."""
    device, stream = await device_of(dut, 2)
    device.set_limit(Limit.PENDING_LAUNCHES, limit)
    out = await device.allocate(16)
    pair = [await stream.child(SPIN, 1, 32, {"CYCLES": 3000}) for _ in range(2)]
    for _ in range(2):
        out.write(bytes(16))
        args = {"A": pair[0], "B": pair[1], "OUT": out}
        await (await stream.launch(TWO, 1, 32, args)).synchronize()
        expected = Refusal.ROOM.value if limit == 1 else 0
        assert out.read(np.uint32, 3).tolist() == [0, expected, 0]
        refused = await device.engine.refused_child()
        assert (refused is None) == (limit == 2)
        if refused is not None:
            assert (refused.reason, refused.record) == (Refusal.ROOM, pair[1].record)
    for one in pair:
        one.free()
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=[MergeSort, FlatMergeSort])
async def merge_sort(dut: Any, kind: type[MergeSort | FlatMergeSort]) -> None:
    """Words are sorted twice by a tree of kernels, each of which waits for its two halves. Flat:
    one kernel per level."""
    count, rng = 150, random_numbers()
    device, stream = await device_of(dut, MergeSort.depth(count) if kind is MergeSort else 1)
    data = await device.allocate(4 * count)
    sort = await kind.prepare(device, stream, data, count)
    for most in (1 << 32, 9):
        words = rng.integers(0, most, count, dtype=np.uint32)
        data.write(words)
        await sort.run()
        assert np.array_equal(data.read(np.uint32, count), np.sort(words))
    await sort.free()
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=[Refinement, FlatRefinement])
async def refinement(dut: Any, kind: type[Refinement | FlatRefinement]) -> None:
    """A field is refined in its rough parts."""
    size, levels, rng = 16, 3, random_numbers()
    device, stream = await device_of(dut, levels if kind is Refinement else 1)
    field = rough_field(rng, size)
    job = await kind.prepare(device, stream, field, 20, levels)
    await job.run()
    found = job.levels.read(np.uint32, size * size).reshape(size, size)
    assert np.array_equal(found, refined(field, 20, levels))
    assert found.max() == levels - 1
    await job.free()
    await device.close()


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=[BreadthFirst, FlatBreadthFirst])
async def breadth_first(dut: Any, kind: type[BreadthFirst | FlatBreadthFirst]) -> None:
    """Distances in a graph: each level of the search is a child; each vertex with many edges that
    is reached has a grandchild for them. Flat: two kernels per level."""
    count, rng = 50, random_numbers()
    device, stream = await device_of(dut, 3 if kind is BreadthFirst else 1)
    rows, columns = graph(rng, count, 40)
    search = await kind.prepare(device, stream, rows, columns)
    assert isinstance(device.machine, SimMachine)
    source, trace = int(np.argmax(np.diff(rows))), await TraceFile.open(device.machine)
    await search.run(source)
    found = search.distances.read(np.uint32, count)
    assert np.array_equal(found, distances(rows, columns, source))
    if isinstance(search, BreadthFirst):
        *edges, level = (child.record >> 8 for child in search.family.children)
        asked = Counter(one.page for one in await trace.events() if isinstance(one, Asked))
        assert asked[level] == np.max(found[found != UNREACHED]) + 1
        reached = np.flatnonzero((np.diff(rows) > 32) & (found != UNREACHED))
        assert source in reached and sum(asked[page] for page in edges) == len(reached)
        assert max(asked[page] for page in edges) == 1
    await search.free()
    await device.close()
