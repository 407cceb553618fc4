"""Rules of the SM logic controller, individually (PLACE-20 … 26), on an SM with 16 warps, 8 blocks,
128 register units (64 KiB) and 48 KiB of shared memory; and its latencies."""

from itertools import pairwise

import cocotb

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.controller_testbench import ControllerTestbench, Pace
from signalbox.tb.units.sm.model import Block, Kernel

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}

FULL = Kernel(0, 0, warps=16)
"""A kernel whose block takes all hardware warps, and little else."""


async def full(dut, *kernels: Kernel) -> ControllerTestbench:
    """An SM with all hardware warps running, until row 0 is removed from `hold`."""
    tb = await ControllerTestbench(dut, (FULL, *kernels)).start()
    tb.hold.add(FULL.row)
    tb.send(FULL)
    await tb.until(lambda: len(tb.model.running) == 16, "all hardware warps run")
    return tb


def order(tb: ControllerTestbench) -> list[Block]:
    """Blocks in the order of their first start."""
    return [block for _, block, index in tb.seen.starts if index == 0]


async def end_one(tb: ControllerTestbench, row: int = 0) -> int:
    """End one finished warp of a row. Returns the cycle in which the end is accepted."""
    count = len(tb.seen.ends)
    tb.by_hand.append(row)
    await tb.until(lambda: len(tb.seen.ends) > count, "a warp ends")
    return tb.seen.ends[-1][0]


@cocotb.test(**LIMIT)
async def most_urgent_first(dut):
    """Blocks of higher priority start first, blocks of equal priority in order of arrival
    (PLACE-20)."""
    low, middle, high = (Kernel(row, priority, 2) for row, priority in ((1, 1), (2, 7), (3, 63)))
    tb = await full(dut, low, middle, high)
    blocks = [tb.send(kernel)[0] for kernel in (middle, low, high, middle, high, low)]
    await tb.steps(30)
    tb.hold.clear()
    await tb.rest()
    expected = [blocks[n] for n in (2, 4, 0, 3, 1, 5)]
    assert order(tb)[1:] == expected


@cocotb.test(**LIMIT)
async def looks_until_a_warp_is_free(dut):
    """Nothing starts while no hardware warp is free. Two cycles after an end is accepted the warp
    is free, and two cycles later the next start is offered on it, of a block that has begun or not
    (PLACE-21)."""
    tb = await full(dut, waits := Kernel(1, 5, 3, 2, 3))
    tb.hold.add(waits.row)
    (block,) = tb.send(waits)
    await tb.steps(300)
    assert block.started == 0
    for count in range(3):
        ended = await end_one(tb)
        await tb.steps(5)
        assert block.started == count + 1
        assert tb.seen.starts[-1] == (ended + 3, block, count)
        assert tb.seen.offers[-1] == (ended + 4, block, count)
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def chooses_again(dut):
    """A more urgent block that arrives around the end of a warp for which another block waits gets
    the warp if it was accepted no later than the end, maybe after some cycles for a new choice
    (PLACE-22)."""
    low, high = Kernel(1, 1), Kernel(2, 2)
    tb = await full(dut, low, high)
    for offset in range(-6, 7):
        tb.hold = {0, 1, 2}
        first, second = tb.send(low)[0], Block(high, (1, 2, 3))
        await tb.steps(6)
        for cycle in range(-6, 12):
            if cycle == 0:
                tb.by_hand.append(FULL.row)
            if cycle == offset:
                tb.todo.append(second)
            await tb.step()
        ended, taken = tb.seen.ends[-1][0], tb.seen.taken[-1][0]
        when, who, _ = tb.seen.starts[-1]
        assert taken - ended == offset
        assert who is (second if offset <= 0 else first)
        assert when - ended == {-1: 4, 0: 5}.get(offset, 3)
        tb.hold = {0}
        tb.by_hand = [FULL.row] * 15
        await tb.until(lambda: len(tb.model.blocks) == 0, "all blocks are over")
        tb.send(FULL)
        await tb.until(lambda: len(tb.model.running) == 16, "all hardware warps run")
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def rate(dut):
    """A warp starts every second cycle, of the same block or the next (PLACE-23)."""
    wide, narrow = Kernel(0, 1, 7), Kernel(1, 0, 1)
    tb = await ControllerTestbench(dut, (wide, narrow)).start()
    tb.hold = {0, 1}
    two, four = tb.send(wide, 2), tb.send(narrow, 2)
    await tb.until(lambda: len(tb.seen.starts) == 16, "16 warps have started")
    cycles = [cycle for cycle, *_ in tb.seen.starts]
    gaps = [after - before for before, after in pairwise(cycles)]
    assert gaps == [2] * 15
    assert order(tb) == [*two, *four]
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def ends(dut):
    """A warp's registers and hardware warp are free two cycles after its end was accepted; its
    block's shared memory and slot, four cycles after the last warp's end; then `highest` falls
    (PLACE-24, 25)."""
    tb = await ControllerTestbench(
        dut, (one := Kernel(0, 9, 3, 4, 5), low := Kernel(1, 2, 1))
    ).start()
    tb.hold = {0, 1}
    tb.send(one)
    tb.send(low)
    await tb.until(lambda: len(tb.model.running) == 4, "4 warps run")
    await tb.steps(5)
    for count in range(1, 4):
        ended = await end_one(tb)
        await tb.until(lambda ended=ended: tb.cycle == ended + 2, "two cycles pass")
        assert tb.model.left["registers"] == 128 - 4 * (4 - count) - 1, "not yet freed"
        await tb.step()
        assert tb.model.left["registers"] == 128 - 4 * (3 - count) - 1
        await tb.step()
        assert tb.model.left["shared"] == 43
        await tb.step()
        assert tb.model.left["shared"] == (48 if count == 3 else 43)
        assert len(tb.seen.over) == (count == 3)
    for expected in (10, 10, 3):
        assert tb.get("link__highest") == expected
        await tb.step()
    tb.hold.clear()
    await tb.rest()
    assert tb.get("link__highest") == 0


@cocotb.test(**LIMIT)
async def barrier_blocks_start_whole(dut):
    """The most urgent block, if it has a barrier, waits until all of it fits, and less urgent
    blocks get nothing meanwhile; then it gets everything at once, regardless of later blocks
    (PLACE-26)."""
    tb = await full(
        dut, whole := Kernel(1, 5, 8, 4, 3, True), low := Kernel(2, 4, 1), high := Kernel(3, 6, 16)
    )
    (block,) = tb.send(whole)
    tb.send(low, 2)
    for count in range(7):
        await end_one(tb)
        await tb.steps(20)
        assert block.started == 0 and tb.model.left["warps"] == count + 1
    (urgent,) = tb.send(high)
    await tb.steps(8)
    assert urgent.started, "a higher block was held back"
    tb.hold.clear()
    tb.hold.add(whole.row)
    await tb.until(lambda: block.started == 8, "the block is resident")
    starts = [cycle for cycle, one, _ in tb.seen.starts if one is block]
    assert starts[-1] - starts[0] == 2 * 7
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def barrier_blocks_among_others(dut):
    """Blocks with a barrier of two kernels, each larger than half of the SM, run among others: each
    is fully resident before one of its warps may end, and all end (PLACE-26)."""
    kernels = [
        Kernel(0, 1, 9, 2, 20, True),
        Kernel(1, 1, 10, 7, 24, True),
        Kernel(2, 1, 3, 30, 4),
        Kernel(3, 2, 5, 1, 0),
    ]
    tb = await ControllerTestbench(dut, kernels).start()
    tb.pace = Pace(block=0.5, start=0.4, runs=(1, 30))
    for _ in range(30):
        for kernel in kernels:
            tb.send(kernel)
    await tb.rest()


@cocotb.test(**LIMIT)
async def lack_of_shared_memory(dut):
    """If a block lacks shared memory, blocks that hold some continue, and no other block begins;
    otherwise blocks would wait for each other (rule 3)."""
    holds, wants = Kernel(1, 1, 4, 1, 30), Kernel(2, 5, 1, 1, 30)
    other = Kernel(3, 4, 1)
    tb = await full(dut, holds, wants, other)
    tb.hold.add(holds.row)
    first, second, third = (tb.send(kernel)[0] for kernel in (holds, wants, other))
    tb.todo = [first]
    await end_one(tb)
    await tb.until(lambda: first.started == 1, "the first block begins")
    tb.todo += [second, third]
    await tb.steps(10)
    await end_one(tb)
    await tb.steps(5)
    assert (first.started, second.started, third.started) == (2, 0, 0)
    tb.hold.clear()
    await tb.rest()
    assert order(tb)[1:] == [first, second, third]


@cocotb.test(**LIMIT)
async def barrier_goes_on(dut):
    """A begun block with a barrier continues even if a more urgent block waits for registers that
    it holds (rule 4)."""
    whole, wants = Kernel(1, 1, 8, 8, 0, True), Kernel(2, 5, 2, 64)
    tb = await ControllerTestbench(dut, (whole, wants)).start()
    tb.pace.start = 0.1
    (block,) = tb.send(whole)
    await tb.until(lambda: block.started == 1, "the block begins")
    (urgent,) = tb.send(wants)
    await tb.until(lambda: urgent in tb.model.blocks, "the block arrives")
    assert block.started < 8
    tb.pace.start = 1
    await tb.rest()


@cocotb.test(**LIMIT)
async def barrier_blocks_in_turns(dut):
    """If blocks with a barrier arrive while less urgent ones start, warps of the latest and of the
    earliest begun block start in turn, then warps of the next; all blocks become resident (rule 4,
    PLACE-26)."""
    kernels = [Kernel(n, n, warps, 2, 1, True) for n, warps in enumerate((7, 4, 3, 2))]
    tb = await ControllerTestbench(dut, kernels).start()
    together, rounds = 0, Rounds(12)
    while rounds.more(together > 5, together):
        tb.hold, blocks = set(range(4)), []
        pace = tb.random.choice((0.4, 1.0))
        for kernel in kernels:
            tb.pace.start = 0.0
            blocks += tb.send(kernel)
            await tb.until(lambda sent=blocks: sent[-1] in tb.model.blocks, "the block arrives")
            tb.pace.start = pace
            await tb.until(lambda sent=blocks: sent[-1].started > 0, "the block begins")
        together += all(block.waits for block in blocks)
        await tb.until(
            lambda sent=blocks: not any(block.waits for block in sent), "all blocks are resident"
        )
        tb.hold.clear()
        await tb.rest()


@cocotb.test(**LIMIT)
async def second_worked_example(dut):
    """A block with 36 KiB of registers, 6 KiB per warp, arrives with 12 KiB available: two warps
    start at once, the others when there is room."""
    tb = await ControllerTestbench(
        dut, (holds := Kernel(0, 1, 2, 52), comes := Kernel(1, 1, 6, 12))
    ).start()
    tb.hold = {0, 1}
    tb.send(holds)
    (block,) = tb.send(comes)
    await tb.steps(50)
    assert tb.model.left["registers"] == 0 and block.started == 2
    tb.hold = {0}
    await tb.until(lambda: block.started == 6, "the block is resident")
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def third_worked_example(dut):
    """On an SM full of work of priority 1, with more of it waiting, a block of priority 5 gets the
    first freed hardware warp."""
    tb = await ControllerTestbench(dut, (low := Kernel(0, 1, 5), high := Kernel(1, 5, 2))).start()
    tb.hold = {0}
    blocks = tb.send(low, 6)
    await tb.until(lambda: len(tb.model.blocks) == 6, "all blocks arrive")
    await tb.steps(30)
    (urgent,) = tb.send(high)
    await tb.steps(10)
    assert urgent.started == 0 and blocks[3].started == 1
    ended = await end_one(tb)
    await tb.steps(5)
    assert tb.seen.starts[-1] == (ended + 3, urgent, 0)
    tb.hold.clear()
    await tb.rest()


@cocotb.test(**LIMIT)
async def held_up(dut):
    """With long stalls on each port nothing is lost, and while `ended` is not accepted, warps end
    until its queue is full."""
    tb = await ControllerTestbench(dut, (one := Kernel(0, 3, 1, 1, 1),)).start()
    sent = tb.send(one, 40)
    for name in ("ended", "begin", "start", "end"):
        setattr(tb.pace, name, 0)
        await tb.steps(200)
        count = len(tb.seen.starts), len(tb.seen.ends)
        await tb.steps(200)
        assert count == (len(tb.seen.starts), len(tb.seen.ends)), "nothing is held up"
        dut._log.info("without %s: %d rows wait", name, len(tb.rows))
        assert name != "ended" or len(tb.rows) > 4
        setattr(tb.pace, name, 1)
        await tb.steps(8)
    await tb.rest()
    assert order(tb) == sent and len(tb.seen.over) == 40


@cocotb.test(**LIMIT)
async def occupancy(dut):
    """As many blocks are resident as registers, hardware warps, shared memory and slots allow
    (PLACE-10)."""
    shapes = [
        (1, 1, 0), (2, 1, 0), (3, 1, 0), (5, 2, 0), (16, 8, 48), (16, 1, 1),
        (1, 64, 0), (2, 33, 0), (4, 8, 13), (4, 9, 12), (1, 16, 6), (1, 17, 6),
        (1, 16, 7), (1, 1, 48), (8, 8, 24), (8, 8, 25),
    ]  # fmt: skip
    tb = await ControllerTestbench(dut).start()
    for warps, registers, shared in shapes:
        for barrier in (False, True):
            kernel = Kernel(0, 1, warps, registers, shared, barrier)
            limits = [8, 16 // warps, 128 // (warps * registers)]
            limits += [48 // shared] if shared else []
            await tb.describe(kernel)
            tb.hold = {0}
            sent = tb.send(kernel, 8)
            await tb.steps(60)
            resident = sum(not block.waits for block in sent)
            assert resident == min(limits), (kernel, resident, limits)
            tb.hold.clear()
            await tb.rest()


@cocotb.test(**LIMIT)
@cocotb.parametrize(barrier=[False, True])
async def killed_while_it_waits(dut, barrier: bool):
    """A block of a killed row that waits for resources that are never free is over within a bound,
    and so is a block with some running warps. The resources they would have taken are reported as
    free; other blocks of the same priority stay, and start later (PREEMPT-7)."""
    waits, other = Kernel(1, 5, 9, 2, 3, barrier), Kernel(2, 5, 3, 1, 1)
    partly = Kernel(3, 6, 10, 1, 2)
    tb = await full(dut, waits, other, partly)
    blocks = [tb.send(kernel)[0] for kernel in (waits, other, partly, waits)]
    tb.hold.add(partly.row)
    for _ in range(3):
        await end_one(tb)
    await tb.until(lambda: blocks[2].started == 3, "three warps run")
    tb.kill(waits.row)
    await tb.until(lambda: tb.gone(waits.row), "its blocks are over", 8 * 4 * 2 + 2 * (9 * 3 + 8))
    assert [one.started for one in blocks] == [0, 0, 3, 0]
    assert all(one.withdrawn == 9 for one in blocks[::3])
    tb.pace.end = 0
    tb.kill(partly.row)
    await tb.until(lambda: blocks[2].ended == 7, "the others are withdrawn", 8 * 4 * 2 + 7 * 3 + 8)
    assert blocks[2].withdrawn == 7 and not tb.gone(partly.row)
    tb.pace.end = 1
    await tb.until(lambda: tb.gone(partly.row), "the running ones end", 40)
    await tb.until(lambda: blocks[1].started == 3, "the other starts")
    tb.revive()
    again = tb.send(waits)[0]
    tb.hold.clear()
    await tb.rest()
    assert again.started == 9 and order(tb)[1:] == [blocks[2], blocks[1], again]


@cocotb.test(**LIMIT)
async def room_beside_a_barrier_block(dut):
    """While the warps of a begun block with a barrier start, reported room for a more urgent block
    of another SM stays: these warps take none of it (rule 7)."""
    whole, claimed = Kernel(1, 1, 8, 2, 3, barrier=True), Kernel(2, 5)
    tb = await ControllerTestbench(dut, (whole, claimed)).start()
    for pace in (0.2, 1.0):
        tb.pace.start = pace
        (block,) = tb.send(whole)
        await tb.until(lambda one=block: one.started == 1, "the block begins")
        tb.claim(claimed)
        await tb.steps(3)
        assert block.started < 4
        while block.waits:
            assert tb.get("link__room"), "room is given up"
            await tb.step()
        tb.claim(None)
        await tb.rest()


@cocotb.test(**LIMIT)
async def killed_behind_a_barrier(dut):
    """A block with a barrier that has begun is not withdrawn: its other warps start and end."""
    block = Kernel(1, 5, 8, 1, 0, barrier=True)
    tb = await ControllerTestbench(dut, (block,)).start()
    tb.pace.start = 0.1
    sent = tb.send(block)[0]
    await tb.until(lambda: sent.started == 2, "it has begun")
    tb.kill(block.row)
    await tb.rest()
    assert (sent.started, sent.withdrawn) == (8, 0)
