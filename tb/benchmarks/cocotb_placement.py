"""Rates and latencies of placement (page 30, what to measure)."""

import ast
import os

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.benchmarks.placement import CHURN, KERNELS, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.units.placement.kernel import FOREVER, Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
SMS, SLOTS = CONFIG.sms, CONFIG.sm_blocks
LONG = (FOREVER, FOREVER)
FILLER = CONFIG.rows - 1


async def start(dut) -> PlacementTestbench:
    """A testbench with the same random numbers in each measurement. (By default they depend on the
    name of the test.)"""
    tb = PlacementTestbench(dut, CONFIG)
    tb.random.seed(0)
    return await tb.start()


async def full(dut) -> PlacementTestbench:
    """A machine with all block slots in use."""
    tb = await start(dut)
    filler = Kernel(FILLER, 63, SMS * SLOTS, 1, 1, runs=LONG)
    await tb.opened(filler)
    await tb.until(lambda: not filler.left, "all SMs are full")
    await tb.steps(40)
    return tb


async def opened(tb: PlacementTestbench, count: int, blocks: int, runs: tuple[int, int]) -> None:
    """Open `count` kernels with `blocks` waiting blocks each."""
    for row in range(count):
        await tb.opened(Kernel(row, 5, blocks, 1, 1, runs=runs))
    await tb.steps(20)


@cocotb.test(**LIMIT)
async def decisions(dut):
    """Latencies, on an idle machine and on a full one."""
    tb = await start(dut)
    kernel = Kernel(0, 5, 1, 1, 1, runs=(1, 1))
    await tb.opened(kernel)
    await tb.steps(30)
    report(**{key("open", SMS): tb.blocks.log[0][0] + 1 - kernel.opened})
    filler = Kernel(1, 4, SMS * SLOTS, 1, 1, runs=LONG)
    await tb.opened(filler)
    await tb.until(lambda: not filler.left, "all SMs are full")
    waits = Kernel(2, 4, 1, 1, 1)
    await tb.opened(waits)
    await tb.steps(30)
    before, count = tb.cycle, len(tb.blocks.log)
    tb.end_one(SMS // 2)
    await tb.until(lambda: len(tb.blocks.log) > count, "a block is placed")
    report(**{key("freed", SMS): tb.blocks.log[-1][0] + 1 - before})


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=KERNELS)
async def bursts(dut, count: int):
    """All block slots are freed at once: cycles until they are in use again."""
    tb = await full(dut)
    blocks = max(1, SMS * SLOTS // count)
    await opened(tb, count, blocks, LONG)
    before = len(tb.blocks.log)
    for sm in range(SMS):
        tb.end_all(sm)
    total = min(count * blocks, SMS * SLOTS)
    await tb.until(lambda: len(tb.blocks.log) >= before + total, "all SMs are full again")
    cycles = tb.blocks.log[-1][0] - tb.blocks.log[before][0] + 1
    report(**{key("burst", SMS, count): round(1000 * total / cycles)})


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=KERNELS)
async def churn(dut, count: int):
    """Blocks end continuously, one and a half per cycle if each is replaced at once."""
    tb = await start(dut)
    mean = SMS * SLOTS * 2 // 3
    runs = (max(1, mean // 2), mean * 3 // 2)
    await opened(tb, count, 3 * (CHURN + mean) // count + 1, runs)
    await tb.steps(2 * mean)
    before = len(tb.blocks.log)
    await tb.steps(CHURN)
    report(**{key("churn", SMS, count): round(1000 * (len(tb.blocks.log) - before) / CHURN)})
