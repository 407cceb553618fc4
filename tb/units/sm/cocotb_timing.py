"""The timing core against a model of its warps (ASID-1, ASID-27)."""

import itertools
from collections import Counter, deque
from dataclasses import replace

import cocotb

from signalbox.tb.models.isa import Launch
from signalbox.tb.models.timing import Timing
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, CoreTestbench, Span, Task
from signalbox.tb.units.sm.timing_launches import (
    DATA,
    accesses,
    launch,
    made,
    random_timing,
    warps_of,
)

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

LAP = 1 << max(1, (CONFIG.sm_warps - 1).bit_length())
"""Cycles of one round over all warps."""
EACH = LAP + 5
"""Maximum number of additional cycles of a computation and the access after it."""


def check_spans(spans: list[Span], task: Launch, row: int) -> None:
    """Check that each warp has run once."""
    wanted = Counter((at, warp) for at, _, warp in warps_of(task))
    assert Counter((one.at, one.index) for one in spans if one.row == row) == wanted


async def run(tb: CoreTestbench, tasks: dict[int, Launch], limit: int = 20_000) -> None:
    """Run these tasks, by row, concurrently."""
    for kept in (tb.faults, tb.spans, tb.port.read.taken, tb.port.write.taken):
        kept.clear()
    for row, task in tasks.items():
        tb.launch(Task(row, task))
    await tb.rest(limit)
    tb.tasks.clear()


@cocotb.test(**LIMIT)
@cocotb.parametrize(eager=[1.0, 0.4])
async def every_warp_once(dut, eager):
    """With several tasks in different spaces at the same addresses, each warp runs once and makes
    exactly its accesses."""
    tb = await CoreTestbench(dut).start()
    tb.port.eager = eager
    numbers = tb.random
    for _ in range(3):
        tb.port.latency = numbers.choice(((1, 2), (3, 20), (30, 90)))
        timings, tasks = {}, {}
        for row in numbers.sample(range(CONFIG.rows), 3):
            warps = numbers.randint(1, CONFIG.sm_warps)
            timings[row] = random_timing(numbers, warps)
            grid = numbers.choice(((5, 1, 1), (2, 3, 1), (2, 1, 2), (2, 2, 2)))
            tasks[row] = launch(timings[row], grid, warps, 2 + timings[row].block_bytes // 512)
        await run(tb, tasks)
        assert not tb.faults
        for row, task in tasks.items():
            timing = timings[row]
            check_spans(tb.spans, task, row)
            wanted = accesses(task, timing), Counter()
            assert made(tb, row) == (wanted[::-1] if timing.store else wanted)
            for _, number, warp in warps_of(task):
                for n in range(timing.accesses if timing.store else 0):
                    found = task.memory.read(timing.at(number, warp, n), WIDTH)
                    assert found == timing.pattern(number, warp, n) * (WIDTH // 8)


@cocotb.test(**LIMIT)
async def addresses_and_numbers_of_big_grids(dut):
    """Addresses use every bit of their factors, and wrap at 49 bits."""
    tb = await CoreTestbench(dut).start()
    numbers = tb.random
    grid = (0x3_1235, 0x2F0D, 3)
    for _ in range(8):
        at = tuple(numbers.randrange(size) for size in grid)
        number = (at[2] * grid[1] + at[1]) * grid[0] + at[0]
        timing = Timing(
            accesses=3,
            store=1,
            stride=numbers.getrandbits(32),
            base=numbers.getrandbits(49),
            block_bytes=numbers.getrandbits(32),
            warp_bytes=numbers.getrandbits(32),
        )
        number %= 1 << 32
        task = launch(timing, grid, min(CONFIG.sm_warps, 5))
        wanted = {}
        for warp, n in itertools.product(range(task.warps), range(3)):
            va = timing.at(number, warp, n) // WIDTH * WIDTH
            task.memory.map(va, bytes(WIDTH))
            wanted[va] = timing.pattern(number, warp, n) * (WIDTH // 8)
        tb.launch(Task(1, task, blocks=deque([at])))
        await tb.rest(3000)
        tb.tasks.clear()
        assert not tb.faults
        assert {va: task.memory.read(va, WIDTH) for va in wanted} == wanted


@cocotb.test(**LIMIT)
@cocotb.parametrize(store=[0, 1])
async def durations(dut, store):
    """A warp takes the time of its computations and accesses, stores included, and little more,
    next to other warps."""
    tb = await CoreTestbench(dut).start()
    extra = []
    for latency, count in ((5, 4), (200, 2), (60, 0)):
        tb.port.latency = (latency, latency)
        timing = Timing(count, store, WIDTH, DATA, 100, 255, 0, 0)
        task = launch(timing, (4, 1, 1), min(2, CONFIG.sm_warps))
        # The record has already been read.
        await run(tb, {2: replace(task, grid=(1, 1, 1))})
        await run_again(tb, 2, task)
        for one in tb.spans:
            least = timing.computes(one.at[0], one.index) * (count + 1) + latency * count
            most = least + EACH * (count + 1)
            extra.append(one.end - one.start - least)
            assert least < one.end - one.start <= most, (one, least, most)
        dut._log.info(f"{count + 1} times: {min(extra)} … {max(extra)} cycles more")
        extra.clear()


async def run_again(tb: CoreTestbench, row: int, task: Launch) -> None:
    """Run the row's task with other blocks, without new words."""
    tb.spans.clear()
    again = Task(row, task)
    tb.memories[row] = task.memory
    tb.tasks.append(again)
    await tb.rest()
    tb.tasks.clear()
