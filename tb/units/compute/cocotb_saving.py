"""Urgent tasks whose blocks have others stopped (PREEMPT-3, PREEMPT-5)."""

from typing import Any

import cocotb

from signalbox.driver.kernels.library import SPIN
from signalbox.hw.errors import Refusal
from signalbox.hw.registers import KillScope, PreemptionLevel
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.jobs import JOBS, Job
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.saving_steps import (
    FULL,
    places_written,
    state_writes,
    stop_for,
    turns,
)
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

STOP = 20 + 8 + 16 * 4 * 2 + 3 * (24 + 80) + (24 + 84 + 2 * 8) + (8 + 1)
"""Maximum cycles in which a block of `urgent_among_endless` is stopped, as in hw/sm/README.md: 20
until the core is told and after it has saved the block, 8 for an access, 16 lines of state at 4
accesses of 2 cycles each, 3 warps with 24 + 80, 24 + 84 + 2 * 8 for the last write; and 8 + 1
until the next stop."""

SLICE = 3000
"""Cycles that a context runs while another waits."""

KILLED = 5000
"""Maximum cycles from a kill request until the task is over."""

LEAVING = 4000
"""Maximum cycles in which a context of level CILP leaves and the next begins to run."""


@cocotb.test()
async def urgent_among_endless(dut: Any) -> None:
    """On SMs full of warps that take very long, urgent tasks take as long as on empty SMs and the
    stops of two blocks, and the others still compute the right results."""
    tb = ComputeTestbench(dut)
    tb.context(0, range(CONFIG.asids), saves=True)
    await tb.start()

    async def cycles(number: int, turn: int) -> int:
        urgent, begun = Launch(number, JOBS[turn], asid=5 + turn, priority=9), tb.cycle
        tb.launch(urgent)
        await tb.until(lambda: urgent.over is not None, "urgent task over")
        tb.check(urgent)
        return tb.cycle - begun

    alone = [await cycles(40 + turn, turn) for turn in range(3)]
    long = Job(SPIN, (2, 1, 1), (96, 1, 1), {"CYCLES": 60_000})
    low = [Launch(n, long, asid=1 + n, priority=1) for n in range(2)]
    for task in low:
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    await tb.steps(2000)
    for turn in range(3):
        took = await cycles(50 + turn, turn)
        print(f"urgent task over after {took} cycles, alone {alone[turn]}")
        assert took <= alone[turn] + 2 * STOP
        await tb.steps(2000)
    assert all(task.over is None for task in low)
    await tb.until(lambda: all(task.over is not None for task in low), "the others", 200_000)
    await tb.finish()
    for task in low:
        tb.check(task)


@cocotb.test()
async def one_victim_for_one_block(dut: Any) -> None:
    """On SMs without a free block slot, an urgent task of one block has exactly one block
    stopped."""
    tb = ComputeTestbench(dut)
    tb.context(0, range(CONFIG.asids), saves=True)
    await tb.start()
    blocks = CONFIG.sms * CONFIG.sm_blocks
    long = Job(SPIN, (blocks, 1, 1), (32, 1, 1), {"CYCLES": 80_000})
    tb.launch(Launch(0, long, asid=1, priority=1))
    await tb.until(lambda: not tb.waiting, "launch answered")
    await tb.steps(2000)
    short = Job(SPIN, (1, 1, 1), (32, 1, 1), {"CYCLES": 20})
    for number in range(1, 6):
        urgent = Launch(number, short, asid=2, priority=9)
        tb.launch(urgent)
        begun = tb.cycle
        await tb.until(lambda one=urgent: one.over is not None, "urgent task over")
        await tb.steps(tb.random.randrange(2000, 2500))
        tb.check(urgent)
        assert len(places_written(tb, begun)) == 1


@cocotb.test()
async def killed_after_eviction(dut: Any) -> None:
    """A task that lost its slot while its blocks were saved is killed soon, although endless blocks
    of more urgent tasks hold all SMs (PREEMPT-7)."""
    tb = ComputeTestbench(dut)
    tb.context(0, range(CONFIG.asids), saves=True)
    await tb.start()
    kills, blocks = Source(tb, "control__kill"), CONFIG.sms * CONFIG.sm_blocks

    def endless(number: int, count: int, priority: int) -> Launch:
        job = Job(SPIN, (count, 1, 1), (32, 1, 1), {"CYCLES": 10_000_000})
        return Launch(number, job, asid=1 + number, priority=priority)

    async def killed(*tasks: Launch) -> None:
        for task in tasks:
            kills.put({"scope": KillScope.TASK, "asid": task.asid, "page": task.page})
        await tb.until(lambda: all(one.over is not None for one in tasks), "killed", KILLED)
        assert {one.verdict for one in tasks} == {Refusal.KILLED}

    low = endless(0, blocks, 1)
    tb.launch(low)
    await tb.until(lambda: not tb.waiting, "launch answered")
    await tb.steps(2000)
    urgent = [endless(1 + n, -(-blocks // (CONFIG.slots - 1)), 9) for n in range(CONFIG.slots)]
    for task in urgent:
        tb.launch(task)
    await tb.until(lambda: not tb.waiting, "launches answered")
    await tb.steps(20_000)
    assert state_writes(tb) and all(one.over is None for one in (low, *urgent))
    await killed(low)
    await killed(*urgent)
    await tb.finish()


@cocotb.test()
async def contexts_in_turn(dut: Any) -> None:
    """At level CILP, contexts whose warps take very long run in turn, each for little more than its
    slice, and all compute the right results (PREEMPT-8)."""
    tb = ComputeTestbench(dut, slice_cycles=SLICE)
    for number in range(2):
        tb.context(number, range(number, CONFIG.asids, 2), level=PreemptionLevel.CILP)
    await tb.start()
    long = Job(SPIN, (3, 1, 1), (96, 1, 1), {"CYCLES": 30_000})
    tasks = [Launch(n, long, asid=n, context=n % 2, priority=n) for n in range(2)]
    for task in tasks:
        tb.launch(task)
    lengths = await turns(tb, tasks, 400_000)
    assert all(SLICE <= length < SLICE + LEAVING for length in lengths[1:-3])
    await tb.finish()
    for task in tasks:
        tb.check(task)


@cocotb.test()
@cocotb.parametrize(turn=range(4))
async def random_tasks(dut: Any, turn: int) -> None:
    """If tasks of random priorities in two contexts of random levels, launched at random times, may
    have blocks of others stopped repeatedly, all results are correct. At least one task has."""
    tb = ComputeTestbench(dut, slice_cycles=4000)
    numbers = tb.random
    numbers.seed(numbers.random() + turn)
    for number in range(2):
        spaces, level = range(number, CONFIG.asids, 2), numbers.choice([*PreemptionLevel])
        tb.context(number, spaces, saves=number == 0 or numbers.random() < 0.8, level=level)
    await tb.start()
    tasks = []
    for number in range(CONFIG.asids - 2):
        cycles = numbers.choice((10, 300, 2000))
        spins = Job(SPIN, (numbers.randint(1, 4), 1, 1), (96, 1, 1), {"CYCLES": cycles})
        job = numbers.choice((numbers.choice(JOBS), spins))
        priority = numbers.choice((0, 1, 5, 9, 30, 63))
        if number == 0:
            job, priority = Job(SPIN, FULL, (96, 1, 1), {"CYCLES": 20_000}), 0
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
    for task in tasks:
        tb.check(task)
    print(f"{state_writes(tb)} writes of state")
