"""Kernels that some SMs do not take, on more SMs than a mask has bits (HOST-10)."""

from typing import Any

import cocotb

from signalbox.tb.units.placement.cocotb_placement import (
    CONFIG,
    LIMIT,
    LONG,
    SETTLED,
    SMS,
    WARPS,
    placed,
    start,
)
from signalbox.tb.units.placement.kernel import Kernel

BITS = CONFIG.masked_sms


@cocotb.test(**LIMIT)
async def keeps_those_without_a_bit(dut: Any) -> None:
    """A waiting kernel also keeps the SMs without a bit in its mask, which cannot be disabled
    (PLACE-6)."""
    tb = await start(dut)
    part = Kernel(0, 3, SMS, WARPS - 1, 1, runs=LONG)  # leaves a warp of each SM
    first = Kernel(1, 2, 1, WARPS, 1, barrier=True, disabled=(1 << BITS) - 1)
    small = Kernel(2, 1, SMS, runs=LONG)
    for kernel in (part, first, small):
        await tb.opened(kernel)
        await tb.steps(3 * SETTLED)
    assert first.left and small.left == SMS - BITS
    assert sorted(sm for sm, _ in placed(tb, small)) == [*range(BITS)]
    tb.end_all(SMS - 1)
    await tb.steps(3 * SETTLED)
    assert [sm for sm, _ in placed(tb, first)] == [SMS - 1] and not small.left
