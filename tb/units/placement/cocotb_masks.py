"""Kernels that some SMs do not take (HOST-10), on three SMs. `Blocks` also checks every block."""

import cocotb

from signalbox.tb.units.placement.blocks import LOWER, MOVED, WHOLE
from signalbox.tb.units.placement.cocotb_placement import (
    LIMIT,
    LONG,
    REGISTERS,
    SETTLED,
    SLOTS,
    SMS,
    WARPS,
    fill,
    placed,
    start,
)
from signalbox.tb.units.placement.kernel import AFFINITY, DEEP, WIDE, Kernel


@cocotb.test(**LIMIT)
async def waits_for_its_sm(dut):
    """A kernel waits for the only SM that takes its blocks although others are empty, and so do
    younger and less urgent kernels for that SM (PLACE-6). Other kernels go to other SMs meanwhile.
    Only missing resources of that SM are reported."""
    tb = await start(dut)
    kernel = Kernel(0, 1, 3, WARPS, REGISTERS // WARPS, runs=LONG, disabled=0b011)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    assert placed(tb, kernel) == [(2, WHOLE)] and tb.blocks.refused[-1] == (1, 1, 0, 0, 1)
    others = [
        Kernel(1, 1, 2, runs=LONG),
        Kernel(2, 2, disabled=0b110, runs=LONG),
        Kernel(3, 1, disabled=0b011),
        Kernel(4, 0, disabled=0b001, blocks=2, runs=LONG),
    ]
    for other in others:
        await tb.opened(other)
    await tb.steps(2 * SETTLED)
    assert placed(tb, kernel) == [(2, WHOLE)] and not placed(tb, others[2])
    assert {sm for other in others for sm, _ in placed(tb, other)} == {0, 1}
    assert [len(placed(tb, other)) for other in others] == [2, 1, 0, 2]
    for count in (2, 3):
        tb.end_all(2)
        await tb.steps(2 * SETTLED)
        assert [sm for sm, _ in placed(tb, kernel)] == [2] * count
    tb.end_all(2)
    await tb.steps(2 * SETTLED)
    assert placed(tb, others[2])[0][0] == 2


@cocotb.test(**LIMIT)
async def every_policy(dut):
    """With every policy, blocks fill all SMs that take them, and no others."""
    for policy in (WIDE, DEEP, AFFINITY):
        for disabled in range(1, (1 << SMS) - 1):
            tb = await start(dut)
            kernel = Kernel(0, 1, SMS * SLOTS, policy=policy, runs=LONG, disabled=disabled)
            await tb.opened(kernel)
            await tb.steps(2 * SETTLED)
            takes = [sm for sm in range(SMS) if kernel.allows(sm)]
            counts = {sm: [one for one, _ in placed(tb, kernel)].count(sm) for sm in takes}
            assert counts == dict.fromkeys(takes, SLOTS)
            assert kernel.left == disabled.bit_count() * SLOTS


@cocotb.test(**LIMIT)
async def urgent_where_it_may(dut):
    """Step C, too, chooses only an SM that takes the kernel's blocks, although others also run less
    urgent work."""
    tb = await start(dut)
    await fill(tb, 0, 1)
    urgent = Kernel(1, 9, 1, disabled=0b101, runs=LONG)
    await tb.opened(urgent)
    await tb.steps(SETTLED)
    assert placed(tb, urgent) == [(1, LOWER)]


@cocotb.test(**LIMIT)
async def moves_where_it_may(dut):
    """A waiting block does not move to an SM that does not take it, which keeps no room and no slot
    for it. It moves to an SM that takes it (PLACE-5)."""
    tb = await start(dut)
    await fill(tb, 0, 1)
    urgent = Kernel(1, 9, 1, disabled=0b001, runs=LONG)
    await tb.opened(urgent)
    await tb.steps(SETTLED)
    ((home, step),) = placed(tb, urgent)
    (target,) = {1, 2} - {home}
    assert step is LOWER and tb.sms[home].waiting
    for _ in range(SLOTS - 1):
        tb.end_one(0)
        await tb.step()
    small = Kernel(2, 1, SLOTS - 1, 1, 1, runs=LONG, disabled=0b110)
    await tb.opened(small)
    await tb.steps(2 * SETTLED)
    assert len(placed(tb, urgent)) == 1, "it has moved to the disabled SM"
    assert len(placed(tb, small)) == SLOTS - 1 and not tb.sms[0].waiting
    tb.end_one(target)
    await tb.steps(SETTLED)
    assert placed(tb, urgent)[1:] == [(target, MOVED)]


@cocotb.test(**LIMIT)
async def mask_of_the_row(dut):
    """A row that closes and reopens has the mask of its new kernel."""
    tb = await start(dut)
    for disabled in (0b011, 0b000, 0b101, 0b110, 0b100):
        kernel = Kernel(0, 1, SMS, disabled=disabled)
        await tb.opened(kernel)
        await tb.until(lambda: tb.drained(0), "it has ended")
        assert {sm for sm, _ in placed(tb, kernel)[-SMS:]} == {
            sm for sm in range(SMS) if kernel.allows(sm)
        }
        await tb.closed(0)


@cocotb.test(**LIMIT)
async def lets_others_move(dut):
    """A block that waits on the only SM that takes it does not keep a less urgent block on another
    SM from moving (PLACE-5)."""
    tb = await start(dut)
    await fill(tb, 0, 1)
    pinned, other = Kernel(1, 9, disabled=0b110, runs=LONG), Kernel(2, 5, runs=LONG)
    for kernel in (pinned, other):
        await tb.opened(kernel)
        await tb.steps(SETTLED)
    assert placed(tb, pinned) == [(0, LOWER)] and tb.sms[0].waiting
    ((home, _),) = placed(tb, other)
    (target,) = {1, 2} - {home}
    tb.end_one(target)
    await tb.steps(SETTLED)
    assert placed(tb, other)[1:] == [(target, MOVED)] and len(placed(tb, pinned)) == 1
    tb.end_one(0)
    await tb.steps(SETTLED)
    assert not tb.sms[0].waiting and len(placed(tb, pinned)) == 1, "it has begun where it was"


@cocotb.test(**LIMIT)
async def keeps_its_sms(dut):
    """While a kernel waits for its SM, no later kernel goes there, even if it fits; later kernels
    that find no SM do not affect it. A kernel in its reopened row that takes all SMs waits for all
    (PLACE-6)."""
    tb = await start(dut)
    part = Kernel(0, 3, SMS, WARPS - 1, 1, runs=LONG)  # leaves a warp of each SM
    first = Kernel(1, 1, 1, WARPS, 1, barrier=True, disabled=0b011)
    small, free = Kernel(3, 1, disabled=0b011, runs=LONG), Kernel(4, 1, runs=LONG)
    second = Kernel(2, 1, 1, WARPS, 1, barrier=True, runs=LONG)
    for kernel in (part, first, small, free, second):
        await tb.opened(kernel)
        await tb.steps(2 * SETTLED)
    ((home, _),) = placed(tb, free)
    (other,) = {0, 1} - {home}
    assert not placed(tb, first) and not placed(tb, small) and not placed(tb, second)
    tb.end_all(2)
    await tb.steps(2 * SETTLED)
    assert placed(tb, first) == [(2, WHOLE)] and [sm for sm, _ in placed(tb, small)] == [2]
    tb.end_all(other)
    await tb.until(lambda: tb.drained(1), "the first one has ended")
    await tb.steps(2 * SETTLED)
    assert placed(tb, second) == [(other, WHOLE)]
    await tb.closed(1)
    whole, tiny = Kernel(1, 1, 1, WARPS, 1, barrier=True), Kernel(5, 1)
    for kernel in (whole, tiny):
        await tb.opened(kernel)
        await tb.steps(2 * SETTLED)
    assert len(tb.blocks.log) == SMS + 4
