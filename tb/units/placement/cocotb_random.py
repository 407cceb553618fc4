"""Random kernels, requests and SMs; `Bench` checks every block (PLACE-1 … 10, ASID-30, ASID-31)."""

import ast
import os
from random import Random

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.units.placement.testbench import Bench, Kernel

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))


def random_kernel(numbers: Random, row: int) -> Kernel:
    """A random kernel whose blocks fit into an empty SM."""
    warps = numbers.choice((1, 1, 2, 3, CONFIG.sm_warps))
    most = min(64, CONFIG.register_units // warps)
    slow = numbers.random() < 0.2
    return Kernel(
        row,
        priority=numbers.choice((0, 1, 1, 5, 62, 63)),
        blocks=numbers.choice((1, 1, 2, 3, 7, 30)),
        warps=warps,
        registers=numbers.choice((1, 2, most // 2 or 1, most)),
        shared=numbers.choice((0, 0, 1, CONFIG.shared_units // 2, CONFIG.shared_units)),
        barrier=numbers.random() < 0.2,
        asid=numbers.randrange(CONFIG.asids),
        policy=numbers.choice((0, 0, 1, 2)),
        grid=(numbers.choice((1, 2, 5, 1 << 20)), numbers.choice((1, 3)), 1 << 15),
        runs=(100, 300) if slow else (1, 30),
    )


async def close_all(bench: Bench) -> None:
    """Let everything end, and close all rows."""
    waits = list(bench.kernels)
    for kernel in bench.kernels.values():
        kernel.runs = (1, 10)
    await bench.until(lambda: all(bench.drained(row) for row in waits), 40_000)
    bench.todo["close"].extend(waits)
    await bench.until(lambda: not bench.kernels)
    for n, row in enumerate(bench.table):
        full = [CONFIG.register_units, CONFIG.sm_warps, CONFIG.shared_units]
        assert row.amounts == full and not row.kernels, f"SM {n} is not empty"


@cocotb.test(**LIMIT)
async def random_work(dut):
    bench = await Bench.start(dut, CONFIG)
    numbers = bench.numbers
    for _ in range(60 if CONFIG.sms > 16 else 250):
        if numbers.random() < 0.1:
            bench.eager = numbers.choice((1.0, 1.0, 0.5, 0.2))
        rows = [row for row in range(CONFIG.rows) if row not in bench.kernels]
        event = numbers.random()
        known = list(bench.kernels)
        if rows and event < 0.7:
            await bench.opened(random_kernel(numbers, numbers.choice(rows)))
        elif known and event < 0.8:
            bench.todo["add"].append((numbers.choice(known), numbers.choice((1, 3, 10))))
            await bench.until(lambda: not bench.todo["add"])
        elif known and event < 0.9:
            answers = len(bench.answers)
            bench.todo["stop"].append(numbers.choice(known))
            await bench.until(lambda: not bench.todo["stop"])
            bench.keeps_answers = numbers.random() < 0.2
            await bench.steps(numbers.randrange(8))
            bench.keeps_answers = False
            await bench.until(lambda count=answers: len(bench.answers) > count)
        else:
            over = [row for row in known if bench.drained(row)]
            bench.todo["close"].extend(over)
            await bench.until(lambda: not bench.todo["close"])
        await bench.steps(numbers.choice((0, 0, 0, 1, 3, 10, 40)))
    await close_all(bench)
    dut._log.info(f"{len(bench.log)} blocks in {bench.now} cycles")
