"""Real kernels from launch to memory, in several address spaces."""

from itertools import pairwise, repeat
from typing import Any

import cocotb

from signalbox.driver.kernels.library import SPIN, Kernel
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.qmd import Placement
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.registers import KillScope
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.jobs import JOBS, Job, vectors
from signalbox.tb.testbench.sample import fewer, some
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench
from signalbox.tb.units.task_unit.cocotb_finish import release

SLICE = 300
"""Cycles of a context's turn, shorter than most tasks."""

ONE_FAILS = Kernel(
    "one_fails",
    """
    s2r   r0, ctaid.x
    seq   r0, r0, 1
    s2r   r1, ctaid.y
    seq   r1, r1, 1
    and   r0, r0, r1
    s2r   r1, warp
    and   r0, r0, r1
    bnone r0, on
    ldc   r0, [CYCLES]
    wait  r0
    pop
    on: bra on
    """,
    {"CYCLES": 4},
)
"""Warp 1 of block (1, 1) fails after CYCLES cycles, at `pop` without a mask; other warps never
end."""

ENDLESS = Kernel("endless", "again: bra again", {})

IS_QUEUE = 1 << 136 | 64 << 160
"""A queue of 64 entries, one for each block."""


def two_contexts(tb: ComputeTestbench) -> list[set[int]]:
    """Assign the even address spaces to context 0 and the odd ones to context 1. Returns the spaces
    of each."""
    spaces = [set(range(number, CONFIG.asids, 2)) for number in range(2)]
    for number, asids in enumerate(spaces):
        tb.context(number, asids)
    return spaces


def spinning(blocks: int) -> Job:
    """Blocks of two warps that take slightly more than 300 cycles."""
    return Job(SPIN, (blocks, 1, 1), (64, 1, 1), {"CYCLES": 300})


@cocotb.test()
async def all_kernels_at_once(dut: Any) -> None:
    """Results of each supplied kernel (in Icarus half of them) are correct, in different address
    spaces at the same addresses (ASID-27)."""
    tb = await ComputeTestbench(dut).start()
    tasks = [Launch(n, job, asid=n, priority=n % 3) for n, job in some([*enumerate(JOBS)], 2)]
    for task in tasks:
        tb.launch(task)
    await tb.finish()
    for task in tasks:
        tb.check(task)
    assert tb.bound == set(range(CONFIG.asids)) and not tb.faults
    print(f"{len(tasks)} tasks in {tb.cycle} cycles")


@cocotb.test()
async def contexts_in_turn(dut: Any) -> None:
    """Two contexts whose tasks need several slices take turns. A turn begins when all spaces of its
    context are bound, accesses no memory of another context, and lasts at least a slice while it
    has tasks; all results are correct (ASID-21)."""
    tb = ComputeTestbench(dut, slice_cycles=SLICE)
    spaces = two_contexts(tb)
    await tb.start()
    jobs = [*repeat(spinning(fewer(32, 2)), 2), *some(JOBS[:6], 2)]
    tasks = [Launch(n, job, asid=n, context=n % 2) for n, job in enumerate(jobs)]
    for task in tasks:
        tb.launch(task)
    await tb.finish()
    for task in tasks:
        tb.check(task)
    assert all(one.context != two.context for one, two in pairwise(tb.turns))
    assert len(tb.turns) >= 6
    for turn in tb.turns:
        assert turn.bound == spaces[turn.context] >= turn.reached
    for turn in tb.turns[:-1]:
        assert turn.over is not None
        mine = [task.over for task in tasks if task.context == turn.context]
        done = all(over is not None and over <= turn.over for over in mine)
        assert done or turn.over - turn.begun >= SLICE


@cocotb.test()
async def killed_while_binding(dut: Any) -> None:
    """A context whose tasks are killed while its spaces are being bound is starting until the last
    bind, although the engine is idle (ASID-21)."""
    tb = await ComputeTestbench(dut).start()
    kills = Source(tb, "control__kill")
    tb.launch(Launch(0, spinning(1), asid=1))
    await tb.until(lambda: bool(tb.bound), "the first bind")
    kills.put({"scope": KillScope.SPACE, "asid": 1})
    await tb.until(lambda: tb.get("control__idle"), "idle")
    assert tb.get("control__starting") and len(tb.bound) < CONFIG.asids
    await tb.until(lambda: not tb.get("control__starting"), "no bind is left")
    assert len(tb.bound) == CONFIG.asids and tb.get("control__active")


@cocotb.test()
async def slices_have_their_length(dut: Any) -> None:
    """While another context waits, a turn lasts a slice and the end of its short blocks, no longer
    (ASID-21)."""
    slice_cycles, leaving = 1500, 300
    tb = ComputeTestbench(dut, slice_cycles=slice_cycles)
    two_contexts(tb)
    await tb.start()
    short = Job(SPIN, (400, 1, 1), (32, 1, 1), {"CYCLES": 1})
    for number in range(2):
        tb.launch(Launch(number, short, asid=number, context=number))
    await tb.until(lambda: len(tb.turns) == 4, "fourth turn")
    for turn in tb.turns[:3]:
        assert turn.over is not None
        assert slice_cycles <= turn.over - turn.begun <= slice_cycles + leaving


@cocotb.test()
async def past_its_slice(dut: Any) -> None:
    """Tasks with a warp that never ends keep their context on the SMs for the slice and the
    time-out, no longer. They fail; other tasks of the context do not, and end in later turns
    (PREEMPT-1)."""
    limit, leaving = 2000, 300
    tb = ComputeTestbench(dut, slice_cycles=SLICE)
    two_contexts(tb)
    tb.drive(control__timeout=limit)
    await tb.start()
    endless = Job(ENDLESS, (1, 1, 1), (32, 1, 1), {})
    victims = [Launch(10 + n, endless, asid=4 + 2 * n) for n in range(2)]
    tasks = [Launch(n, spinning(16), asid=n, context=n % 2) for n in range(4)]
    for task in (*victims, *tasks):
        tb.launch(task)
    await tb.finish()
    for task in tasks:
        tb.check(task)
    assert [one.verdict for one in victims] == [Refusal.TIMEOUT] * 2
    first = tb.turns[0]
    assert first.context == 0 and first.over is not None
    assert SLICE + limit <= first.over - first.begun <= SLICE + limit + leaving
    assert all(one.over is not None and one.over > first.over for one in tasks)


@cocotb.test()
async def urgent_task(dut: Any) -> None:
    """On a full machine, an urgent task is over long before earlier ones (PLACE-5)."""
    tb = await ComputeTestbench(dut).start()
    long = spinning(blocks=16)
    low = [Launch(n, long, asid=1, priority=1) for n in range(CONFIG.slots)]
    for task in low:
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    await tb.steps(500)
    urgent = Launch(50, JOBS[0], asid=2, priority=9)
    tb.launch(urgent)
    begun = tb.cycle
    await tb.until(lambda: urgent.over is not None, "urgent task over")
    print(f"urgent task over after {tb.cycle - begun} cycles")
    assert all(task.over is None for task in low)
    tb.check(urgent)
    await tb.finish()


@cocotb.test()
async def not_tied_to_an_sm(dut: Any) -> None:
    """An urgent block that was sent to an SM with long blocks begins on the other SM, whose warps
    end all the time (PLACE-5)."""
    longest, busy = 0, Job(SPIN, (400, 1, 1), (64, 1, 1), {"CYCLES": 300})
    for turn in range(6):
        tb = ComputeTestbench(dut)
        tb.context(0, range(CONFIG.asids), Placement.DEEP)
        await tb.start()
        long = Launch(0, Job(SPIN, (2, 1, 1), (96, 1, 1), {"CYCLES": 40_000}), asid=1, priority=1)
        tb.launch(long)
        await tb.steps(1500)
        tb.launch(Launch(1, busy, asid=1, priority=1))
        await tb.steps(1500 + 37 * turn)
        urgent = Launch(2, Job(SPIN, (1, 1, 1), (32, 1, 1), {"CYCLES": 10}), asid=2, priority=9)
        tb.launch(urgent)
        begun = tb.cycle
        await tb.until(lambda one=urgent: one.over is not None, "urgent task over", 45_000)
        longest = max(longest, tb.cycle - begun)
    print(f"urgent tasks over after at most {longest} cycles")
    assert longest < 1200


@cocotb.test()
async def urgent_tasks(dut: Any) -> None:
    """While tasks that wait only for the ends of their blocks hold all slots, as many urgent tasks
    as have room on the SMs run at once, although the rows of the others remain occupied
    (ASID-24)."""
    tb = await ComputeTestbench(dut).start()
    long = Job(SPIN, (1, 1, 1), (32, 1, 1), {"CYCLES": 8000})
    low = [Launch(n, long, asid=1, priority=1) for n in range(CONFIG.slots)]
    for task in low:
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    await tb.steps(500)
    room = CONFIG.sms * CONFIG.sm_blocks - CONFIG.slots
    short = Job(SPIN, (1, 1, 1), (32, 1, 1), {"CYCLES": 2000})
    urgent = [Launch(50 + n, short, asid=2, priority=9 + n) for n in range(room)]
    begun = tb.cycle
    for task in urgent:
        tb.launch(task)
    await tb.until(lambda: all(task.over is not None for task in urgent), "urgent tasks over")
    assert room > 1 and tb.cycle - begun < 4000
    assert all(task.over is None for task in low)
    await tb.finish()


@cocotb.test()
async def dependent_tasks(dut: Any) -> None:
    """The end of a task schedules the next, after its release (HOST-10)."""
    tb = await ComputeTestbench(dut).start()
    first, second = Launch(0, JOBS[0], asid=3), Launch(1, JOBS[0], asid=3)
    first.more = release(0, address=0x5000) | second.page << 480 | 1 << 512 | 1 << 513
    second.more = release(2, address=0x6000)
    tb.know(second)
    tb.launch(first)
    await tb.until(lambda: tb.reads(second.page << 8), "second task's record is read")
    assert tb.released == [(3, 0x5000)]
    await tb.until(lambda: second.over is not None, "second task over")
    assert tb.released == [(3, 0x5000), (3, 0x6000)]
    await tb.finish()
    tb.check(second)


@cocotb.test()
async def many_dependent_tasks(dut: Any) -> None:
    """Tasks that end together, each with a dependent task, do not deadlock while channels launch
    more; each dependent task is in its parent's context."""
    tb = ComputeTestbench(dut, slice_cycles=400)
    spaces = two_contexts(tb)
    await tb.start()
    parents = [Launch(n, JOBS[-1], asid=n, context=n % 2, priority=n % 3) for n in range(8)]
    children = [Launch(20 + n, JOBS[-1], asid=n, priority=5) for n in range(8)]
    for parent, child in zip(parents, children, strict=True):
        parent.more = child.page << 480 | 1 << 512 | 1 << 513
        tb.know(child)
        tb.launch(parent)
    await tb.finish()
    assert all(task.over is not None for task in (*parents, *children))
    assert all(turn.reached <= spaces[turn.context] for turn in tb.turns)


@cocotb.test()
async def queues(dut: Any) -> None:
    """Blocks of queues are placed when entries arrive, while other blocks run or the queue rests,
    next to other tasks; results are correct (ASID-26)."""
    tb = await ComputeTestbench(dut, slice_cycles=600).start()
    grid = fewer(20, 2)
    jobs = vectors(15 * grid, grid=grid, block=16)[:2]
    queues = [Launch(n, job, asid=n + 1, context=n) for n, job in enumerate(jobs)]
    others = [Launch(10 + n, JOBS[-1], asid=8 + n, priority=2 * n) for n in range(4)]
    for queue in queues:
        queue.more = IS_QUEUE
    for task in (*queues, *others):
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    left = {queue.number: queue.job.launch()["grid"][0] for queue in queues}
    start = dict.fromkeys(left, 0)
    while any(left.values()):
        queue = tb.random.choice([one for one in queues if left[one.number]])
        count = tb.random.randint(1, min(3, left[queue.number]))
        assert await tb.append(queue, start[queue.number], count) is Cause.NONE
        start[queue.number] += count
        left[queue.number] -= count
        await tb.steps(tb.random.choice((0, 10, 400)))
    assert all(queue.over is None for queue in queues)
    for queue in queues:
        assert await tb.append(queue, start[queue.number], 0) is Cause.NONE
    await tb.finish()
    for task in (*queues, *others):
        tb.check(task)


@cocotb.test()
async def queue_kept_full(dut: Any) -> None:
    """A producer that appends an entry whenever OUTER_GET makes room keeps all blocks of a short
    queue running: once the first blocks have ended, it loses only the time in which a block starts
    and ends and its successor is appended (ASID-26)."""
    tb = await ComputeTestbench(dut).start()
    size, entries, cycles = 4, fewer(40, 2), 400
    queue = Launch(0, Job(SPIN, (1, 1, 1), (32, 1, 1), {"CYCLES": cycles}), asid=1)
    queue.more = 1 << 136 | size << 160
    tb.launch(queue)
    await tb.until(lambda: not tb.waiting, "launch answered")

    def freed() -> int:
        return int.from_bytes(tb.contents.read((1, 0), (queue.page << 8) + 4, 4), "little")

    begun = 0
    for entry in range(entries):
        await tb.until(lambda entry=entry: entry < freed() + size, "room")
        begun = begun or tb.cycle * (freed() >= size)
        assert await tb.append(queue, entry, 1) is Cause.NONE
    await tb.until(lambda: freed() == entries, "all entries are processed")
    took, ideal = tb.cycle - begun, (entries - size) * cycles // size
    print(f"{entries} entries of {cycles} cycles, {size} at a time: {took} cycles, ideal {ideal}")
    assert took < 1.75 * ideal
    assert await tb.append(queue, entries, 0) is Cause.NONE
    await tb.finish()


@cocotb.test()
async def one_task_faults(dut: Any) -> None:
    """A task with unmapped memory fails; the results of others are correct (ASID-5)."""
    tb = await ComputeTestbench(dut).start()
    everything = range(0x2000_0000, 0x2100_0000)
    tb.contents.failing = [Failing((5, 0), everything, MemoryStatus.FAULT, write=False)]
    tasks = [Launch(n, JOBS[n], asid=4 + n) for n in range(3)]
    for task in tasks:
        tb.launch(task)
    victim = Launch(7, JOBS[0], asid=5)
    tb.launch(victim)
    await tb.finish()
    assert victim.verdict is Refusal.KERNEL and tb.faults
    for task in tasks:
        if task.asid != 5:
            tb.check(task)


@cocotb.test()
async def fault_ends_warps_of_every_sm(dut: Any) -> None:
    """When a warp faults, its block and number are reported, and all warps of its task end, on
    every SM, although they would run forever. The tasks that waited for room follow, with correct
    results (ASID-5)."""
    tb = await ComputeTestbench(dut).start()
    blocks = CONFIG.sms * CONFIG.sm_blocks
    grid = 2, blocks // 2, 1
    victim = Launch(7, Job(ONE_FAILS, grid, (64, 1, 1), {"CYCLES": 1500}), asid=5)
    tb.launch(victim)
    await tb.until(lambda: not tb.waiting, "launch answered")
    tasks = [Launch(n, JOBS[n], asid=n) for n in range(2)]
    for task in tasks:
        tb.launch(task)
    await tb.until(lambda: tb.faults, "fault")
    (fault,) = tb.faults
    assert (fault["block"], fault["index"]) == ({"x": 1, "y": 1, "z": 0}, 1)
    for server in tb.sm_reads:
        assert {burst.request["asid"] for burst in server.bursts} == {5}, "an SM has no warps"
    await tb.until(lambda: victim.over is not None, "victim over", 3000)
    assert victim.verdict is Refusal.KERNEL
    await tb.finish()
    for task in tasks:
        tb.check(task)
