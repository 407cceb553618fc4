"""Victims on an SM on which blocks end all the time (PREEMPT-5, PREEMPT-6)."""

import json
import os
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.sm.block_stop import BlockStop
from signalbox.tb.testbench.clocked import Testbench, component

CONFIG = Config(**json.loads(os.environ["CONFIG"]))
SLOTS = CONFIG.sm_blocks
FULL = (1 << SLOTS) - 1


async def filled(dut: Any, leaving: int) -> Testbench:
    """A block in each slot. That in slot `leaving` is of row 1, which must leave, the others of row
    0."""
    tb = await Testbench(dut, component(BlockStop, CONFIG)).start()
    for slot in range(SLOTS):
        block = {"row": int(slot == leaving)}
        tb.drive(arrive={"valid": 1, "place": 1 << slot, "block": block})
        await tb.steps(1)
    tb.drive(arrive=0, valid=FULL, begun=FULL, spare=1, leave=0b10, levels=[3] * SLOTS)
    return tb


@cocotb.test()
async def beside_short_blocks(dut: Any) -> None:
    """A block that must leave is the victim within some rounds, and stays it, although another
    block ends and is replaced every few cycles."""
    for leaving in range(SLOTS):
        for gap in (3, SLOTS - 1, SLOTS, SLOTS + 1):
            tb = await filled(dut, leaving)
            found = 0
            for cycle in range(6 * SLOTS + 40):
                slot = (leaving + 1 + cycle // gap % (SLOTS - 1)) % SLOTS
                ends = cycle % gap == 0
                tb.drive(over={"valid": ends, "place": 1 << slot})
                # The next block takes the slot some cycles later.
                tb.drive(valid=FULL & ~((cycle % gap == 1) << slot))
                await tb.steps(1)
                victim = tb.get("victim")
                assert victim["valid"] or not found, (leaving, gap, cycle)
                found = victim["valid"] and victim["leaves"]
            assert found, (leaving, gap)


@cocotb.test()
async def not_after_its_end(dut: Any) -> None:
    """A block that ends, or returns to the global controller, at any time is no victim any more
    from the next cycle on."""
    for returns in (False, True):
        for delay in range(3 * SLOTS + 4):
            for gone in range(SLOTS):
                tb = await filled(dut, gone)
                await tb.steps(delay)
                tb.drive(
                    **{"returns": 1 << gone}
                    if returns
                    else {"over": {"valid": 1, "place": 1 << gone}}
                )
                await tb.steps(1)
                tb.drive(returns=0, over=0, valid=FULL & ~(1 << gone))
                for _ in range(2 * SLOTS):
                    await tb.steps(1)
                    victim = tb.get("victim")
                    assert not (victim["valid"] and victim["leaves"]), (returns, delay, gone)
