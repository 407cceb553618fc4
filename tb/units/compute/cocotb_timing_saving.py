"""The compute engine with timing cores whose blocks are stopped (PREEMPT-9)."""

from typing import Any

import cocotb

from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.units.compute.cocotb_timing import Stores, once
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.saving_steps import FULL, state_writes, stop_for, turns
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

SLICE = 3000
"""Cycles that a context runs while another waits."""

LEAVING = 2500
"""Maximum cycles in which a context of level CILP leaves and the next begins to run."""

URGENT = 2500
"""Maximum cycles of an urgent task, including those in which others are stopped."""


@cocotb.test()
async def urgent_among_long(dut: Any) -> None:
    """On SMs full of warps that compute for very long, an urgent task is over soon, and the others
    take no longer than their time and the interruptions."""
    tb = ComputeTestbench(dut)
    tb.context(0, range(CONFIG.asids), saves=True)
    await tb.start()
    low = [Launch(n, Stores((2, 1, 1), 3, 1, 20_000, 1024), asid=1 + n) for n in range(2)]
    begun = tb.cycle
    for task in low:
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    await tb.steps(2000)
    urgent, spent = [], 0
    for turn in range(3):
        task = Launch(50 + turn, Stores((3, 1, 1), 2, 2, 100), asid=5 + turn, priority=9)
        before = tb.cycle
        tb.launch(task)
        await tb.until(lambda one=task: one.over is not None, "urgent task over")
        urgent.append(task)
        spent += tb.cycle - before
        assert tb.cycle - before < URGENT
        await tb.steps(500)
    assert all(task.over is None for task in low)
    await tb.until(lambda: all(task.over is not None for task in low), "the others", 100_000)
    await tb.finish()
    once(tb, low + urgent)
    least = 2 * 20_000
    last = max(task.over for task in low if task.over is not None)
    print(f"urgent tasks: {spent} cycles; the others: {last - begun}, at least {least}")
    assert least < last - begun < least + spent + 3000


@cocotb.test()
async def contexts_in_turn(dut: Any) -> None:
    """At level CILP, contexts whose warps compute for very long run in turn, each for little more
    than its slice, and each warp computes for its time (PREEMPT-8)."""
    tb = ComputeTestbench(dut, slice_cycles=SLICE)
    for number in range(2):
        tb.context(number, range(number, CONFIG.asids, 2), level=PreemptionLevel.CILP)
    await tb.start()
    jobs = [Stores((3, 1, 1), 3, 1, 10_000) for _ in range(2)]
    tasks = [Launch(n, job, asid=n, context=n, priority=n) for n, job in enumerate(jobs)]
    for task in tasks:
        tb.launch(task)
    lengths = await turns(tb, tasks, 200_000)
    assert all(SLICE <= length < SLICE + LEAVING for length in lengths[1:-3])
    await tb.finish()
    once(tb, tasks)


@cocotb.test()
@cocotb.parametrize(turn=range(4))
async def random_tasks(dut: Any, turn: int) -> None:
    """If tasks of random priorities in two contexts of random levels, launched at random times, may
    have blocks of others stopped repeatedly, each access is made once. At least one task has."""
    tb = ComputeTestbench(dut, slice_cycles=4000)
    numbers = tb.random
    numbers.seed(numbers.random() + turn)
    for number in range(2):
        spaces, level = range(number, CONFIG.asids, 2), numbers.choice([*PreemptionLevel])
        tb.context(number, spaces, saves=number == 0 or numbers.random() < 0.8, level=level)
    await tb.start()
    tasks = []
    for number in range(CONFIG.asids - 2):
        warps, count = numbers.randint(1, 4), numbers.randint(1, 3)
        cycles, shared = numbers.choice((10, 300, 2000)), numbers.choice((0, 0, 1024))
        job = Stores((numbers.randint(1, 7), 1, 1), warps, count, cycles, shared)
        priority = numbers.choice((0, 1, 5, 9, 30, 63))
        if number == 0:
            job, priority = Stores(FULL, 3, 1, 20_000), 0
        elif number == 2:
            priority = 63
        tasks.append(Launch(number, job, asid=number, context=number % 2, priority=priority))
    full, other, urgent, *rest = tasks
    await stop_for(tb, urgent, full)
    for task in (other, *rest):
        tb.launch(task)
        await tb.steps(numbers.choice((1, 100, 1000, 5000)))
    await tb.until(lambda: all(task.over is not None for task in tasks), "all tasks", 300_000)
    await tb.finish()
    assert not tb.faults
    once(tb, tasks)
    print(f"{state_writes(tb)} writes of state")
