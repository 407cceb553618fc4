"""Kills, faults and bus errors while blocks of the timing core are saved, are away, and are
restored (PREEMPT-9)."""

from collections import Counter, deque

import cocotb

from signalbox.tb.models.isa import Launch
from signalbox.tb.models.timing import Timing
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_preempt import Stopping
from signalbox.tb.units.sm.cocotb_preempt_ends import (
    LINES,
    OTHER,
    PHASES,
    STATE_BUS,
    VICTIM,
    breaks,
    gone,
    index_of,
    kill_in,
)
from signalbox.tb.units.sm.cocotb_preempt_ways import begin, go_on, stop
from signalbox.tb.units.sm.cocotb_timing import run
from signalbox.tb.units.sm.cocotb_timing_stops import ROUNDS, agree
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Fault, Task
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench
from signalbox.tb.units.sm.timing_launches import (
    DATA,
    PAGE,
    RECORD,
    accesses,
    launch,
    made,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

PROGRAM_BUS, MEMORY_FAULT = 2, 5
"""Causes, as in `CoreCause`."""


def victim(*, barrier: bool = False) -> Launch:
    """Two warps that never end, with two units of shared memory."""
    timing = Timing(0xFFFF, 1, 0, DATA, 40, 31, 0, WIDTH)
    return launch(timing, warps=2, registers=8, shared=2048, barrier=barrier)


class Neighbour:
    """A kernel of several blocks in another row, which is not disturbed."""

    def __init__(self, tb: PreemptingTestbench) -> None:
        self._timing = Timing(9, tb.random.randrange(2), WIDTH, DATA, 30, 31, 10 * WIDTH)
        self._launch = launch(self._timing, (4, 1, 1))
        for kept in (tb.port.read.taken, tb.port.write.taken):
            kept.clear()
        tb.launch(Task(OTHER, self._launch))

    def check(self, tb: PreemptingTestbench) -> None:
        agree(tb, OTHER, self._launch, accesses(self._launch, self._timing))


async def fills(tb: PreemptingTestbench) -> None:
    """Check that all resources are free and the core works: a block that needs all of them runs."""
    warps = next(n for n in range(CONFIG.sm_warps, 0, -1) if CONFIG.register_units % n == 0)
    timing = Timing(2, 1, WIDTH, DATA, 5, 0, 0, 2 * WIDTH)
    registers = 4 * CONFIG.register_units // warps
    task = launch(timing, (1, 1, 1), warps, 2, registers=registers, shared=CONFIG.sm_shared)
    await run(tb, {VICTIM: task})
    agree(tb, VICTIM, task, accesses(task, timing))


async def ended(tb: PreemptingTestbench) -> None:
    """After the kill: check that everything ends, and nothing is lost."""
    await gone(tb)
    await tb.rest()
    tb.tasks.clear()
    tb.revive()
    assert not tb.places


@cocotb.test(**LIMIT)
@cocotb.parametrize(phase=[*PHASES], barrier=[False, True])
async def kills(dut, phase, barrier):
    """The row of a block is killed: the block ends soon, its resources are free, and other rows are
    not disturbed."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        neighbour = await kill_in(tb, phase, victim(barrier=barrier), Neighbour)
        await ended(tb)
        neighbour.check(tb)
        await fills(tb)
        assert not tb.faults, tb.faults


@cocotb.test(**LIMIT)
async def stop_of_a_killed_row(dut):
    """If a block of a killed row is stopped, nothing of it is saved."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        tb.port.latency = (60, 90)
        task = await begin(tb, victim(barrier=True), VICTIM)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        await tb.steps(100 + tb.random.randrange(100))
        tb.port.write.taken.clear()
        tb.kill(VICTIM)
        for slot in tb.stoppable:
            assert tb.slots[slot].task.launch is task.launch
            tb.stop(slot)
        await ended(tb)
        assert not any(one["physical"] for _, one in tb.port.write.taken)
        assert not tb.faults
    assert tb.saved


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=LINES, restores=[False, True])
async def bus_errors(dut, kind, restores):
    """A bus error of a line while a block is saved or restored is reported once, with the row and
    the warp. The block can be killed then, and other rows are not disturbed."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        tb.faults.clear()
        tb.port.latency = tb.random.choice(((1, 2), (3, 20), (60, 90)))
        task = await begin(tb, victim(barrier=tb.random.random() < 0.5), VICTIM)
        await tb.until(lambda: len(tb.warps) == 2, "all warps start")
        await tb.steps(300)
        if restores:
            await stop(tb, task)
        neighbour = Neighbour(tb)
        breaks(tb, task, kind)
        await (go_on(tb, task) if restores else stop(tb, task))
        await tb.until(lambda: tb.faults, "the fault is reported")
        await tb.steps(tb.random.randrange(2000))
        tb.state.bad_lines.clear()
        tb.kill(VICTIM)
        await ended(tb)
        assert tb.faults == [Fault(VICTIM, STATE_BUS, 0, 0)], tb.faults
        assert tb.faults[0].index == index_of(kind), tb.faults
        neighbour.check(tb)
        await fills(tb)


@cocotb.test(**LIMIT)
async def failing_accesses(dut):
    """Warps of blocks that are stopped repeatedly report a failing access once, with its number,
    and end; their earlier accesses are made once."""
    tb = await Stopping(dut).start()
    rounds = Rounds(ROUNDS)
    while rounds.more(bool(tb.saved), "no block was saved"):
        tb.rate = 0.02
        store, warps, count = tb.random.randrange(2), min(3, CONFIG.sm_warps), 6
        timing = Timing(count, store, WIDTH, DATA + PAGE - 4 * WIDTH, 20, 31, 0, WIDTH)
        task = launch(timing, (3, 1, 1), warps)
        await run(tb, {2: task}, 500_000)
        failing = {warp: max(0, 4 - warp) for warp in range(warps)}
        wanted = Counter(
            Fault(2, MEMORY_FAULT, number << 16 | n + 1, timing.at(number, warp, n))
            for number in range(3)
            for warp, n in failing.items()
        )
        assert Counter(tb.faults) == wanted, tb.faults
        good = Counter(
            timing.at(number, warp, n)
            for number in range(3)
            for warp, last in failing.items()
            for n in range(last + 1)
        )
        assert made(tb, 2)[store] == good


@cocotb.test(**LIMIT)
async def unreadable_when_it_returns(dut):
    """If the record of a saved block can no longer be read, its warps report this, except those
    that had ended."""
    tb = await PreemptingTestbench(dut).start()
    warps, reported = min(4, CONFIG.sm_warps), 0
    for _ in range(ROUNDS):
        tb.faults.clear()
        tb.spans.clear()
        task = launch(Timing(1, 1, 0, DATA, 60, 255, 0, WIDTH), warps=warps)
        one = await begin(tb, task, VICTIM)
        await tb.until(lambda: tb.spans, "a warp ends")
        if not tb.stoppable:
            continue
        await stop(tb, one)
        left = saved_warps(tb, one)
        task.memory.broken.add(RECORD // PAGE)
        again = Task(VICTIM, task, deque())
        again.blocks.clear()
        tb.launch(again)
        tb.tasks.remove(again)
        await go_on(tb, one)
        await tb.until(lambda: not tb.slots, "the block ends")
        tb.tasks.clear()
        assert tb.faults == [Fault(VICTIM, PROGRAM_BUS, 0, RECORD)] * left
        reported += left
    assert reported


def saved_warps(tb: PreemptingTestbench, task: Task) -> int:
    """Number of warps that are marked as saved in the place of a block."""
    place = tb.places[task.row, (0, 0, 0)] * PAGE
    return int.from_bytes(tb.state.read(place + 8, 8), "little").bit_count()
