"""Placement in individual cases: the worked examples of page 30 (1, 2, 4) and page 20 (3), order,
batches, requests in every phase. `Bench` also checks every block."""

import ast
import os
from itertools import pairwise

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.units.placement.testbench import (
    AFFINITY,
    DEEP,
    FOREVER,
    LOWER,
    WARP,
    WHOLE,
    WIDE,
    Bench,
    Kernel,
    rounds,
)

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}
CONFIG = Config(**ast.literal_eval(os.environ["CONFIG"]))
SMS, WARPS, REGISTERS = CONFIG.sms, CONFIG.sm_warps, CONFIG.register_units
SHARED, SLOTS = CONFIG.shared_units, CONFIG.sm_blocks
LONG = (FOREVER, FOREVER)
SETTLED = 60
"""Cycles after which everything that fits is placed."""

OPEN_LATENCY, FREED_LATENCY = 5 + rounds(SMS), 3 + rounds(SMS)
"""Cycles until a block is valid at an SM; it is logged one cycle earlier."""


async def start(dut) -> Bench:
    return await Bench.start(dut, CONFIG)


async def fill(bench: Bench, row: int, priority: int, runs: tuple[int, int] = LONG) -> Kernel:
    """Fill every SM with one block, of the maximum number of warps."""
    kernel = Kernel(row, priority, SMS, WARPS, REGISTERS // WARPS, runs=runs)
    await bench.opened(kernel)
    await bench.steps(SETTLED)
    assert sorted(sm for _, _, sm, _ in bench.log) == list(range(SMS))
    return kernel


def placed(bench: Bench, kernel: Kernel) -> list[tuple[int, int]]:
    """SM and step of each of the kernel's blocks."""
    return [(sm, step) for _, row, sm, step in bench.log if row == kernel.row]


@cocotb.test(**LIMIT)
async def no_room_for_a_block(dut):
    """Page 30, example 1: the remaining resources are insufficient for a block, and for a warp."""
    bench = await start(dut)
    most = REGISTERS // WARPS
    for row in range(SMS):
        await bench.opened(Kernel(row, 7, 1, WARPS // 2, most + 1, runs=LONG))
    await bench.steps(SETTLED)
    assert len(bench.log) == SMS
    left = REGISTERS - WARPS // 2 * (most + 1)
    late = Kernel(SMS, 7, 1, 1, left + 1)
    await bench.opened(late)
    await bench.steps(SETTLED)
    assert not placed(bench, late)
    _, why = bench.refused[-1]
    assert (why.registers, why.warps, why.shared, why.slots, why.lower) == (1, 0, 0, 0, 1)
    bench.end_all(1)
    await bench.steps(SETTLED)
    assert placed(bench, late) == [(1, WHOLE)]


@cocotb.test(**LIMIT)
async def room_for_two_warps(dut):
    """Page 30, example 2: with room for two warps of a block, but not for all, it is placed by step
    B, once."""
    bench = await start(dut)
    for row in range(SMS):
        await bench.opened(Kernel(row, 7, 1, 1, REGISTERS - 12, runs=LONG))
    await bench.steps(SETTLED)
    six = Kernel(SMS, 7, 1, 6, 6, runs=LONG)
    await bench.opened(six)
    await bench.steps(SETTLED)
    assert placed(bench, six) == [(0, WARP)]
    assert len(bench.sms[0].blocks[-1].running) == 2, "two warps fit"
    bound = Kernel(SMS + 1, 7, 1, 6, 6, barrier=True)
    await bench.opened(bound)
    await bench.steps(SETTLED)
    assert not placed(bench, bound), "a block with a barrier cannot start partly"


@cocotb.test(**LIMIT)
async def only_to_lower_work(dut):
    """Page 30, example 4: step C places only on an SM with less urgent work, not with equal or
    higher work whose kernel has nothing left to distribute."""
    bench = await start(dut)
    low = Kernel(0, 1, 1, WARPS, 1, runs=LONG)
    await bench.opened(low)
    high = Kernel(1, 6, SMS - 1, WARPS, 1, runs=LONG)
    await bench.opened(high)
    await bench.steps(SETTLED)
    (target,) = placed(bench, low)
    equal = Kernel(2, 1, 1, 1, 1)
    await bench.opened(equal)
    await bench.steps(SETTLED)
    assert not placed(bench, equal), "equal work is not displaced"
    urgent = Kernel(3, 5, 3, 1, 1)
    await bench.opened(urgent)
    await bench.steps(SETTLED)
    assert placed(bench, urgent) == [(target[0], LOWER)], "a block of its own is not lower"
    bench.end_all(target[0])
    await bench.steps(SETTLED)
    assert len(placed(bench, urgent)) == 3


@cocotb.test(**LIMIT)
async def block_slots(dut):
    """Every step requires a block slot."""
    bench = await start(dut)
    await bench.opened(Kernel(0, 1, SMS * SLOTS, 1, 1, runs=LONG))
    await bench.steps(SETTLED)
    assert len(bench.log) == SMS * SLOTS
    urgent = Kernel(1, 63, 1, 1, 1)
    await bench.opened(urgent)
    await bench.steps(SETTLED)
    assert not placed(bench, urgent)
    _, why = bench.refused[-1]
    assert (why.registers, why.warps, why.shared, why.slots, why.lower) == (0, 0, 0, 1, 0)
    now = bench.now
    bench.end_one(2)
    await bench.steps(SETTLED)
    ((cycle, _, sm, step),) = [one for one in bench.log if one[1] == 1]
    assert (sm, step) == (2, WHOLE)
    assert cycle + 1 - now == FREED_LATENCY, f"{cycle + 1 - now} cycles"


@cocotb.test(**LIMIT)
async def priorities_then_age(dut):
    """PLACE-1: the highest priority is first, and equal ones in the order of opening; a row that
    closed and reopened is the youngest."""
    bench = await start(dut)
    await fill(bench, 9, 63)
    for row, priority in ((3, 5), (0, 5), (5, 63), (2, 4), (1, 5), (4, 62)):
        await bench.opened(Kernel(row, priority, 1, 1, 1, runs=LONG))
    bench.todo["stop"].append(3)
    await bench.until(lambda: bool(bench.answers))
    await bench.steps(3)
    bench.todo["close"].append(3)
    await bench.steps(3)
    await bench.opened(Kernel(3, 5, 1, 1, 1, runs=LONG))
    await bench.steps(SETTLED)
    assert len(bench.log) == SMS
    for sm in range(SMS):
        bench.end_all(sm)
    await bench.steps(3 * SETTLED)
    assert [row for _, row, *_ in bench.log[SMS:]] == [5, 4, 0, 1, 3, 2]


@cocotb.test(**LIMIT)
async def urgent_at_any_moment(dut):
    """An urgent row overtakes decisions in progress, in any state, and none is lost."""
    bench = await start(dut)
    for delay in range(16):
        many = Kernel(0, 3, 9, 1, 1, runs=(1, 3), policy=(WIDE, DEEP, AFFINITY)[delay % 3])
        few = Kernel(1, 3, 1, 1, 1, runs=(1, 3))
        urgent = Kernel(2, 9, 2, 1, 1, runs=(1, 3))
        bench.open(many)
        bench.open(few)
        await bench.steps(delay + 1)
        bench.open(urgent)
        opened = bench.now
        await bench.steps(SETTLED)
        cycles = [cycle for cycle, row, *_ in bench.log if row == 2 and cycle > opened]
        assert cycles[0] + 1 - urgent.opened == OPEN_LATENCY, f"{cycles[0] + 1 - urgent.opened}"
        assert (len(many.placed), len(few.placed), len(cycles)) == (9, 1, 2)
        bench.todo["close"].extend((0, 1, 2))
        await bench.until(lambda: not bench.kernels)


@cocotb.test(**LIMIT)
async def wide_goes_to_all(dut):
    """Page 20, example 3, wide: every grid is on all SMs."""
    bench = await start(dut)
    for row in range(SMS):
        await bench.opened(Kernel(row, 5, SMS, 1, 1, asid=row, runs=LONG))
    await bench.steps(SETTLED)
    for row in range(SMS):
        assert sorted(placed(bench, bench.kernels[row])) == [(sm, WHOLE) for sm in range(SMS)]


@cocotb.test(**LIMIT)
async def deep_fills_one(dut):
    """Page 20, example 3, deep: each grid is on a single SM, with one block per cycle."""
    bench = await start(dut)
    for row in range(SMS):
        await bench.opened(Kernel(row, 5, SLOTS, 1, 1, asid=row, policy=DEEP, runs=LONG))
    await bench.steps(SETTLED)
    for row in range(SMS):
        cycles = [cycle for cycle, one, *_ in bench.log if one == row]
        assert placed(bench, bench.kernels[row]) == [(row, WHOLE)] * SLOTS
        assert cycles == list(range(cycles[0], cycles[0] + SLOTS)), "one per cycle"


@cocotb.test(**LIMIT)
async def deep_takes_the_next(dut):
    """PLACE-3: blocks go to one SM while it has room, then to the next, and return to the last
    one."""
    bench = await start(dut)
    kernel = Kernel(0, 5, 5, WARPS // 2, 1, policy=DEEP, runs=LONG)
    await bench.opened(kernel)
    await bench.steps(SETTLED)
    assert placed(bench, kernel) == [(0, WHOLE)] * 2 + [(1, WHOLE)] * 2 + [(2, WHOLE)]
    bench.end_all(0)
    await bench.steps(SETTLED)
    assert len(bench.sms[0].blocks) == 0, "it has the most room"
    bench.todo["add"].append((0, 1))
    await bench.steps(SETTLED)
    assert placed(bench, kernel)[-1] == (2, WHOLE)


@cocotb.test(**LIMIT)
async def one_decision_at_a_time(dut):
    """Deep and affinity: the next decision begins when the block of the previous one is placed, and
    takes it into account."""
    for policy in (DEEP, AFFINITY):
        bench = await start(dut)
        await bench.opened(Kernel(0, 5, SMS, WARPS, 1, policy=policy, runs=LONG))
        await bench.steps(SETTLED)
        cycles = [cycle for cycle, *_ in bench.log]
        assert len(cycles) == SMS
        decision = 1 + rounds(SMS)
        assert all(after - before > decision for before, after in pairwise(cycles)), cycles


@cocotb.test(**LIMIT)
async def batch_waits_for_its_sm(dut):
    """A batch continues as its SM accepts blocks; nothing is lost."""
    bench = await start(dut)
    bench.eager = 0.3
    kernel = Kernel(0, 5, SLOTS, 1, 1, policy=DEEP, runs=LONG)
    await bench.opened(kernel)
    await bench.steps(3 * SETTLED)
    assert placed(bench, kernel) == [(0, WHOLE)] * SLOTS


@cocotb.test(**LIMIT)
async def affinity_returns(dut):
    """ASID-31: blocks go to an SM that runs or last ran the space while it has room; then to the
    least loaded one."""
    bench = await start(dut)
    half = WARPS // 2
    for space in range(SMS):
        await bench.opened(Kernel(space, 5, 1, 1, 1, asid=space, runs=LONG))
    await bench.steps(SETTLED)
    again = Kernel(SMS, 5, 2, half, 1, asid=1, policy=AFFINITY, runs=LONG)
    await bench.opened(again)
    await bench.steps(SETTLED)
    assert placed(bench, again) == [(1, WHOLE), (0, WHOLE)], "SM 1 has room for one more"
    # Space 1 is now on SM 0 and SM 1; the less loaded of them gets the next block.
    bench.end_all(1)
    await bench.steps(5)
    third = Kernel(SMS + 1, 5, 1, 1, 1, asid=1, policy=AFFINITY, runs=LONG)
    await bench.opened(third)
    await bench.steps(SETTLED)
    assert placed(bench, third) == [(1, WHOLE)], "SM 1 ran the space last"


@cocotb.test(**LIMIT)
async def one_sm_does_not_take(dut):
    """An SM that does not accept its block delays no other SM."""
    bench = await start(dut)
    bench.slow = {1}
    await bench.opened(Kernel(0, 5, SMS * SLOTS, 1, 1, runs=LONG))
    await bench.steps(SETTLED)
    assert sorted(sm for _, _, sm, _ in bench.log) == [0] * SLOTS + [1] + [2] * SLOTS
    bench.slow = set()
    await bench.steps(SETTLED)
    assert len(bench.log) == SMS * SLOTS


@cocotb.test(**LIMIT)
async def stop_at_any_moment(dut):
    """ASID-25: at any time `stop` returns the blocks that have not been sent; the row can continue
    elsewhere."""
    bench = await start(dut)
    for count, delay in enumerate(reversed(range(24)), 1):
        policy = (WIDE, DEEP, AFFINITY)[delay % 3]
        kernel = Kernel(0, 5, 12, 1, 1, policy=policy, grid=(2, 3, 2), runs=(1, 2))
        await bench.opened(kernel)
        await bench.steps(delay)
        bench.todo["stop"].append(0)
        await bench.until(lambda count=count: len(bench.answers) == count)
        _, left, at = bench.answers[-1]
        await bench.steps(20)
        assert len(kernel.placed) + left == 12, "a block after the answer"
        assert bench.drained(0)
        bench.todo["close"].append(0)
        await bench.until(lambda: not bench.kernels)
        if left:
            rest = Kernel(0, 5, left, 1, 1, grid=(2, 3, 2), first=at, runs=(1, 2))
            await bench.opened(rest)
            await bench.steps(SETTLED)
            cells = [(x, y, z) for z in range(2) for y in range(3) for x in range(2)]
            assert kernel.placed + rest.placed == cells
            bench.todo["close"].append(0)
            await bench.until(lambda: not bench.kernels)


@cocotb.test(**LIMIT)
async def add_at_any_moment(dut):
    """Added blocks follow; the row keeps its position in the order."""
    bench = await start(dut)
    for delay in range(40):
        old = Kernel(0, 5, 2, 1, 1, grid=(7, 1, 1), first=(1, 0, 0), runs=(1, 2))
        young = Kernel(1, 5, 20, 1, 1, grid=(9, 3, 1), first=(2, 0, 0), runs=(1, 2))
        await bench.opened(old)
        await bench.opened(young)
        await bench.steps(delay // 2)
        bench.todo["add"].append((delay % 2, 3))
        await bench.steps(2 * SETTLED)
        added = [3 * (row == delay % 2) for row in range(2)]
        assert (len(old.placed), len(young.placed)) == (2 + added[0], 20 + added[1])
        bench.todo["close"].extend((0, 1))
        await bench.until(lambda: not bench.kernels)


@cocotb.test(**LIMIT)
async def drained_when_all_have_ended(dut):
    """A row is drained exactly when its last block has ended."""
    bench = await start(dut)
    await bench.opened(Kernel(0, 5, SMS, 1, 1, runs=LONG))
    await bench.steps(SETTLED)
    assert not bench.drained(0)
    for sm in range(SMS):
        assert not bench.drained(0)
        bench.end_all(sm)
        await bench.steps(10)
    assert bench.drained(0)


@cocotb.test(**LIMIT)
async def ends_that_are_behind(dut):
    """A row is not drained while ends of its blocks are pending, also if these are more than the
    block slots."""
    bench = await start(dut)
    bench.tardy = True
    await bench.opened(Kernel(0, 5, 4 * SMS + 4))
    await bench.until(lambda: sum(len(sm.ended) for sm in bench.sms) == 4 * SMS + 4)
    await bench.steps(10)
    assert not bench.drained(0)
    bench.tardy = False
    await bench.until(lambda: bench.drained(0))
