"""Kernels behind others that wait for their SM, while decisions are dropped repeatedly."""

from itertools import cycle, pairwise

import cocotb

from signalbox.hw.placement.passed_kernels import longest_turn, patience
from signalbox.tb.units.placement.blocks import rounds
from signalbox.tb.units.placement.cocotb_placement import (
    CONFIG,
    LIMIT,
    LONG,
    SETTLED,
    SLOTS,
    SMS,
    WARPS,
    start,
)
from signalbox.tb.units.placement.kernel import Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

LAST = SMS - 1
OTHERS = (1 << LAST) - 1
"""All SMs but the last one, one bit each."""

PASSED = rounds(SMS) + 4 + patience(CONFIG)
"""Maximum cycles until a kernel that may have blocks stopped is passed over."""

MANY, TURNS = 5, 14
"""Number of waiting kernels, and of urgent kernels in turn."""

FULL = (SLOTS - 1) * (rounds(SMS) + 2) - 1
"""A kernel whose blocks run for this many cycles or more finds no room at times: it fills an SM
sooner. While there is room, the SM is sent a block per decision."""

LEAST = (MANY + 1 + rounds(SMS) + 12) + 2 * rounds(SMS) - 2
"""Cycles from a restart until a kernel behind the waiting ones has a block placed, if these are all
passed over at once; including the urgent kernel."""

CHANGES = (2 * LEAST, 3 * LEAST)
"""Cycles for which blocks run, so that their SM changes between most urgent kernels, but has no
room at times, although only a part of the cycles is left for them."""

ONE_MORE = rounds(SMS) + 4
"""Maximum additional cycles if kernels are passed over: one decision at a time for the last
block."""

ACCEPTED = 8
"""Maximum cycles, besides those for which it runs, from a block's decision until its slot counts as
free again."""

DROPPED = 2 * rounds(SMS) + 8
"""Maximum cycles from a request, which drops all decisions, until a block of the first kernel is
placed. One decision may fail, as two consecutive blocks do not go to the same SM."""


def only(sm: int) -> int:
    """All SMs but one, one bit each."""
    return (1 << SMS) - 1 & ~(1 << sm)


async def begin(
    dut, count: int, *, saves: bool = True, changes: bool = False
) -> PlacementTestbench:
    """Kernels 1 to `count` wait for the last SM, which runs more urgent work without an end; with
    `changes`, one block after the other."""
    tb = await start(dut)
    blocks, runs = (1 << 20, CHANGES) if changes else (SLOTS, LONG)
    await tb.opened(Kernel(0, 9, blocks, runs=runs, disabled=OTHERS))
    await tb.steps(SETTLED)
    for row in range(1, count + 1):
        await tb.opened(Kernel(row, 5, disabled=OTHERS, saves=saves, runs=(0, 0)))
    return tb


@cocotb.test(**LIMIT)
@cocotb.parametrize(every=[LEAST, LEAST + 2, 3 * PASSED], changes=[False, True])
async def beside_urgent_ones(dut, every: int, changes: bool):
    """A kernel gets room on its SM within a bound, although between two urgent kernels there is not
    enough time to pass over all kernels before it, or even one; with `changes`, their SM changes
    all the time."""
    assert MANY * PASSED > every
    for phase in range(0, every // 2, 3):
        tb = await begin(dut, MANY, changes=changes)
        waits = Kernel(6, 3, disabled=only(1), runs=(0, 0))
        rows = cycle((7, 8, 9))
        for turn in range(TURNS):
            await tb.opened(urgent := Kernel(next(rows), 10, disabled=only(0), runs=(0, 0)))
            begun = tb.cycle
            await tb.until(lambda one=urgent: not one.left, "it has room", DROPPED)
            await tb.until(lambda tb=tb, row=urgent.row: tb.drained(row), "it has ended")
            await tb.closed(urgent.row)
            if turn == 2:
                await tb.steps(phase)
                await tb.opened(waits)
            await tb.steps(max(1, every - (tb.cycle - begun)))
        assert not waits.left, f"no room for it, {phase} cycles after an urgent kernel"
        if changes:
            continue
        tb.end_all(LAST)
        bound = longest_turn(CONFIG) + DROPPED
        await tb.until(lambda one=tb.kernels[1]: not one.left, "the first one has room", bound)


@cocotb.test(**LIMIT)
@cocotb.parametrize(saves=[False, True])
async def while_its_sm_changes(dut, saves: bool):
    """If a kernel finds no room at times, the kernels behind it get room on other SMs in turn with
    it, even if a decision that was in flight finds room before the first one for them."""
    least = FULL + (patience(CONFIG) - 1 if saves else 0)
    for runs in range(least, least + 8):
        tb = await start(dut)
        first = Kernel(0, 9, 1 << 20, disabled=OTHERS, saves=saves, runs=(runs, runs))
        behind = Kernel(6, 3, 100_000, disabled=only(1), runs=(0, 0))
        for kernel in (first, behind):
            await tb.opened(kernel)
        for count in range(1, 6):
            await tb.until(
                lambda one=behind, count=count: len(one.placed) >= count,
                f"it has room beside blocks of {runs} cycles",
                2 * (runs + ACCEPTED),
            )
        assert len(first.placed) >= SLOTS


@cocotb.test(**LIMIT)
async def one_cycle_for_each(dut):
    """After a restart, each passed-over kernel costs the kernels behind it one cycle, except the
    first kernel of a turn."""
    took: dict[int, list[int]] = {}
    for count in (0, 1, 3, 5):
        tb = await begin(dut, count)
        urgent = Kernel(7, 7, disabled=only(0), runs=(0, 0))
        behind = Kernel(6, 3, 100_000, disabled=only(1), runs=(0, 0))
        for kernel in (urgent, behind):
            await tb.opened(kernel)
        await tb.until(lambda one=behind: one.placed, "it has room", (count + 2) * PASSED)
        gaps = []
        for turn in range(10):
            await tb.steps(SETTLED // 3 + turn)
            tb.add.put({"row": 7, "blocks": 1})
            await tb.until(lambda tb=tb: not tb.add.pending, "a block is added")
            begun, now = len(behind.placed), tb.cycle
            await tb.until(lambda one=urgent: not one.left, "it has room", DROPPED)
            last, limit = len(behind.placed), (count + 3) * PASSED
            assert last <= begun + 1
            await tb.until(
                lambda one=behind, last=last: len(one.placed) > last, "it goes on", limit
            )
            gaps.append(tb.cycle - now)
        took[count] = gaps
    print(f"cycles by number of kernels passed over: {took}")
    least = {count: min(gaps) for count, gaps in took.items()}
    assert least[0] <= DROPPED and least[1] <= DROPPED + ONE_MORE
    for count, gaps in took.items():
        assert least[count] <= least[1] + max(0, count - 1)
        longest = least[count] + 2  # except for the first kernel of a turn
        assert all(min(pair) <= longest for pair in pairwise(gaps)), (count, gaps)


@cocotb.test(**LIMIT)
async def not_for_ever(dut):
    """Even if restarts leave no turn for the kernels behind it, the first kernel is served again
    within a bound."""
    count, every = 3, DROPPED + 3
    tb = await begin(dut, count, saves=False)
    behind = Kernel(6, 3, 100_000, disabled=only(1), runs=(0, 0))
    await tb.opened(behind)
    bound = longest_turn(CONFIG) + 3 * every  # another restart, its decision, a step of the test
    for _ in range(3 * count):
        tb.add.put({"row": 6, "blocks": 1})
        await tb.steps(every)
    tb.end_all(LAST)
    now = tb.cycle
    while tb.kernels[1].left:
        tb.add.put({"row": 6, "blocks": 1})
        await tb.steps(every)
        assert tb.cycle <= now + bound, "it is not served again"
    print(f"placed after at most {tb.cycle - now} cycles")


@cocotb.test(**LIMIT)
async def fails_meanwhile(dut):
    """A decision that fails while kernels are passed over at once makes its kernel wait: no later
    kernel takes its SM."""
    for count in (2, 3, 4):
        for gap in range(4):
            tb = await begin(dut, count)
            await tb.opened(part := Kernel(6, 9, disabled=only(0), runs=LONG))
            behind = Kernel(5, 3, 100_000, disabled=only(1), runs=(0, 0))
            await tb.opened(behind)
            await tb.until(lambda one=behind: one.placed, "it has room", (count + 2) * PASSED)
            urgent = Kernel(7, 7, disabled=only(1), runs=(0, 0))
            first = Kernel(8, 7, 1, WARPS, 1, barrier=True, disabled=only(0), runs=(0, 0))
            later = Kernel(9, 4, disabled=only(0), runs=(0, 0))
            for kernel in (urgent, first, later):
                tb.open(kernel)
                await tb.steps(gap)
            await tb.until(lambda one=later: one.opened >= 0, "all are open")
            await tb.steps((count + 2) * PASSED)
            assert not part.left and not urgent.left and first.left and later.left
            tb.end_all(0)
            bound = 2 * (longest_turn(CONFIG) + count * PASSED)
            await tb.until(lambda one=later: not one.left, "they have room", bound)
            assert not first.left


@cocotb.test(**LIMIT)
async def one_block_each(dut):
    """While no kernel waits, kernels with one block each are placed in consecutive cycles, as
    without masks."""
    tb = await start(dut)
    kernels = [Kernel(row, 1, disabled=only(row % SMS), runs=LONG) for row in range(9)]
    for kernel in kernels:
        tb.open(kernel)
    await tb.until(lambda: len(tb.blocks.log) == len(kernels), "all are placed")
    gaps = {later[0] - one[0] for one, later in pairwise(tb.blocks.log)}
    assert gaps == {1}, gaps
