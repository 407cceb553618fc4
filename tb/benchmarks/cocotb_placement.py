"""Rates and latencies of placement (page 30, what to measure)."""

import ast
import os

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.benchmarks.placement import CHURN, KERNELS, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.units.placement.testbench import FOREVER, Bench, Kernel

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
SMS, SLOTS = CONFIG.sms, CONFIG.sm_blocks
LONG = (FOREVER, FOREVER)
FILLER = CONFIG.rows - 1


async def full(dut) -> Bench:
    """A machine with all block slots in use."""
    bench = await Bench.start(dut, CONFIG)
    filler = Kernel(FILLER, 63, SMS * SLOTS, 1, 1, runs=LONG)
    await bench.opened(filler)
    await bench.until(lambda: not filler.left)
    await bench.steps(40)
    return bench


async def opened(bench: Bench, count: int, blocks: int, runs: tuple[int, int]) -> None:
    """Open `count` kernels with `blocks` blocks each, which wait."""
    for row in range(count):
        await bench.opened(Kernel(row, 5, blocks, 1, 1, runs=runs))
    await bench.steps(20)


@cocotb.test(**LIMIT)
async def decisions(dut):
    """Latencies, on an idle machine and on a full one."""
    bench = await Bench.start(dut, CONFIG)
    kernel = Kernel(0, 5, 1, 1, 1, runs=(1, 1))
    await bench.opened(kernel)
    await bench.steps(30)
    report(**{key("open", SMS): bench.log[0][0] + 1 - kernel.opened})
    filler = Kernel(1, 4, SMS * SLOTS, 1, 1, runs=LONG)
    await bench.opened(filler)
    await bench.until(lambda: not filler.left)
    waits = Kernel(2, 4, 1, 1, 1)
    await bench.opened(waits)
    await bench.steps(30)
    before, count = bench.now, len(bench.log)
    bench.end_one(SMS // 2)
    await bench.until(lambda: len(bench.log) > count)
    report(**{key("freed", SMS): bench.log[-1][0] + 1 - before})


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=KERNELS)
async def bursts(dut, count: int):
    """All block slots are freed at once: cycles until they are in use again."""
    bench = await full(dut)
    blocks = max(1, SMS * SLOTS // count)
    await opened(bench, count, blocks, LONG)
    before = len(bench.log)
    for sm in range(SMS):
        bench.end_all(sm)
    total = min(count * blocks, SMS * SLOTS)
    await bench.until(lambda: len(bench.log) >= before + total)
    cycles = bench.log[-1][0] - bench.log[before][0] + 1
    report(**{key("burst", SMS, count): round(1000 * total / cycles)})


@cocotb.test(**LIMIT)
@cocotb.parametrize(count=KERNELS)
async def churn(dut, count: int):
    """Blocks end continuously, one and a half per cycle if each is replaced at once."""
    bench = await Bench.start(dut, CONFIG)
    mean = SMS * SLOTS * 2 // 3
    runs = (max(1, mean // 2), mean * 3 // 2)
    await opened(bench, count, 3 * (CHURN + mean) // count + 1, runs)
    await bench.steps(2 * mean)
    before = len(bench.log)
    await bench.steps(CHURN)
    report(**{key("churn", SMS, count): round(1000 * (len(bench.log) - before) / CHURN)})
