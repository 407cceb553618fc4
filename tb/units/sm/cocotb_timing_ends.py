"""Faults, kills and new tasks of a row in the timing core."""

import itertools
from collections import Counter, deque
from random import Random

import cocotb

from signalbox.tb.models.timing import Timing
from signalbox.tb.units.sm.cocotb_timing import (
    DATA,
    LAP,
    LIMIT,
    PAGE,
    RECORD,
    check_spans,
    launch,
    made,
    run,
)
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, Bench, Fault, Task

INSTRUCTION, PROGRAM_BUS, PROGRAM_FAULT, MEMORY_BUS, MEMORY_FAULT, ALIGNMENT = range(1, 7)
"""Causes, as in `CoreCause`."""


@cocotb.test(**LIMIT)
async def unreadable_records(dut):
    """Each warp reports an unreadable or illegal record with its cause; a task in another row
    continues."""
    bench = Bench(dut)
    await bench.start()
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
        await run(bench, {1: task, 3: other})
        check_spans(bench.spans, task, 1)
        check_spans(bench.spans, other, 3)
        wanted = Counter(
            Fault(1, cause, number << 16, task.constants) for number in (0, 1) for _ in range(warps)
        )
        assert Counter(bench.faults) == wanted, bench.faults
        assert not made(bench, 1)[1] and sum(made(bench, 3)[1].values()) == 2 * warps


@cocotb.test(**LIMIT)
@cocotb.parametrize(store=[0, 1], broken=[False, True])
async def failing_accesses(dut, store, broken):
    """A warp with a failed access reports the kind and address and ends; the others run to their
    end."""
    bench = Bench(dut)
    await bench.start()
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
    bench.eager = 0.5
    await run(bench, {2: task})
    check_spans(bench.spans, task, 2)
    assert Counter(bench.faults) == wanted
    assert made(bench, 2)[store] == good


ENDLESS = {
    "computes": Timing(1, 0, 0, DATA, 0xFFFF_0000),
    "loads": Timing(0xFFFF, 0, 0, DATA, 0),
    "stores": Timing(0xFFFF, 1, 0, DATA, 0, 0, 0, WIDTH),
}


@cocotb.test(**LIMIT)
async def kill(dut):
    """Warps of a killed row end within two rounds and their access, without a fault; those of
    another row continue. A warp that starts later ends as fast."""
    bench = Bench(dut)
    await bench.start()
    bench.latency = (10, 30)
    for name, timing in ENDLESS.items():
        warps = max(1, CONFIG.sm_warps - 1)
        bench.spans.clear()
        task = launch(timing, (3, 1, 1), warps)
        bench.launch(Task(2, task))
        await bench.steps(400 + 20 * warps)
        assert not bench.spans and len(bench.warps) >= warps, name
        before = bench.now
        bench.kill(1 << 2)
        await bench.until(lambda count=warps: len(bench.spans) >= count, 2 * LAP + 60)
        await bench.run()
        assert bench.now - before < 100 + 3 * warps * 40, name
        check_spans(bench.spans, task, 2)
        bench.kill(0)
        bench.tasks.clear()
        other = launch(Timing(2, 1, WIDTH, DATA, 5, 0, 0, 2 * WIDTH), warps=1)
        await run(bench, {2: other})
        assert not bench.faults and sum(made(bench, 2)[1].values()) == 2


@cocotb.test(**LIMIT)
async def new_words_drop_records(dut):
    """The next task of a row follows its own record, after its predecessor ended normally or was
    killed, also while that one's record was being read."""
    bench = Bench(dut)
    await bench.start()
    numbers = Random(cocotb.RANDOM_SEED)
    for n in range(6):
        killed = bool(n % 2)
        bench.latency = (150, 160) if killed else (2, 9)
        timing = Timing(n + 1, 1, WIDTH, DATA + n * WIDTH, 3)
        task = launch(timing)
        bench.writes.clear()
        if killed:
            bench.launch(Task(3, task))
            await bench.steps(numbers.randrange(20, 120))
            bench.kill(1 << 3)
            await bench.run(3000)
            bench.kill(0)
            bench.tasks.clear()
        else:
            await run(bench, {3: task})
            assert made(bench, 3)[1] == Counter(timing.at(0, 0, k) for k in range(n + 1))
    assert not bench.faults


@cocotb.test(**LIMIT)
async def words_that_come_too_soon(dut):
    """Words that arrive, against the rules, while the record is being read drop it: the new one is
    used."""
    bench = Bench(dut)
    await bench.start()
    bench.latency = (60, 60)
    for delay in range(0, 42, 3):
        old, new = Timing(1, 1, 0, DATA, 1), Timing(2, 1, WIDTH, DATA + PAGE - 2 * WIDTH, 1)
        task, later = launch(old), launch(new)
        later.constants += 64 - 2 * PAGE
        task.memory.map(later.constants, new.record())
        bench.writes.clear()
        bench.launch(Task(1, task))
        await bench.steps(14 + delay)
        bench.launch(Task(1, later, deque()))
        bench.tasks[-1].blocks.clear()
        bench.memories[1] = task.memory
        await bench.run(2000)
        bench.tasks.clear()
        assert made(bench, 1)[1] == Counter(new.at(0, 0, n) for n in (0, 1)), delay
        assert not bench.faults


@cocotb.test(**LIMIT)
async def words_of_other_rows(dut):
    """Words of other rows sent while a record is being read change nothing."""
    bench = Bench(dut)
    await bench.start()
    timing = Timing(2, 1, WIDTH, DATA + WIDTH, 1, 0, 4 * WIDTH, 2 * WIDTH)
    for delay in range(20):
        bench.latency = (15, 15)
        task, other = launch(timing, (2, 1, 1)), launch(timing, warps=1)
        bench.writes.clear()
        bench.launch(Task(1, task))
        await bench.steps(20 + delay)
        bench.launch(Task(2, other))
        await bench.run(2000)
        bench.tasks.clear()
        for row, blocks in ((1, 2), (2, 1)):
            wanted = Counter(timing.at(n, 0, k) for n in range(blocks) for k in (0, 1))
            assert made(bench, row)[1] == wanted, delay
    assert not bench.faults


@cocotb.test(**LIMIT)
async def accesses_overlap(dut):
    """Accesses of different warps overlap; each warp waits for its own."""
    bench = Bench(dut)
    await bench.start()
    warps, latency, count = min(CONFIG.sm_warps, 20), 300, 3
    bench.latency = (latency, latency)
    for store in (0, 1):
        task = launch(Timing(count, store, WIDTH, DATA, 0, 0, 0, count * WIDTH), warps=warps)
        task.memory.map(DATA, bytes(2 * PAGE))
        await run(bench, {0: task})
        first = min(one.start for one in bench.spans)
        last = max(one.end for one in bench.spans)
        assert count * latency < last - first < count * (latency + LAP + 8) + 20 * warps
