"""Random kernels, requests and SMs; `Blocks` checks every block (PLACE-1 … 10, ASID-30, 31)."""

import ast
import os
from random import Random

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask
from signalbox.tb.units.placement.blocks import MOVED
from signalbox.tb.units.placement.kernel import AFFINITY, DEEP, WIDE, Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

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
        policy=numbers.choice((WIDE, WIDE, DEEP, AFFINITY)),
        grid=(numbers.choice((1, 2, 5, 1 << 20)), numbers.choice((1, 3)), 1 << 15),
        runs=(100, 300) if slow else (1, 30),
        disabled=random_mask(numbers) if CONFIG.sm_masks else 0,
        saves=CONFIG.sm_masks and numbers.random() < 0.1,
    )


def random_mask(numbers: Random) -> int:
    """A random mask of disabled SMs, never all; only SMs with a bit in the mask."""
    some = numbers.sample(
        range(CONFIG.masked_sms), min(numbers.randrange(CONFIG.sms), CONFIG.masked_sms)
    )
    return numbers.choice((0, mask(some)))


async def close_all(tb: PlacementTestbench) -> None:
    """Let everything end, and close all rows."""
    waits = list(tb.kernels)
    for kernel in tb.kernels.values():
        kernel.runs = (1, 10)
    await tb.until(lambda: all(tb.drained(row) for row in waits), "all rows are drained", 40_000)
    await tb.closed(*waits)
    assert not tb.kernels
    for n, row in enumerate(tb.blocks.table):
        full = [CONFIG.register_units, CONFIG.sm_warps, CONFIG.shared_units]
        assert row.amounts == full and not row.kernels, f"SM {n} is not empty"


@cocotb.test(**LIMIT)
async def random_work(dut):
    tb = await PlacementTestbench(dut, CONFIG).start()
    numbers = tb.random
    for _ in range(60 if CONFIG.sms > 16 else 250):
        if numbers.random() < 0.1:
            tb.eager = numbers.choice((1.0, 1.0, 0.5, 0.2))
        rows = [row for row in range(CONFIG.rows) if row not in tb.kernels]
        event = numbers.random()
        known = list(tb.kernels)
        if rows and event < 0.7:
            await tb.opened(random_kernel(numbers, numbers.choice(rows)))
        elif known and event < 0.8:
            tb.add.put({"row": numbers.choice(known), "blocks": numbers.choice((1, 3, 10))})
            await tb.until(lambda: not tb.add.pending, "the request is taken")
        elif known and event < 0.9:
            answers = len(tb.answers)
            tb.stop.put(numbers.choice(known))
            await tb.until(lambda: not tb.stop.pending, "the request is taken")
            tb.keeps_answers = numbers.random() < 0.2
            await tb.steps(numbers.randrange(8))
            tb.keeps_answers = False
            await tb.until(lambda count=answers: len(tb.answers) > count, "the row is stopped")
        else:
            over = [row for row in known if tb.drained(row)]
            await tb.closed(*over)
        await tb.steps(numbers.choice((0, 0, 0, 1, 3, 10, 40)))
    await close_all(tb)
    moved = sum(step is MOVED for *_, step in tb.blocks.log)
    dut._log.info(f"{len(tb.blocks.log)} blocks in {tb.cycle} cycles, {moved} moved")


@cocotb.test(**LIMIT)
async def random_moves(dut):
    """While less urgent blocks fill all SMs, urgent blocks wait there and move to SMs with room;
    meanwhile rows open, get blocks, stop and close, and SMs may be slow (PLACE-5)."""
    tb = await PlacementTestbench(dut, CONFIG).start()
    # On two or three SMs with masks, few blocks move.
    numbers, rounds, moved, masked = tb.random, Rounds(60, 3000), 0, 0
    most, few = (20 if CONFIG.sms > 2 else 5), (5 if CONFIG.sm_masks and CONFIG.sms > 2 else -1)
    while rounds.more((moved > most and masked > few) or CONFIG.sms == 1, (moved, masked)):
        tb.eager = numbers.choice((1.0, 1.0, 0.5, 0.2))
        await tb.closed(*[row for row in tb.kernels if tb.drained(row)])
        free = [row for row in range(CONFIG.rows) if row not in tb.kernels]
        if free and sum(kernel.left for kernel in tb.kernels.values()) < CONFIG.sms:
            await tb.opened(filling_kernel(free.pop()))
        if free and numbers.random() < 0.6:
            kernel = random_kernel(numbers, free.pop())
            kernel.priority, kernel.blocks = numbers.choice((5, 9, 63)), numbers.choice((1, 2))
            if CONFIG.sm_masks:  # one SM at most, so that blocks can move
                disabled = numbers.sample(range(CONFIG.masked_sms), numbers.randrange(2))
                kernel.disabled = mask(disabled) if CONFIG.sms > 2 else 0
            await tb.opened(kernel)
        known, event = list(tb.kernels), numbers.random()
        if known and event < 0.2:
            tb.add.put({"row": numbers.choice(known), "blocks": 1})
            await tb.until(lambda: not tb.add.pending, "the request is taken")
        elif known and event < 0.4:
            answers = len(tb.answers)
            tb.stop.put(numbers.choice(known))
            await tb.until(lambda count=answers: len(tb.answers) > count, "the row is stopped")
        await tb.steps(numbers.choice((1, 3, 10, 40)))
        moved = sum(step is MOVED for *_, step in tb.blocks.log)
        masked = tb.blocks.masked[MOVED]
    await close_all(tb)
    dut._log.info(
        f"{moved} of {len(tb.blocks.log)} blocks moved, {masked} with masks, in {tb.cycle} cycles"
    )


def filling_kernel(row: int) -> Kernel:
    """A kernel whose blocks take all warps of an SM, and run until there is one on each SM."""
    warps, slower = CONFIG.sm_warps, max(1, CONFIG.sms // 5)
    runs = (20 * slower, 200 * slower)
    return Kernel(row, 1, 2 * CONFIG.sms, warps, CONFIG.register_units // warps, runs=runs)
