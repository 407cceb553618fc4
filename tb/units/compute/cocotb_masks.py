"""Tasks that disable SMs (HOST-10): each has its own address space, which a disabled SM must not
access."""

from collections.abc import Iterable
from typing import Any

import cocotb

from signalbox.driver.kernels.library import SPIN
from signalbox.hw.errors import Cause
from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.testbench.jobs import JOBS, Job
from signalbox.tb.units.compute.launch import Launch, only_on
from signalbox.tb.units.compute.saving_steps import FULL, state_writes, stop_for
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench


def pinned(
    number: int, job: Job, sms: Iterable[int], priority: int = 0, context: int = 0
) -> Launch:
    """A task for these SMs only, in the address space with its number."""
    return Launch(number, job, number, priority, context, more=only_on(sms))


def reached(tb: ComputeTestbench, asid: int) -> set[int]:
    """SMs that have accessed an address space."""
    ports = [*enumerate(tb.sm_reads), *enumerate(tb.sm_writes)]
    return {sm for sm, port in ports if any(burst.space[0] == asid for burst in port.bursts)}


def saved(tb: ComputeTestbench) -> dict[int, set[int]]:
    """SMs that have written states, by address space."""
    found: dict[int, set[int]] = {}
    for sm, port in enumerate(tb.sm_writes):
        for burst in port.bursts:
            if burst.space[1]:
                found.setdefault(burst.space[0], set()).add(sm)
    return found


@cocotb.test()
async def stops_where_it_may(dut: Any) -> None:
    """An urgent task has blocks stopped on the SM that takes its blocks, not on others with less
    urgent blocks. A stopped block returns to an SM that takes it, although another SM has been free
    for long (PREEMPT-3, PREEMPT-5)."""
    tb = ComputeTestbench(dut)
    tb.context(0, range(CONFIG.asids), saves=True)
    await tb.start()
    lengths = (2_000, 60_000, 60_000)
    low = [
        pinned(n, Job(SPIN, (1, 1, 1), (192, 1, 1), {"CYCLES": cycles}), {n}, 2 - n // 2)
        for n, cycles in enumerate(lengths)
    ]
    for task in low:
        tb.launch(task)
    await tb.steps(1500)
    assert [reached(tb, n) for n in range(3)] == [{0}, {1}, {2}]
    long = Job(SPIN, (1, 1, 1), (192, 1, 1), {"CYCLES": 6_000})
    urgent = pinned(5, long, {1}, priority=9)
    tb.launch(urgent)
    await tb.until(lambda: urgent.over is not None, "urgent task over")
    assert low[0].over is not None and urgent.over is not None
    assert urgent.over > low[0].over + 2_000
    assert set(saved(tb)) == {1} and reached(tb, 1) == {1}
    await tb.until(lambda: low[1].over is not None, "the stopped task over", 100_000)
    assert reached(tb, 1) == {1}
    await tb.finish()
    for task in (*low, urgent):
        tb.check(task)


@cocotb.test()
async def no_sm_left(dut: Any) -> None:
    """A task that disables all SMs is refused; the next one is not affected."""
    tb = await ComputeTestbench(dut).start()
    tb.launch(pinned(1, JOBS[0], ()))
    await tb.until(lambda: tb.answer is not None, "answer")
    assert tb.answer is Cause.TASK_MODEL
    task = pinned(2, JOBS[0], {CONFIG.sms - 1})
    tb.launch(task)
    await tb.finish()
    tb.check(task)
    assert reached(tb, 2) == {CONFIG.sms - 1}


@cocotb.test()
@cocotb.parametrize(turn=range(3))
async def random_tasks(dut: Any, turn: int) -> None:
    """Tasks with random masks and priorities, in two contexts of random levels in turn, have
    blocks of others stopped, are evicted and return. Each is only on SMs that take it, and all
    results are correct. In each turn, the first task has blocks stopped for an urgent one; in the
    first turn, it outlasts its slice, too, and has its state saved."""
    tb = ComputeTestbench(dut, slice_cycles=3000)
    numbers = tb.random
    numbers.seed(numbers.random() + turn)
    for number in range(2):
        spaces, level = range(number, CONFIG.asids, 2), numbers.choice([*PreemptionLevel])
        saves = number == 0 or numbers.random() < 0.8
        if turn == 0:
            saves, level = True, PreemptionLevel.CILP
        tb.context(number, spaces, saves=saves, level=level)
    await tb.start()
    tasks, takes = [], {}
    for number in range(CONFIG.asids):
        cycles = numbers.choice((10, 300, 2000))
        spins = Job(SPIN, (numbers.randint(1, 6), 1, 1), (96, 1, 1), {"CYCLES": cycles})
        job = numbers.choice((numbers.choice(JOBS), spins, spins))
        takes[number] = set(numbers.sample(range(CONFIG.sms), numbers.randint(1, CONFIG.sms)))
        priority = numbers.choice((0, 1, 5, 9, 30, 63))
        if number == 0:
            job, priority = Job(SPIN, FULL, (96, 1, 1), {"CYCLES": 20_000}), 0
            takes[0] = {*range(CONFIG.sms)}
        elif number == 2:
            priority = 63
        tasks.append(pinned(number, job, takes[number], priority, number % 2))
    full, other, urgent, *rest = tasks
    await stop_for(tb, urgent, full)
    stopped = state_writes(tb)
    for task in (other, *rest):
        tb.launch(task)
        await tb.steps(numbers.choice((1, 100, 1000, 3000)))
    await tb.until(lambda: all(task.over is not None for task in tasks), "all tasks", 300_000)
    await tb.finish()
    for task in tasks:
        tb.check(task)
        assert reached(tb, task.asid) <= takes[task.number], task.number
    assert set().union(*(reached(tb, task.asid) for task in tasks)) == {*range(CONFIG.sms)}
    assert turn or state_writes(tb) > stopped
