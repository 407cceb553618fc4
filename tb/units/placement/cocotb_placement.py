"""Placement in individual cases: the worked examples of page 30 (1, 2, 4) and page 20 (3), order,
batches, requests in every phase. `Blocks` also checks every block."""

import ast
import os
from itertools import pairwise

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.units.placement.blocks import LOWER, MOVED, WARP, WHOLE, rounds
from signalbox.tb.units.placement.kernel import AFFINITY, DEEP, FOREVER, WIDE, Kernel
from signalbox.tb.units.placement.testbench import PlacementTestbench

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}
CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
SMS, WARPS, REGISTERS = CONFIG.sms, CONFIG.sm_warps, CONFIG.register_units
SHARED, SLOTS = CONFIG.shared_units, CONFIG.sm_blocks
LONG = (FOREVER, FOREVER)
SETTLED = 60
"""Cycles after which everything that fits is placed."""

OPEN_LATENCY, FREED_LATENCY = 5 + rounds(SMS), 3 + rounds(SMS)
"""Cycles until a block is valid at an SM; it is logged one cycle earlier."""

MOVE_LATENCY = 12 + 6
"""Maximum cycles from the time an SM has room for the claimed block until the block is valid there;
the models of the SMs take up to six cycles to return it."""


async def start(dut) -> PlacementTestbench:
    return await PlacementTestbench(dut, CONFIG).start()


async def fill(
    tb: PlacementTestbench, row: int, priority: int, runs: tuple[int, int] = LONG
) -> Kernel:
    """Fill every SM with one block of the maximum number of warps."""
    kernel = Kernel(row, priority, SMS, WARPS, REGISTERS // WARPS, runs=runs)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    assert sorted(sm for _, _, sm, _ in tb.blocks.log) == list(range(SMS))
    return kernel


def placed(tb: PlacementTestbench, kernel: Kernel) -> list[tuple[int, int]]:
    """SM and step of each of the kernel's blocks."""
    return [(sm, step) for _, row, sm, step in tb.blocks.log if row == kernel.row]


@cocotb.test(**LIMIT)
async def no_room_for_a_block(dut):
    """Page 30, example 1: the remaining resources are insufficient for a block, and for a warp."""
    tb = await start(dut)
    most = REGISTERS // WARPS
    for row in range(SMS):
        await tb.opened(Kernel(row, 7, 1, WARPS // 2, most + 1, runs=LONG))
    await tb.steps(SETTLED)
    assert len(tb.blocks.log) == SMS
    left = REGISTERS - WARPS // 2 * (most + 1)
    late = Kernel(SMS, 7, 1, 1, left + 1)
    await tb.opened(late)
    await tb.steps(SETTLED)
    assert not placed(tb, late)
    assert tb.blocks.refused[-1] == (1, 0, 0, 0, 1)
    tb.end_all(1)
    await tb.steps(SETTLED)
    assert placed(tb, late) == [(1, WHOLE)]


@cocotb.test(**LIMIT)
async def room_for_two_warps(dut):
    """Page 30, example 2: with room for two of its warps, but not for all, a block is placed by
    step B, once; a block with a barrier is not."""
    tb = await start(dut)
    for row in range(SMS):
        await tb.opened(Kernel(row, 7, 1, 1, REGISTERS - 12, runs=LONG))
    await tb.steps(SETTLED)
    six = Kernel(SMS, 7, 1, 6, 6, runs=LONG)
    await tb.opened(six)
    await tb.steps(SETTLED)
    assert placed(tb, six) == [(0, WARP)]
    assert len(tb.sms[0].blocks[-1].running) == 2, "two warps fit"
    bound = Kernel(SMS + 1, 7, 1, 6, 6, barrier=True)
    await tb.opened(bound)
    await tb.steps(SETTLED)
    assert not placed(tb, bound), "a block with a barrier cannot start partly"


@cocotb.test(**LIMIT)
async def only_to_lower_work(dut):
    """Page 30, example 4: step C places a block only on an SM with less urgent work, not on one
    with equal or more urgent work whose kernel has nothing left to distribute."""
    tb = await start(dut)
    low = Kernel(0, 1, 1, WARPS, 1, runs=LONG)
    await tb.opened(low)
    high = Kernel(1, 6, SMS - 1, WARPS, 1, runs=LONG)
    await tb.opened(high)
    await tb.steps(SETTLED)
    (target,) = placed(tb, low)
    equal = Kernel(2, 1, 1, 1, 1)
    await tb.opened(equal)
    await tb.steps(SETTLED)
    assert not placed(tb, equal), "equal work is not displaced"
    urgent = Kernel(3, 5, 3, 1, 1)
    await tb.opened(urgent)
    await tb.steps(SETTLED)
    assert placed(tb, urgent) == [(target[0], LOWER)], "a block of its own is not lower"
    tb.end_all(target[0])
    await tb.steps(SETTLED)
    assert len(placed(tb, urgent)) == 3


@cocotb.test(**LIMIT)
async def moves_to_room(dut):
    """A block that waits on its SM moves to the first SM that has room for it, within a bound,
    although its own SM never has room (PLACE-5)."""
    for target in range(SMS):
        tb = await start(dut)
        await fill(tb, 0, 1)
        urgent = Kernel(1, 9, 1, 1, 1, asid=1)
        await tb.opened(urgent)
        await tb.steps(SETTLED)
        ((home, step),) = placed(tb, urgent)
        assert step is LOWER and tb.sms[home].waiting
        tb.end_one(target)
        await tb.step()
        now = tb.cycle
        await tb.steps(SETTLED)
        moves = [one for one in tb.blocks.log if one[3] is MOVED]
        if target == home:
            assert not moves, "it has begun where it was"
        else:
            ((cycle, row, sm, _),) = moves
            assert (row, sm) == (1, target) and cycle + 1 - now <= MOVE_LATENCY, cycle + 1 - now
            assert 1 in tb.blocks.table[sm].spaces
        await tb.until(lambda tb=tb: tb.drained(1), "it has ended")


@cocotb.test(**LIMIT)
async def most_urgent_moves_first(dut):
    """The most urgent waiting block gets the room, wherever it appears (PLACE-5)."""
    tb = await start(dut)
    await fill(tb, 0, 1)
    kernels = [Kernel(n, 3 + n, 1, 1, 1, runs=LONG) for n in range(1, SMS)]
    for kernel in kernels:
        await tb.opened(kernel)
        await tb.steps(SETTLED)
    homes = [sm for kernel in kernels for sm, _ in placed(tb, kernel)]
    (other,) = {*range(SMS)} - {*homes}
    for kernel in reversed(kernels):
        tb.end_one(other)
        await tb.steps(SETTLED)
        assert placed(tb, kernel)[1:] == [(other, MOVED)]
    assert all(len(placed(tb, kernel)) == 2 for kernel in kernels)


@cocotb.test(**LIMIT)
async def equals_move_by_number(dut):
    """Of equally urgent waiting blocks, the block on the SM with the lowest number gets the
    room."""
    tb = await start(dut)
    await fill(tb, 0, 1)
    kernels = [Kernel(n, 9, 1, 1, 1, runs=LONG) for n in range(1, SMS)]
    for kernel in kernels:
        await tb.opened(kernel)
        await tb.steps(SETTLED)
    homes = {placed(tb, kernel)[0][0]: kernel for kernel in kernels}
    (other,) = {*range(SMS)} - {*homes}
    tb.end_one(other)
    await tb.steps(SETTLED)
    moved = [sm for sm, kernel in homes.items() if len(placed(tb, kernel)) == 2]
    assert moved == [min(homes)]


@cocotb.test(**LIMIT)
async def keeps_the_last_slot(dut):
    """While a block waits, blocks of lower priority leave it a slot on every SM (PLACE-5)."""
    tb = await start(dut)
    large = Kernel(0, 1, SMS, 1, REGISTERS - 12, runs=LONG)
    await tb.opened(large)
    await tb.steps(SETTLED)
    urgent = Kernel(1, 9, 1, 1, 13)
    await tb.opened(urgent)
    await tb.steps(SETTLED)
    ((home, _),) = placed(tb, urgent)
    small = Kernel(2, 1, SMS * SLOTS, 1, 1, runs=LONG)
    await tb.opened(small)
    await tb.steps(SETTLED)
    counts = [len(row.kernels) for row in tb.blocks.table]
    assert small.left and counts == [2 if n == home else SLOTS - 1 for n in range(SMS)]
    target = (home + 1) % SMS
    tb.end_one(target)
    await tb.steps(SETTLED)
    assert placed(tb, urgent)[1:] == [(target, MOVED)]
    assert all(len(row.kernels) == SLOTS for row in tb.blocks.table)


@cocotb.test(**LIMIT)
async def block_slots(dut):
    """Every step requires a block slot."""
    tb = await start(dut)
    await tb.opened(Kernel(0, 1, SMS * SLOTS, 1, 1, runs=LONG))
    await tb.steps(SETTLED)
    assert len(tb.blocks.log) == SMS * SLOTS
    urgent = Kernel(1, 63, 1, 1, 1)
    await tb.opened(urgent)
    await tb.steps(SETTLED)
    assert not placed(tb, urgent)
    assert tb.blocks.refused[-1] == (0, 0, 0, 1, 0)
    now = tb.cycle
    tb.end_one(2)
    await tb.steps(SETTLED)
    ((cycle, _, sm, step),) = [one for one in tb.blocks.log if one[1] == 1]
    assert (sm, step) == (2, WHOLE)
    assert cycle + 1 - now == FREED_LATENCY, f"{cycle + 1 - now} cycles"


@cocotb.test(**LIMIT)
async def priorities_then_age(dut):
    """PLACE-1: the highest priority comes first, equal priorities in the order of opening; a row
    that closed and reopened is the youngest."""
    tb = await start(dut)
    await fill(tb, 9, 63)
    for row, priority in ((3, 5), (0, 5), (5, 63), (2, 4), (1, 5), (4, 62)):
        await tb.opened(Kernel(row, priority, 1, 1, 1, runs=LONG))
    tb.stop.put(3)
    await tb.until(lambda: tb.answers, "the row is stopped")
    await tb.steps(3)
    tb.close.put(3)
    await tb.steps(3)
    await tb.opened(Kernel(3, 5, 1, 1, 1, runs=LONG))
    await tb.steps(SETTLED)
    assert len(tb.blocks.log) == SMS
    for sm in range(SMS):
        tb.end_all(sm)
    await tb.steps(3 * SETTLED)
    assert [row for _, row, *_ in tb.blocks.log[SMS:]] == [5, 4, 0, 1, 3, 2]


@cocotb.test(**LIMIT)
async def urgent_at_any_moment(dut):
    """An urgent row overtakes decisions in progress, in any state, and none is lost."""
    tb = await start(dut)
    for delay in range(16):
        many = Kernel(0, 3, 9, 1, 1, runs=(1, 3), policy=(WIDE, DEEP, AFFINITY)[delay % 3])
        few = Kernel(1, 3, 1, 1, 1, runs=(1, 3))
        urgent = Kernel(2, 9, 2, 1, 1, runs=(1, 3))
        tb.open(many)
        tb.open(few)
        await tb.steps(delay + 1)
        tb.open(urgent)
        opened = tb.cycle
        await tb.steps(SETTLED)
        cycles = [cycle for cycle, row, *_ in tb.blocks.log if row == 2 and cycle > opened]
        assert cycles[0] + 1 - urgent.opened == OPEN_LATENCY, f"{cycles[0] + 1 - urgent.opened}"
        assert (len(many.placed), len(few.placed), len(cycles)) == (9, 1, 2)
        await tb.closed(0, 1, 2)


@cocotb.test(**LIMIT)
async def wide_goes_to_all(dut):
    """Page 20, example 3, wide: every grid is on all SMs."""
    tb = await start(dut)
    for row in range(SMS):
        await tb.opened(Kernel(row, 5, SMS, 1, 1, asid=row, runs=LONG))
    await tb.steps(SETTLED)
    for row in range(SMS):
        assert sorted(placed(tb, tb.kernels[row])) == [(sm, WHOLE) for sm in range(SMS)]


@cocotb.test(**LIMIT)
async def deep_fills_one(dut):
    """Page 20, example 3, deep: each grid is on a single SM, with one block per cycle."""
    tb = await start(dut)
    for row in range(SMS):
        await tb.opened(Kernel(row, 5, SLOTS, 1, 1, asid=row, policy=DEEP, runs=LONG))
    await tb.steps(SETTLED)
    for row in range(SMS):
        cycles = [cycle for cycle, one, *_ in tb.blocks.log if one == row]
        assert placed(tb, tb.kernels[row]) == [(row, WHOLE)] * SLOTS
        assert cycles == list(range(cycles[0], cycles[0] + SLOTS)), "one per cycle"


@cocotb.test(**LIMIT)
async def deep_takes_the_next(dut):
    """PLACE-3: blocks go to one SM while it has room, then to the next, and return to the last
    one."""
    tb = await start(dut)
    kernel = Kernel(0, 5, 5, WARPS // 2, 1, policy=DEEP, runs=LONG)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    assert placed(tb, kernel) == [(0, WHOLE)] * 2 + [(1, WHOLE)] * 2 + [(2, WHOLE)]
    tb.end_all(0)
    await tb.steps(SETTLED)
    assert len(tb.sms[0].blocks) == 0, "it has the most room"
    tb.add.put({"row": 0, "blocks": 1})
    await tb.steps(SETTLED)
    assert placed(tb, kernel)[-1] == (2, WHOLE)


@cocotb.test(**LIMIT)
async def one_decision_at_a_time(dut):
    """Deep and affinity: the next decision begins when the block of the previous one is placed, and
    takes it into account."""
    for policy in (DEEP, AFFINITY):
        tb = await start(dut)
        await tb.opened(Kernel(0, 5, SMS, WARPS, 1, policy=policy, runs=LONG))
        await tb.steps(SETTLED)
        cycles = [cycle for cycle, *_ in tb.blocks.log]
        assert len(cycles) == SMS
        decision = 1 + rounds(SMS)
        assert all(after - before > decision for before, after in pairwise(cycles)), cycles


@cocotb.test(**LIMIT)
async def batch_waits_for_its_sm(dut):
    """A batch continues as its SM accepts blocks; nothing is lost."""
    tb = await start(dut)
    tb.eager = 0.3
    kernel = Kernel(0, 5, SLOTS, 1, 1, policy=DEEP, runs=LONG)
    await tb.opened(kernel)
    await tb.steps(3 * SETTLED)
    assert placed(tb, kernel) == [(0, WHOLE)] * SLOTS


@cocotb.test(**LIMIT)
async def affinity_returns(dut):
    """ASID-31: blocks go to an SM that runs or last ran the space while it has room, then to the
    least loaded SM."""
    tb = await start(dut)
    half = WARPS // 2
    for space in range(SMS):
        await tb.opened(Kernel(space, 5, 1, 1, 1, asid=space, runs=LONG))
    await tb.steps(SETTLED)
    again = Kernel(SMS, 5, 2, half, 1, asid=1, policy=AFFINITY, runs=LONG)
    await tb.opened(again)
    await tb.steps(SETTLED)
    assert placed(tb, again) == [(1, WHOLE), (0, WHOLE)], "SM 1 has room for one more"
    # Space 1 is now on SM 0 and SM 1; the less loaded of them gets the next block.
    tb.end_all(1)
    await tb.steps(5)
    third = Kernel(SMS + 1, 5, 1, 1, 1, asid=1, policy=AFFINITY, runs=LONG)
    await tb.opened(third)
    await tb.steps(SETTLED)
    assert placed(tb, third) == [(1, WHOLE)], "SM 1 ran the space last"


@cocotb.test(**LIMIT)
async def one_sm_does_not_take(dut):
    """An SM that does not accept its block does not hold up other SMs: each gets its blocks at
    least as early as if all SMs accepted theirs."""
    usual = await cycles_of_blocks(await start(dut))
    assert all(len(cycles) == SLOTS for cycles in usual)
    tb = await start(dut)
    tb.slow = {1}
    slow = await cycles_of_blocks(tb)
    assert [len(cycles) for cycles in slow] == [1 if sm == 1 else SLOTS for sm in range(SMS)]
    for sm, cycles in enumerate(slow):
        assert all(now <= then for now, then in zip(cycles, usual[sm], strict=False)), (slow, usual)
    tb.slow = set()
    await tb.steps(SETTLED)
    assert len(tb.blocks.log) == SMS * SLOTS


async def cycles_of_blocks(tb: PlacementTestbench) -> list[list[int]]:
    """Open a row that fills all slots. Returns in which cycles each SM gets blocks, counted from
    the opening."""
    kernel = Kernel(0, 5, SMS * SLOTS, 1, 1, runs=LONG)
    await tb.opened(kernel)
    await tb.steps(SETTLED)
    return [
        [cycle - kernel.opened for cycle, _, one, _ in tb.blocks.log if one == sm]
        for sm in range(SMS)
    ]


@cocotb.test(**LIMIT)
async def stop_at_any_moment(dut):
    """ASID-25: at any time, `stop` returns number and position of the blocks that have not been
    sent; another row can continue with them."""
    tb = await start(dut)
    for count, delay in enumerate(reversed(range(24)), 1):
        policy = (WIDE, DEEP, AFFINITY)[delay % 3]
        kernel = Kernel(0, 5, 12, 1, 1, policy=policy, grid=(2, 3, 2), runs=(1, 2))
        await tb.opened(kernel)
        await tb.steps(delay)
        tb.stop.put(0)
        await tb.until(lambda count=count: len(tb.answers) == count, "the row is stopped")
        _, left, at = tb.answers[-1]
        await tb.steps(20)
        assert len(kernel.placed) + left == 12, "a block after the answer"
        assert tb.drained(0)
        await tb.closed(0)
        if left:
            rest = Kernel(0, 5, left, 1, 1, grid=(2, 3, 2), first=at, runs=(1, 2))
            await tb.opened(rest)
            await tb.steps(SETTLED)
            cells = [(x, y, z) for z in range(2) for y in range(3) for x in range(2)]
            assert kernel.placed + rest.placed == cells
            await tb.closed(0)


@cocotb.test(**LIMIT)
async def add_at_any_moment(dut):
    """Added blocks follow; the row keeps its position in the order."""
    tb = await start(dut)
    for delay in range(40):
        old = Kernel(0, 5, 2, 1, 1, grid=(7, 1, 1), first=(1, 0, 0), runs=(1, 2))
        young = Kernel(1, 5, 20, 1, 1, grid=(9, 3, 1), first=(2, 0, 0), runs=(1, 2))
        await tb.opened(old)
        await tb.opened(young)
        await tb.steps(delay // 2)
        tb.add.put({"row": delay % 2, "blocks": 3})
        await tb.steps(2 * SETTLED)
        added = [3 * (row == delay % 2) for row in range(2)]
        assert (len(old.placed), len(young.placed)) == (2 + added[0], 20 + added[1])
        await tb.closed(0, 1)


@cocotb.test(**LIMIT)
async def drained_when_all_have_ended(dut):
    """A row is not drained from the cycle after `open` or `add` is accepted to the one in which the
    end of its last block is reported, and is in the next one."""
    tb = await start(dut)

    def drained() -> bool:
        return bool(tb.get("port__drained") & 1)

    kernel = Kernel(0, 5, SMS, 1, 1, runs=LONG)
    await tb.opened(kernel)
    for _ in range(2):
        assert drained() and kernel.filled == tb.cycle - 1
        for cycle in range(SETTLED):
            await tb.step()
            assert not drained(), cycle
        for sm in range(SMS):
            tb.end_all(sm)
        left = SMS
        while left:
            await tb.step()
            assert not drained(), f"{left} blocks have not ended"
            left -= tb.get("port__ended")["valid"]
        await tb.step()
        assert drained()
        tb.add.put({"row": 0, "blocks": SMS})
        await tb.until(lambda: kernel.left, "blocks are added")


@cocotb.test(**LIMIT)
async def ends_that_are_behind(dut):
    """A row is not drained while ends of its blocks are pending, even if more are pending than
    there are block slots."""
    tb = await start(dut)
    for sm in tb.sms:
        sm.tardy = True
    await tb.opened(Kernel(0, 5, 4 * SMS + 4))
    await tb.until(lambda: sum(len(sm.ended) for sm in tb.sms) == 4 * SMS + 4, "all ends wait")
    await tb.steps(10)
    assert not tb.drained(0)
    for sm in tb.sms:
        sm.tardy = False
    await tb.until(lambda: tb.drained(0), "the row is drained")
