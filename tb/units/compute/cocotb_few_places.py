"""Kernels that launch kernels, with few save places: a block launches only if it could wait off the
SMs, so that all waits end (NEST-12, NEST-15)."""

from itertools import pairwise
from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.nested_testbench import DEPTH, NestedTestbench
from signalbox.tb.units.compute.saving_steps import state_writes
from signalbox.tb.units.compute.testbench import CONFIG

ROOM = Refusal.ROOM.value


async def finish(tb: NestedTestbench, lines: list[list[Launch]]) -> int:
    """Step until all waits have ended. Returns the number of refused launches."""
    await tb.until(lambda: not tb.waiting, "launches answered", 200_000)
    await tb.until(lambda: tb.get("control__idle"), "all waits end", 400_000)
    refusals = 0
    for line in lines:
        for child, parent in reversed([*pairwise(line)]):
            if parent.refused:
                child.refused = True
            elif tb.answers(parent):
                tb.refuse(parent, child, ROOM)
                refusals += 1
    await tb.finish()
    tb.check_all()
    return refusals


@cocotb.test()
@cocotb.parametrize(length=[2, DEPTH])
async def few_places(dut: Any, length: int) -> None:
    """With more parents than room on the SMs and than save places, some launches are refused, and
    all waits end."""
    tb = await NestedTestbench(dut).start()
    lines = [tb.chain(length, asid=1 + n) for n in range(2 * CONFIG.sms * CONFIG.sm_blocks)]
    for line in lines:
        tb.launch(line[-1])
    refusals = await finish(tb, lines)
    # If one block alone may wait, its child often finds room where parents were refused.
    assert state_writes(tb) or CONFIG.save_places == 1, "no block was stopped"
    launches = len(lines) * (length - 1)
    assert 0 < refusals < launches, f"{refusals} of {launches} refused"
    print(f"{refusals} of {launches} launches refused")


@cocotb.test()
@cocotb.parametrize(turn=range(3))
async def beside_others(dut: Any, turn: int) -> None:
    """All places are reserved for waiting blocks. Beside them are blocks of lower priority without
    a place, whose warps cannot all start, as the children lack registers. The children get the
    registers of the waiting blocks."""
    tb = NestedTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    if CONFIG.save_places == 1:  # the child cannot go to the first SM
        tb.launch(tb.kernel(asid=5, priority=9, warps=4, barrier=True, delay=30_000, cycles=30_000))
        await tb.steps(800)
    lines = []
    for asid in range(1, 1 + CONFIG.save_places):
        child = tb.kernel(asid=asid, warps=4, barrier=True)
        lines.append([child, tb.kernel(child, asid=asid, delay=tb.random.randint(1800, 2200))])
    count = 1 if CONFIG.save_places == 1 else CONFIG.sms
    shape = {"warps": 4, "cycles": 2500, "delay": 2500}
    others = [tb.kernel(asid=4, priority=3, **shape) for _ in range(count)]
    for one in (*(line[-1] for line in lines), *others):
        tb.launch(one)
    assert await finish(tb, lines) < max(CONFIG.save_places, 2)
    assert state_writes(tb), "no block was stopped"


@cocotb.test()
@cocotb.parametrize(turn=range(2))
async def blocks_of_many_warps(dut: Any, turn: int) -> None:
    """With kernels of different priorities, whose blocks have up to four warps, with and without
    barriers, blocks that can be stopped are found beside others that lack a place."""
    tb = NestedTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    lines = [
        tb.chain(tb.random.randint(1, 3), asid, priority=tb.random.randrange(8), mixed=True)
        for asid in range(1, CONFIG.asids)
    ]
    for line in lines:
        tb.launch(line[-1])
        await tb.steps(tb.random.choice((0, 0, 100)))
    await finish(tb, lines)


@cocotb.test()
async def all_places_again(dut: Any) -> None:
    """Reservations end with their blocks, even killed ones: after a chain was killed, with any
    number of reservations, all blocks of the next one can wait."""
    tb = await NestedTestbench(dut).start()
    for turn in range(3 * (CONFIG.save_places + 1)):
        line = tb.chain(CONFIG.save_places + 1, asid=1)
        tb.launch(line[-1])
        await tb.until(lambda: not tb.waiting, "launch answered")
        reserved = turn % (CONFIG.save_places + 1)
        if reserved:
            child = line[-1 - reserved]
            await tb.until(lambda child=child: tb.link(child), "the child is launched")
        await tb.steps(tb.random.randrange(100))
        tb.drive(host__on=0)
        for one in line:
            assert one.over is None
            one.refused = True
        await tb.until(lambda: tb.get("control__idle"), "all are killed")
        tb.drive(host__on=(1 << CONFIG.channels) - 1)
        line = tb.chain(CONFIG.save_places + 1, asid=1)
        tb.launch(line[-1])
        assert await finish(tb, [line]) == 0, f"round {turn}: refused"
