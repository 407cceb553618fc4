"""Kernels that may have blocks stopped, but find room (PREEMPT-5)."""

from typing import Any

import cocotb

from signalbox.tb.units.placement.cocotb_placement import LIMIT, LONG, SETTLED, SMS, WARPS
from signalbox.tb.units.placement.cocotb_stops import Stops, begin, fill
from signalbox.tb.units.placement.kernel import Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

WAITING, URGENT = SMS, SMS + 1


async def wait_for_room(dut: Any) -> tuple[PlacementTestbench, Stops, Kernel]:
    """A kernel waits for an empty SM; each SM has a small block, which can be stopped."""
    tb, stops = await begin(dut)
    for row in range(SMS):
        small = Kernel(row, 0, runs=LONG)
        await tb.opened(small)
        await tb.until(lambda small=small: not small.left, "the block is on an SM")
    await tb.steps(SETTLED)
    kernel = Kernel(WAITING, 0, 1, WARPS, 1, barrier=True)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    assert kernel.left
    stops.victims(*range(SMS))
    return tb, stops, kernel


@cocotb.test(**LIMIT)
@cocotb.parametrize(row=[WAITING, URGENT])
async def none_after_it_is_withdrawn(dut: Any, row: int) -> None:
    """No block is stopped for a kernel that finds room at once, although the kernel served before
    it, in the same row or another, found none, and was withdrawn."""
    tb, stops, kernel = await wait_for_room(dut)
    tb.stop.put(WAITING)
    await tb.until(lambda: not kernel.left, "it is withdrawn")
    await tb.closed(WAITING)
    await tb.steps(SETTLED)
    urgent = Kernel(row, 5, saves=True, runs=LONG)
    await tb.opened(urgent)
    await tb.until(lambda: not urgent.left, "the next one has room")
    await tb.steps(SETTLED)
    assert not stops.told


@cocotb.test(**LIMIT)
async def none_for_one_that_overtakes(dut: Any) -> None:
    """Nor for a kernel that goes ahead of a waiting one, at any time."""
    for delay in range(SETTLED):
        tb, stops, kernel = await wait_for_room(dut)
        await tb.steps(delay)
        urgent = Kernel(URGENT, 5, saves=True, runs=LONG)
        await tb.opened(urgent)
        await tb.until(lambda urgent=urgent: not urgent.left, "it has room")
        await tb.steps(SETTLED)
        assert not stops.told and kernel.left


@cocotb.test(**LIMIT)
async def none_when_its_blocks_return(dut: Any) -> None:
    """Nor for a kernel that waited until its blocks were withdrawn, and now finds room."""
    tb, stops = await begin(dut)
    stops.victims()
    await fill(tb, 0, 0)
    kernel = Kernel(WAITING, 5, saves=True, runs=LONG)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    assert kernel.left
    tb.stop.put(WAITING)
    await tb.until(lambda: not kernel.left, "it is withdrawn")
    tb.end_one(0)
    await tb.steps(SETTLED)
    stops.victims(*range(SMS))
    tb.add.put({"row": WAITING, "blocks": 1})
    await tb.until(lambda: kernel.on_sms, "it has room")
    await tb.steps(SETTLED)
    assert not stops.told
