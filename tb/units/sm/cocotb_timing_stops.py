"""Blocks of the timing core that stop and continue do the same as undisturbed ones, in the same
time (PREEMPT-9)."""

import os
from collections import Counter, deque
from dataclasses import replace

import cocotb

from signalbox.hw.config import STATE_LINE
from signalbox.tb.models.isa import Launch
from signalbox.tb.models.timing import Timing
from signalbox.tb.testbench.ends import Sink
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_preempt import Stopping
from signalbox.tb.units.sm.cocotb_preempt_ways import begin, begun, go_on, rest, stop, stops
from signalbox.tb.units.sm.cocotb_timing import EACH, run
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Task
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench
from signalbox.tb.units.sm.timing_launches import (
    DATA,
    RECORD,
    accesses,
    computed,
    launch,
    made,
    random_launch,
    timing_of,
    warps_of,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

ROUNDS = int(os.environ.get("ROUNDS", "1"))

MANY = 40
"""Rounds in which some block is stopped."""

HEAD = 16
"""Bytes of a line with a state, or with the fates of a block."""

START = 24
"""Maximum cycles from the last step of a warp to the first write of its state; likewise from the
last read to its next step."""


def agree(tb: PreemptingTestbench, row: int, task: Launch, wanted: Counter[int]) -> None:
    """Check that each access was made once."""
    expected = (Counter(), wanted) if timing_of(task).store else (wanted, Counter())
    assert made(tb, row) == expected


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def random_stops(dut, eager):
    """Random kernels whose blocks are stopped repeatedly make the same accesses as undisturbed
    ones, and write the same."""
    tb = await Stopping(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    rounds = Rounds(2 * ROUNDS, MANY)
    while rounds.more(tb.saved > 0, tb.saved):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        tb.rate = numbers.choice((0.003, 0.01, 0.03))
        rows = numbers.sample(range(CONFIG.rows), 2)
        tasks = {row: random_launch(numbers, numbers.randint(1, 4)) for row in rows}
        wanted = {row: computed(task) for row, task in tasks.items()}
        await run(tb, tasks, 500_000)
        assert not tb.faults
        for row, task in tasks.items():
            warps = {(one.at, one.index) for one in tb.spans if one.row == row}
            assert warps == {(at, warp) for at, _, warp in warps_of(task)}
            agree(tb, row, task, accesses(task, timing_of(task)))
            assert task.memory.pages == wanted[row].pages
    dut._log.info("%d blocks saved", tb.saved)


@cocotb.test(**LIMIT)
@cocotb.parametrize(store=[0, 1])
async def every_cycle(dut, store):
    """A kernel stopped once, in any of its cycles, makes each access once."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (10, 10)
    timing = Timing(2, store, WIDTH, DATA, 9, 7, 0, 2 * WIDTH)
    moment = stopped = 0
    while True:
        task = launch(timing, warps=min(3, CONFIG.sm_warps), shared=1024)
        wanted = computed(task)
        for kept in (tb.port.read.taken, tb.port.write.taken):
            kept.clear()
        await begin(tb, task, 1)
        await tb.steps(moment)
        for slot in tb.stoppable:
            tb.stop(slot)
        await rest(tb)
        agree(tb, 1, task, accesses(task, timing))
        assert task.memory.pages == wanted.pages, moment
        if tb.saved == stopped:
            break
        moment, stopped = moment + 1, tb.saved
    assert moment > 60
    dut._log.info("stopped in %d cycles", stopped)


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=[0, 2])
async def time_is_kept(dut, count):
    """A warp stopped repeatedly computes for its time, not less, and not longer by more than the
    cycles of saving, restoring and one round."""
    tb = await PreemptingTestbench(dut).start()
    for _ in range(2 * ROUNDS):
        latency = tb.random.choice((5, 40))
        tb.port.latency = (latency, latency)
        timing = Timing(count, 1, WIDTH, DATA, 1000)
        for kept in (tb.port.read.taken, tb.port.write.taken, tb.spans):
            kept.clear()
        task = await begin(tb, launch(timing), 1)
        await tb.until(lambda: tb.warps, "the warp starts")
        stops = 0
        while tb.slots:
            await tb.steps(tb.random.randrange(400))
            if not tb.stoppable:
                break
            await stop(tb, task)
            stops += 1
            await tb.steps(tb.random.choice((0, 50, 2000)))
            await go_on(tb, task)
            await tb.until(lambda: tb.warps or not tb.slots, "the warp starts")
        await rest(tb)
        spent = active(tb, latency)
        least = timing.computes(0, 0) * (count + 1) + latency * count
        most = least + EACH * (count + 1) + stops * (EACH + 2 * START)
        assert stops >= 2
        assert least - 4 * (stops + 1) <= spent <= most, (least, spent, most, stops)
        dut._log.info("%d stops: %d cycles more than %d", stops, spent - least, least)


def active(tb: PreemptingTestbench, latency: int) -> int:
    """Cycles in which the only warp was neither saved nor restored."""
    cycles = 0
    for span in tb.spans:
        reads, writes = (
            [n for n, one in sink.taken if one["physical"] and span.start < n < span.end]
            for sink in (tb.port.read, tb.port.write)
        )
        begins = max(reads) + latency if reads else span.start
        cycles += (min(writes) if writes else span.end) - begins
    return cycles


def lines(tb: PreemptingTestbench, task: Task) -> dict[str, set[int]]:
    """Numbers of the lines with the state of a block: lines with a head, and all lines."""
    first = tb.places[task.row, (0, 0, 0)] * 4096 // STATE_LINE
    shared, registers = 8 * task.shared, 4 * task.units
    warps = [first + 1 + shared + n * (1 + registers) for n in range(task.launch.warps)]
    heads = {first, *warps}
    return {"heads": heads, "all": set(range(first, warps[-1] + 1 + registers))}


@cocotb.test(**LIMIT)
async def size_of_the_state(dut):
    """A state has the size given by the task: each of its lines is written once and read once, and
    nothing else in the place changes."""
    tb = await PreemptingTestbench(dut).start()
    numbers = tb.random
    for _ in range(2 * ROUNDS):
        tb.port.latency = numbers.choice(((1, 2), (3, 20)))
        warps = numbers.randint(1, CONFIG.sm_warps)
        most = 4 * (CONFIG.register_units // warps)
        task = await begin(
            tb,
            launch(
                Timing(1, 1, 0, DATA, 50_000, 0, 0, WIDTH),
                warps=warps,
                registers=min(most, numbers.choice((1, 9, 40))),
                shared=numbers.choice((0, 1, 1024, CONFIG.sm_shared)),
            ),
            1,
        )
        await tb.until(lambda count=warps: len(tb.warps) == count, "all warps start")
        before = {page: bytes(content) for page, content in tb.state.pages.items()}
        await stop(tb, task)
        state = lines(tb, task)
        assert transferred(tb.port.write) == Counter(state["all"])
        for page, content in tb.state.pages.items():
            check_page(page, before[page], content, state)
        await go_on(tb, task)
        await tb.until(lambda count=warps: len(tb.warps) == count, "all warps start")
        await tb.steps(100 + 20 * len(state["all"]) * STATE_LINE // WIDTH)
        assert transferred(tb.port.read) == Counter(state["all"])
        tb.kill(1)
        await rest(tb)
        tb.revive()


def transferred(sink: Sink) -> Counter[int]:
    """Lines of states that were accessed, each in one burst. Forgets the accesses."""
    accesses = [one for _, one in sink.taken if one["physical"]]
    assert all((one["beats"] + 1) * WIDTH == STATE_LINE for one in accesses)
    found = Counter(one["va"] // STATE_LINE for one in accesses)
    assert all(one["va"] % STATE_LINE == 0 for one in accesses)
    sink.taken.clear()
    return found


def check_page(page: int, before: bytes, content: bytes, state: dict[str, set[int]]) -> None:
    """Check that a state consists of the heads of lines, and of zeros."""
    for n in range(4096 // STATE_LINE):
        line, part = page * 4096 // STATE_LINE + n, slice(n * STATE_LINE, (n + 1) * STATE_LINE)
        if line not in state["all"]:
            assert content[part] == before[part], line
        elif line in state["heads"]:
            assert any(content[part][:HEAD]) and not any(content[part][HEAD:]), line
        else:
            assert not any(content[part]), line


@cocotb.test(**LIMIT)
@cocotb.parametrize(store=[0, 1])
async def accesses_under_way(dut, store):
    """Accesses under way when the block is stopped complete first, and are not made again."""
    tb = await PreemptingTestbench(dut).start()
    timing = Timing(3, store, WIDTH, DATA, 5, 7, 0, 4 * WIDTH)
    for _ in range(3 * ROUNDS):
        tb.port.latency = (200, 300)
        task = launch(timing, warps=min(4, CONFIG.sm_warps))
        wanted = computed(task)
        for kept in (tb.port.read.taken, tb.port.write.taken):
            kept.clear()
        one = await begin(tb, task, 1)
        await tb.until(lambda: sum(made(tb, 1)[store].values()), "the first access")
        await tb.steps(tb.random.randrange(600))
        if tb.stoppable:
            await stop(tb, one)
            await go_on(tb, one)
        await rest(tb)
        agree(tb, 1, task, accesses(task, timing))
        assert task.memory.pages == wanted.pages
    assert tb.saved


@cocotb.test(**LIMIT)
@cocotb.parametrize(most=[1, 2])
async def partly_restored(dut, most):
    """While few warps can run at a time, a block is stopped before all of its warps have started,
    after some have ended, and again before all have been restored. If all can run, only after some
    have ended."""
    tb = await PreemptingTestbench(dut).start()
    tb.most = most
    timing = Timing(2, 1, WIDTH, DATA, 30, 63, 0, 2 * WIDTH)
    wanted_met = {"starting", "ended", "restoring"} if min(3, CONFIG.sm_warps) > most else {"ended"}
    met, rounds = set[str](), Rounds(2 * ROUNDS, 100)
    while rounds.more(met >= wanted_met, met):
        tb.port.latency = tb.random.choice(((2, 20), (60, 90)))
        task = launch(timing, warps=min(3, CONFIG.sm_warps), registers=8, shared=1024)
        wanted = computed(task)
        for kept in (tb.port.read.taken, tb.port.write.taken, tb.spans):
            kept.clear()
        met |= await stops(tb, await begin(tb, task, 1), 500)
        await rest(tb)
        agree(tb, 1, task, accesses(task, timing))
        assert task.memory.pages == wanted.pages
        assert len(tb.spans) >= task.warps


@cocotb.test(**LIMIT)
async def returns_elsewhere(dut):
    """A block that continues in another slot, with other hardware warps, while others run, and
    whose record must be read again, keeps its accesses."""
    tb = await PreemptingTestbench(dut).start()
    warps = max(1, CONFIG.sm_warps // 3)
    timing = Timing(4, 1, WIDTH, DATA, 100, 31, 0, 4 * WIDTH)
    met, rounds = Counter[str](), Rounds(ROUNDS, 100)
    while rounds.more(len(met) == 3, met):
        task = launch(timing, warps=warps)
        wanted = computed(task)
        for kept in (tb.port.read.taken, tb.port.write.taken):
            kept.clear()
        one = await begin(tb, task, 1)
        for number in range(3):
            await tb.steps(tb.random.randrange(200))
            if not tb.stoppable:
                break
            assert record_reads(tb) == 1 + number
            before = where(tb, one)
            await stop(tb, one)
            tb.launch(Task(2, launch(replace(timing, accesses=1), warps=warps)))
            tb.launch(Task(1, task, deque()))
            tb.tasks.pop().blocks.clear()
            await begun(tb, tb.tasks[-1])
            await go_on(tb, one)
            await tb.until(lambda one=one: len(where(tb, one)[1]) == warps, "all warps start")
            after = where(tb, one)
            met["slot"] += before[0] != after[0]
            met["warps"] += not before[1] & after[1]
            met["others"] += len(tb.warps) > warps
        await rest(tb)
        agree(tb, 1, task, accesses(task, timing))
        assert task.memory.pages == wanted.pages


def where(tb: PreemptingTestbench, task: Task) -> tuple[int, set[int]]:
    """Slot and hardware warps of the block of the task."""
    (slot,) = (slot for slot, block in tb.slots.items() if block.task is task)
    return slot, {warp for warp, (place, _) in tb.warps.items() if place == slot}


def record_reads(tb: PreemptingTestbench) -> int:
    """Number of reads of the record of row 1."""
    return sum(one["row"] == 1 and one["va"] == RECORD for _, one in tb.port.read.taken)
