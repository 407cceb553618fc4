"""Faults, kills and new tasks of a row in the timing core."""

import itertools
from collections import Counter, deque

import cocotb

from signalbox.tb.models.timing import Timing
from signalbox.tb.units.sm.cocotb_timing import LAP, LIMIT, check_spans, run
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, CoreTestbench, Fault, Task
from signalbox.tb.units.sm.timing_launches import DATA, PAGE, RECORD, launch, made

INSTRUCTION, PROGRAM_BUS, PROGRAM_FAULT, MEMORY_BUS, MEMORY_FAULT, ALIGNMENT = range(1, 7)
"""Causes, as in `CoreCause`."""


@cocotb.test(**LIMIT)
async def unreadable_records(dut):
    """Each warp reports an unreadable or illegal record with its cause; a task in another row
    continues."""
    tb = await CoreTestbench(dut).start()
    warps = min(3, CONFIG.sm_warps)
    for cause in (PROGRAM_BUS, PROGRAM_FAULT, INSTRUCTION, ALIGNMENT):
        task = launch(Timing(1, 1, 0, DATA, 5, 0, 4096, 64), (2, 1, 1), warps)
        if cause == PROGRAM_BUS:
            task.memory.broken.add(RECORD // PAGE)
        elif cause == PROGRAM_FAULT:
            del task.memory.pages[RECORD // PAGE]
        elif cause == INSTRUCTION:
            task.constant_bytes = 16
        else:
            task.constants += 16
        other = launch(Timing(2, 1, WIDTH, DATA, 5, 0, 0, 2 * WIDTH), (1, 1, 1), warps)
        await run(tb, {1: task, 3: other})
        check_spans(tb.spans, task, 1)
        check_spans(tb.spans, other, 3)
        wanted = Counter(
            Fault(1, cause, number << 16, task.constants) for number in (0, 1) for _ in range(warps)
        )
        assert Counter(tb.faults) == wanted, tb.faults
        assert not made(tb, 1)[1] and sum(made(tb, 3)[1].values()) == 2 * warps


@cocotb.test(**LIMIT)
async def first_beat_of_a_record(dut):
    """A bus error in the first beat of a record is reported, whatever the other beats contain."""
    tb = await CoreTestbench(dut).start()
    task = launch(Timing(1, 1, WIDTH, DATA, 0xFFFF_FFFF, 0xFFFF_FFFF), warps=1)
    tb.port.bad[RECORD // PAGE] = 0
    await run(tb, {1: task})
    assert tb.faults == [Fault(1, PROGRAM_BUS, 0, RECORD)]


@cocotb.test(**LIMIT)
@cocotb.parametrize(store=[0, 1], broken=[False, True])
async def failing_accesses(dut, store, broken):
    """A warp with a failed access reports its kind and address and ends; other warps run to their
    end."""
    tb = await CoreTestbench(dut).start()
    warps, count = min(3, CONFIG.sm_warps), 5
    # The last accesses of the last warps of each block are in the next page.
    timing = Timing(count, store, WIDTH, DATA + PAGE - WIDTH * (warps + 2) + 3, 3, 7, 0, WIDTH)
    task = launch(timing, (2, 2, 1), warps)
    if broken:
        task.memory.map(DATA + PAGE, bytes(PAGE))
        task.memory.broken.add(DATA // PAGE + 1)
    wanted, good = Counter(), Counter()
    for number, warp in itertools.product(range(4), range(warps)):
        for access in range(count):
            va = timing.at(number, warp, access) // WIDTH * WIDTH
            good[va] += 1
            if va >= DATA + PAGE:
                cause = MEMORY_BUS if broken else MEMORY_FAULT
                wanted[Fault(2, cause, number << 16 | access + 1, va)] += 1
                break
    assert wanted or warps == 1
    tb.port.eager = 0.5
    await run(tb, {2: task})
    check_spans(tb.spans, task, 2)
    assert Counter(tb.faults) == wanted
    assert made(tb, 2)[store] == good


ENDLESS = {
    "computes": Timing(1, 0, 0, DATA, 0xFFFF_0000),
    "loads": Timing(0xFFFF, 0, 0, DATA, 0),
    "stores": Timing(0xFFFF, 1, 0, DATA, 0, 0, 0, WIDTH),
}


@cocotb.test(**LIMIT)
async def kill(dut):
    """Warps of a killed row end within two rounds after their access, without a fault; warps that
    start later end as fast. The row's next kernel runs normally."""
    tb = await CoreTestbench(dut).start()
    tb.port.latency = (10, 30)
    for name, timing in ENDLESS.items():
        warps = max(1, CONFIG.sm_warps - 1)
        tb.spans.clear()
        task = launch(timing, (3, 1, 1), warps)
        tb.launch(Task(2, task))
        await tb.steps(400 + 20 * warps)
        assert not tb.spans and len(tb.warps) >= warps, name
        before = tb.cycle
        tb.drive(kill=1 << 2)
        await tb.until(lambda count=warps: len(tb.spans) >= count, "ends", 2 * LAP + 60)
        await tb.rest()
        assert tb.cycle - before < 100 + 3 * warps * 40, name
        check_spans(tb.spans, task, 2)
        tb.drive(kill=0)
        tb.tasks.clear()
        other = launch(Timing(2, 1, WIDTH, DATA, 5, 0, 0, 2 * WIDTH), warps=1)
        await run(tb, {2: other})
        assert not tb.faults and sum(made(tb, 2)[1].values()) == 2


@cocotb.test(**LIMIT)
async def new_words_drop_records(dut):
    """The next task of a row follows its own record, after its predecessor ended normally or was
    killed, even while the predecessor's record was being read."""
    tb = await CoreTestbench(dut).start()
    numbers = tb.random
    for n in range(6):
        killed = bool(n % 2)
        tb.port.latency = (150, 160) if killed else (2, 9)
        timing = Timing(n + 1, 1, WIDTH, DATA + n * WIDTH, 3)
        task = launch(timing)
        tb.port.write.taken.clear()
        if killed:
            tb.launch(Task(3, task))
            await tb.steps(numbers.randrange(20, 120))
            tb.drive(kill=1 << 3)
            await tb.rest(3000)
            tb.drive(kill=0)
            tb.tasks.clear()
        else:
            await run(tb, {3: task})
            assert made(tb, 3)[1] == Counter(timing.at(0, 0, k) for k in range(n + 1))
    assert not tb.faults


@cocotb.test(**LIMIT)
async def words_that_come_too_soon(dut):
    """Words that arrive, against the rules, while the record is being read drop this record: the
    new one is used."""
    tb = await CoreTestbench(dut).start()
    tb.port.latency = (60, 60)
    for delay in range(0, 42, 3):
        old, new = Timing(1, 1, 0, DATA, 1), Timing(2, 1, WIDTH, DATA + PAGE - 2 * WIDTH, 1)
        task, later = launch(old), launch(new)
        later.constants += 64 - 2 * PAGE
        task.memory.map(later.constants, new.record())
        tb.port.write.taken.clear()
        tb.launch(Task(1, task))
        await tb.steps(14 + delay)
        tb.launch(Task(1, later, deque()))
        tb.tasks[-1].blocks.clear()
        tb.memories[1] = task.memory
        await tb.rest(2000)
        tb.tasks.clear()
        assert made(tb, 1)[1] == Counter(new.at(0, 0, n) for n in (0, 1)), delay
        assert not tb.faults


@cocotb.test(**LIMIT)
async def words_of_other_rows(dut):
    """Words of other rows sent while a record is being read change nothing."""
    tb = await CoreTestbench(dut).start()
    timing = Timing(2, 1, WIDTH, DATA + WIDTH, 1, 0, 4 * WIDTH, 2 * WIDTH)
    for delay in range(20):
        tb.port.latency = (15, 15)
        task, other = launch(timing, (2, 1, 1)), launch(timing, warps=1)
        tb.port.write.taken.clear()
        tb.launch(Task(1, task))
        await tb.steps(20 + delay)
        tb.launch(Task(2, other))
        await tb.rest(2000)
        tb.tasks.clear()
        for row, blocks in ((1, 2), (2, 1)):
            wanted = Counter(timing.at(n, 0, k) for n in range(blocks) for k in (0, 1))
            assert made(tb, row)[1] == wanted, delay
    assert not tb.faults


@cocotb.test(**LIMIT)
async def accesses_overlap(dut):
    """Accesses of different warps overlap; each warp waits for its own."""
    tb = await CoreTestbench(dut).start()
    warps, latency, count = min(CONFIG.sm_warps, 20), 300, 3
    tb.port.latency = (latency, latency)
    for store in (0, 1):
        task = launch(Timing(count, store, WIDTH, DATA, 0, 0, 0, count * WIDTH), warps=warps)
        task.memory.map(DATA, bytes(2 * PAGE))
        await run(tb, {0: task})
        first = min(one.start for one in tb.spans)
        last = max(one.end for one in tb.spans)
        assert count * latency < last - first < count * (latency + LAP + 7) + 20 * warps
