"""Kernels that are passed over while they wait for their SM, on many SMs (HOST-10)."""

import cocotb

from signalbox.tb.units.placement.blocks import rounds
from signalbox.tb.units.placement.cocotb_placement import (
    LIMIT,
    LONG,
    SETTLED,
    SLOTS,
    SMS,
    WARPS,
    start,
)
from signalbox.tb.units.placement.kernel import Kernel

ONE = 1 << SMS - 1
OTHERS = ONE - 1
"""The last SM, and all others."""

AGAIN = 2 * (rounds(SMS) + 9) + rounds(SMS) + 1
"""Maximum cycles from a change of its SM until a block of a passed-over first kernel is placed:
until the decision begins, and for the decision."""

SOON = 36
"""The same if no kernel behind it finds an SM."""


@cocotb.test(**LIMIT)
async def is_served_again(dut):
    """While many short blocks of a later kernel continuously find room on other SMs, a passed-over
    kernel is served again within a bound."""
    tb = await start(dut)
    part = Kernel(0, 3, disabled=OTHERS, runs=LONG)
    first = Kernel(1, 1, 1, WARPS, 1, barrier=True, disabled=OTHERS)
    later = Kernel(2, 0, 100_000, disabled=ONE, runs=(0, 0))
    longest = 0
    for turn in range(20):
        for kernel in (part, first, later)[: 3 if turn == 0 else 2]:
            await tb.opened(kernel)
            await tb.steps(SETTLED)
        await tb.steps(turn)
        assert len(first.placed) == turn
        tb.end_all(SMS - 1)
        await tb.step()
        now = tb.cycle
        await tb.until(lambda count=turn: len(first.placed) > count, "it is placed", AGAIN)
        longest = max(longest, tb.cycle - now)
        await tb.until(lambda: tb.drained(0) and tb.drained(1), "they have ended")
        await tb.closed(0, 1)
    print(f"placed after at most {longest} cycles, beside {len(later.placed)} blocks")
    assert len(later.placed) > tb.cycle / 2


@cocotb.test(**LIMIT)
async def is_served_when_its_link_is_free(dut):
    """A passed-over kernel whose SM has not accepted its last block is served again within a bound
    once the SM has accepted it."""
    tb = await start(dut)
    tb.slow = {SMS - 1}
    blocker = Kernel(0, 3, disabled=OTHERS, runs=LONG)
    first = Kernel(1, 1, 20, disabled=OTHERS, runs=LONG)
    later = Kernel(2, 0, 100_000, disabled=ONE, runs=(0, 0))
    for kernel in (blocker, first, later):
        await tb.opened(kernel)
        await tb.steps(SETTLED)
    for count in range(SLOTS - 1):
        assert len(first.placed) == count and tb.sms[SMS - 1].coming
        await tb.steps(SETTLED + 7 * count)
        tb.slow = set()
        await tb.until(lambda: not tb.sms[SMS - 1].coming, "it has accepted the block")
        tb.slow = {SMS - 1}
        await tb.until(lambda count=count: len(first.placed) > count, "it is placed", AGAIN)


@cocotb.test(**LIMIT)
async def soon_if_none_else(dut):
    """A passed-over kernel is served again soon if no kernel is behind it, or the one behind it
    finds no SM either."""
    for stuck in (False, True):
        tb = await start(dut)
        await tb.opened(Kernel(0, 3, SMS, WARPS, 1, runs=LONG))
        kernel = Kernel(1, 1, 10, WARPS, 1, runs=LONG, barrier=True, disabled=OTHERS)
        await tb.opened(kernel)
        await tb.steps(2 * SETTLED)
        if stuck:
            await tb.opened(Kernel(2, 1, 1, WARPS, 1, barrier=True, runs=LONG))
        for turn in range(10):
            await tb.steps(SETTLED + turn)
            assert kernel.left == 10 - turn
            tb.end_all(SMS - 1)
            await tb.until(
                lambda one=kernel, left=9 - turn: one.left == left, "a block is placed", SOON
            )
