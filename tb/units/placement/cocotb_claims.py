"""Waiting blocks, each with its own group of SMs, move within their groups (PLACE-5).

A group has two SMs. The first runs less urgent work, so a block waits there; the second runs more
urgent work."""

from typing import Any

import cocotb

from signalbox.hw.placement.second_claim import TURN
from signalbox.tb.units.placement.blocks import LOWER, MOVED
from signalbox.tb.units.placement.cocotb_placement import (
    LIMIT,
    LONG,
    MOVE_LATENCY,
    SETTLED,
    SMS,
    WARPS,
    placed,
    start,
)
from signalbox.tb.units.placement.kernel import Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

GROUPS = min(SMS // 2, 7)
IN_TURN = GROUPS * (TURN + 40)
"""Maximum cycles until each group has had its turn."""


def only(*sms: int) -> int:
    """All SMs but these, one bit each."""
    return (1 << SMS) - 1 & ~sum(1 << sm for sm in sms)


async def begin(dut: Any, groups: int) -> tuple[PlacementTestbench, list[Kernel]]:
    """Let a block that needs all warps of an SM wait in each of `groups` groups."""
    tb = await start(dut)
    for row, priority in enumerate((1, 9)):
        sms = range(row, 2 * GROUPS, 2)
        await tb.opened(Kernel(row, priority, GROUPS, WARPS, 1, runs=LONG, disabled=only(*sms)))
        await tb.steps(SETTLED)
    kernels = [
        Kernel(2 + n, 5, 1, WARPS, 1, barrier=True, runs=LONG, disabled=only(2 * n, 2 * n + 1))
        for n in range(groups)
    ]
    for n, kernel in enumerate(kernels):
        await tb.opened(kernel)
        await tb.steps(SETTLED)
        assert placed(tb, kernel) == [(2 * n, LOWER)] and tb.sms[2 * n].waiting
    return tb, kernels


@cocotb.test(**LIMIT)
async def beside_the_first_claim(dut: Any) -> None:
    """While one block waits in its group, another moves within its own; the target SM keeps room
    free of less urgent blocks until it fits."""
    tb, (first, second) = await begin(dut, 2)
    small = Kernel(9, 0, 3, disabled=only(3), runs=LONG)
    await tb.opened(small)
    await tb.steps(IN_TURN)
    for _ in range(WARPS):
        assert placed(tb, second) == [(2, LOWER)]
        tb.end_one(3)
        await tb.steps(5)
    await tb.steps(MOVE_LATENCY)
    assert placed(tb, second)[1:] == [(3, MOVED)], "it has not moved"
    tb.end_all(1)
    await tb.steps(WARPS + MOVE_LATENCY)
    assert placed(tb, first)[1:] == [(1, MOVED)], "nor has the first one"


@cocotb.test(**LIMIT)
async def each_in_turn(dut: Any) -> None:
    """In each of many groups, the waiting block moves to an SM that has become idle, within a
    bound."""
    tb, kernels = await begin(dut, GROUPS)
    for n in reversed(range(GROUPS)):
        await tb.steps(7 * n)
        tb.end_all(2 * n + 1)
        await tb.until(
            lambda one=kernels[n]: len(placed(tb, one)) == 2, "it has moved", WARPS + IN_TURN
        )
        assert placed(tb, kernels[n])[1] == (2 * n + 1, MOVED)


@cocotb.test(**LIMIT)
async def room_for_both(dut: Any) -> None:
    """An SM keeps room for a claimed block while one of its own blocks, claimed second, moves to
    another SM: less urgent blocks start in that room neither before nor after the move (rule 7 of
    the SMs)."""
    for number in range(6):
        tb = await start(dut)
        await tb.opened(Kernel(0, 0, 2, WARPS, 1, runs=LONG, disabled=only(0, 1)))
        await tb.opened(Kernel(1, 12, 1, WARPS, 1, runs=LONG, disabled=only(2)))
        await tb.steps(SETTLED)
        small = Kernel(2, 1, runs=LONG, disabled=only(1))
        second = Kernel(3, 5, 1, WARPS, 1, barrier=True, runs=LONG, disabled=only(1, 2))
        first = Kernel(4, 9, 1, WARPS, 1, barrier=True, runs=LONG, disabled=only(0, 1))
        for kernel, home in (small, 1), (second, 1), (first, 0):
            await tb.opened(kernel)
            await tb.steps(SETTLED)
            assert placed(tb, kernel) == [(home, LOWER)]
        tb.end_one(1)
        await tb.steps(SETTLED + number)
        (block,) = (one for one in tb.sms[1].blocks if one.kernel is small)
        tb.end_all(2)
        await tb.until(lambda tb=tb, one=second: len(placed(tb, one)) == 2, "it moves", IN_TURN)
        await tb.steps(SETTLED)
        assert block.unstarted, "it has started in the room kept for the first claim"
        tb.end_all(1)
        await tb.steps(WARPS + MOVE_LATENCY)
        assert placed(tb, first)[1:] == [(1, MOVED)]
