"""Rules of the SM logic controller, individually (PLACE-20 … 26), on an SM with 16 warps, 8 blocks,
128 register units (64 KiB) and 48 KiB of shared memory; and its latencies."""

from itertools import pairwise

import cocotb

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.controller_testbench import Bench, Pace
from signalbox.tb.units.sm.model import Block, Kernel

LIMIT = {"timeout_time": 5, "timeout_unit": "ms"}

FULL = Kernel(0, 0, warps=16)
"""Takes all hardware warps, and little else."""


async def full(dut, *kernels: Kernel) -> Bench:
    """An SM with all hardware warps running, until row 0 is removed from `hold`."""
    bench = await Bench.begin(dut, (FULL, *kernels))
    bench.hold.add(FULL.row)
    bench.send(FULL)
    await bench.until(lambda: len(bench.model.running) == 16)
    return bench


def order(bench: Bench) -> list[Block]:
    """Blocks in the order of their first start."""
    return [block for _, block, index in bench.seen.starts if index == 0]


async def end_one(bench: Bench, row: int = 0) -> int:
    """End one finished warp of a row. Returns the cycle in which the end is accepted."""
    count = len(bench.seen.ends)
    bench.by_hand.append(row)
    await bench.until(lambda: len(bench.seen.ends) > count)
    return bench.seen.ends[-1][0]


@cocotb.test(**LIMIT)
async def most_urgent_first(dut):
    """Blocks of higher priority start first, equal ones in order of arrival (PLACE-20)."""
    low, middle, high = (Kernel(row, priority, 2) for row, priority in ((1, 1), (2, 7), (3, 63)))
    bench = await full(dut, low, middle, high)
    blocks = [bench.send(kernel)[0] for kernel in (middle, low, high, middle, high, low)]
    await bench.run(30)
    bench.hold.clear()
    await bench.rest()
    expected = [blocks[n] for n in (2, 4, 0, 3, 1, 5)]
    assert order(bench)[1:] == expected


@cocotb.test(**LIMIT)
async def looks_until_a_warp_is_free(dut):
    """Nothing starts while no hardware warp is free. Two cycles after an end is accepted the warp
    is free, and two cycles later the next start is offered on it, of a block that has begun or not
    (PLACE-21)."""
    bench = await full(dut, waits := Kernel(1, 5, 3, 2, 3))
    bench.hold.add(waits.row)
    (block,) = bench.send(waits)
    await bench.run(300)
    assert block.started == 0
    for count in range(3):
        ended = await end_one(bench)
        await bench.run(5)
        assert block.started == count + 1
        assert bench.seen.starts[-1] == (ended + 3, block, count)
        assert bench.seen.offers[-1] == (ended + 4, block, count)
    bench.hold.clear()
    await bench.rest()


@cocotb.test(**LIMIT)
async def chooses_again(dut):
    """If a more urgent block arrives around the end of a warp for which another one waits, it gets
    that warp if it was accepted no later than the end, but may have to be chosen first
    (PLACE-22)."""
    low, high = Kernel(1, 1), Kernel(2, 2)
    bench = await full(dut, low, high)
    for offset in range(-6, 7):
        bench.hold = {0, 1, 2}
        first, second = bench.send(low)[0], Block(high, (1, 2, 3))
        await bench.run(6)
        for cycle in range(-6, 12):
            if cycle == 0:
                bench.by_hand.append(FULL.row)
            if cycle == offset:
                bench.todo.append(second)
            await bench.step()
        ended, taken = bench.seen.ends[-1][0], bench.seen.taken[-1][0]
        when, who, _ = bench.seen.starts[-1]
        assert taken - ended == offset
        assert who is (second if offset <= 0 else first)
        assert when - ended == {-1: 4, 0: 5}.get(offset, 3)
        bench.hold = {0}
        bench.by_hand = [FULL.row] * 15
        await bench.until(lambda: len(bench.model.blocks) == 0)
        bench.send(FULL)
        await bench.until(lambda: len(bench.model.running) == 16)
    bench.hold.clear()
    await bench.rest()


@cocotb.test(**LIMIT)
async def rate(dut):
    """A warp starts every second cycle, of the same block or the next (PLACE-23)."""
    wide, narrow = Kernel(0, 1, 7), Kernel(1, 0, 1)
    bench = await Bench.begin(dut, (wide, narrow))
    bench.hold = {0, 1}
    two, four = bench.send(wide, 2), bench.send(narrow, 2)
    await bench.until(lambda: len(bench.seen.starts) == 16)
    cycles = [cycle for cycle, *_ in bench.seen.starts]
    gaps = [after - before for before, after in pairwise(cycles)]
    assert gaps == [2] * 15
    assert order(bench) == [*two, *four]
    bench.hold.clear()
    await bench.rest()


@cocotb.test(**LIMIT)
async def ends(dut):
    """A warp's registers and hardware warp are free two cycles after its end was accepted; its
    block's shared memory and slot, four cycles after the last warp's; then `highest` falls
    (PLACE-24, 25)."""
    bench = await Bench.begin(dut, (one := Kernel(0, 9, 3, 4, 5), low := Kernel(1, 2, 1)))
    bench.hold = {0, 1}
    bench.send(one)
    bench.send(low)
    await bench.until(lambda: len(bench.model.running) == 4)
    await bench.run(5)
    for count in range(1, 4):
        ended = await end_one(bench)
        await bench.until(lambda ended=ended: bench.now == ended + 2)
        assert bench.model.left["registers"] == 128 - 4 * (4 - count) - 1, "not yet freed"
        await bench.step()
        assert bench.model.left["registers"] == 128 - 4 * (3 - count) - 1
        await bench.step()
        assert bench.model.left["shared"] == 43
        await bench.step()
        assert bench.model.left["shared"] == (48 if count == 3 else 43)
        assert len(bench.seen.over) == (count == 3)
    for expected in (10, 10, 3):
        assert dut.link__highest.value == expected
        await bench.step()
    bench.hold.clear()
    await bench.rest()
    assert dut.link__highest.value == 0


@cocotb.test(**LIMIT)
async def barrier_blocks_start_whole(dut):
    """A block with a barrier at the head waits until all of it fits, and nothing is given to others
    meanwhile; then it has everything at once, regardless of later blocks (PLACE-26)."""
    bench = await full(
        dut, whole := Kernel(1, 5, 8, 4, 3, True), low := Kernel(2, 4, 1), high := Kernel(3, 6, 16)
    )
    (block,) = bench.send(whole)
    bench.send(low, 2)
    for count in range(7):
        await end_one(bench)
        await bench.run(20)
        assert block.started == 0 and bench.model.left["warps"] == count + 1
    (urgent,) = bench.send(high)
    await bench.run(8)
    assert urgent.started, "a higher block was held back"
    bench.hold.clear()
    bench.hold.add(whole.row)
    await bench.until(lambda: block.started == 8)
    starts = [cycle for cycle, one, _ in bench.seen.starts if one is block]
    assert starts[-1] - starts[0] == 2 * 7
    bench.hold.clear()
    await bench.rest()


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
    bench = await Bench.begin(dut, kernels)
    bench.pace = Pace(block=0.5, start=0.4, runs=(1, 30))
    for _ in range(30):
        for kernel in kernels:
            bench.send(kernel)
    await bench.rest()


@cocotb.test(**LIMIT)
async def lack_of_shared_memory(dut):
    """If a block lacks shared memory, blocks that have it continue, and no other block begins;
    otherwise they would wait for each other (rule 3)."""
    holds, wants = Kernel(1, 1, 4, 1, 30), Kernel(2, 5, 1, 1, 30)
    other = Kernel(3, 4, 1)
    bench = await full(dut, holds, wants, other)
    bench.hold.add(holds.row)
    first, second, third = (bench.send(kernel)[0] for kernel in (holds, wants, other))
    bench.todo = [first]
    await end_one(bench)
    await bench.until(lambda: first.started == 1)
    bench.todo += [second, third]
    await bench.run(10)
    await end_one(bench)
    await bench.run(5)
    assert (first.started, second.started, third.started) == (2, 0, 0)
    bench.hold.clear()
    await bench.rest()
    assert order(bench)[1:] == [first, second, third]


@cocotb.test(**LIMIT)
async def barrier_goes_on(dut):
    """A begun block with a barrier continues even if a more urgent block waits for registers that
    it holds (rule 4)."""
    whole, wants = Kernel(1, 1, 8, 8, 0, True), Kernel(2, 5, 2, 64)
    bench = await Bench.begin(dut, (whole, wants))
    bench.pace.start = 0.1
    (block,) = bench.send(whole)
    await bench.until(lambda: block.started == 1)
    (urgent,) = bench.send(wants)
    await bench.until(lambda: urgent in bench.model.blocks)
    assert block.started < 8
    bench.pace.start = 1
    await bench.rest()


@cocotb.test(**LIMIT)
async def barrier_blocks_in_turns(dut):
    """If blocks with a barrier arrive while less urgent ones start, warps of the latest and of the
    earliest begun one start in turn, then those of the next; all get theirs (rule 4, PLACE-26)."""
    kernels = [Kernel(n, n, warps, 2, 1, True) for n, warps in enumerate((7, 4, 3, 2))]
    bench = await Bench.begin(dut, kernels)
    together, rounds = 0, Rounds(12)
    while rounds.more(together > 5, together):
        bench.hold, blocks = set(range(4)), []
        pace = bench.numbers.choice((0.4, 1.0))
        for kernel in kernels:
            bench.pace.start = 0.0
            blocks += bench.send(kernel)
            await bench.until(lambda sent=blocks: sent[-1] in bench.model.blocks)
            bench.pace.start = pace
            await bench.until(lambda sent=blocks: sent[-1].started > 0)
        together += all(block.waits for block in blocks)
        await bench.until(lambda sent=blocks: not any(block.waits for block in sent))
        bench.hold.clear()
        await bench.rest()


@cocotb.test(**LIMIT)
async def second_worked_example(dut):
    """A block with 36 KiB of registers, 6 KiB per warp, arrives with 12 KiB available: two warps
    start at once, the others when there is room."""
    bench = await Bench.begin(dut, (holds := Kernel(0, 1, 2, 52), comes := Kernel(1, 1, 6, 12)))
    bench.hold = {0, 1}
    bench.send(holds)
    (block,) = bench.send(comes)
    await bench.run(50)
    assert bench.model.left["registers"] == 0 and block.started == 2
    bench.hold = {0}
    await bench.until(lambda: block.started == 6)
    bench.hold.clear()
    await bench.rest()


@cocotb.test(**LIMIT)
async def third_worked_example(dut):
    """On an SM full of work of priority 1, with more waiting, a block of priority 5 gets the first
    hardware warp that is freed."""
    bench = await Bench.begin(dut, (low := Kernel(0, 1, 5), high := Kernel(1, 5, 2)))
    bench.hold = {0}
    blocks = bench.send(low, 6)
    await bench.until(lambda: len(bench.model.blocks) == 6)
    await bench.run(30)
    (urgent,) = bench.send(high)
    await bench.run(10)
    assert urgent.started == 0 and blocks[3].started == 1
    ended = await end_one(bench)
    await bench.run(5)
    assert bench.seen.starts[-1] == (ended + 3, urgent, 0)
    bench.hold.clear()
    await bench.rest()


@cocotb.test(**LIMIT)
async def held_up(dut):
    """With long stalls on each port nothing is lost, and while `ended` is not accepted, warps end
    until its queue is full."""
    bench = await Bench.begin(dut, (one := Kernel(0, 3, 1, 1, 1),))
    sent = bench.send(one, 40)
    for name in ("ended", "begin", "start", "end"):
        setattr(bench.pace, name, 0)
        await bench.run(200)
        count = len(bench.seen.starts), len(bench.seen.ends)
        await bench.run(200)
        assert count == (len(bench.seen.starts), len(bench.seen.ends)), "nothing is held up"
        dut._log.info("without %s: %d rows wait", name, len(bench.rows))
        assert name != "ended" or len(bench.rows) > 4
        setattr(bench.pace, name, 1)
        await bench.run(8)
    await bench.rest()
    assert order(bench) == sent and len(bench.seen.over) == 40


@cocotb.test(**LIMIT)
async def occupancy(dut):
    """As many blocks are resident as registers, hardware warps, shared memory and slots allow
    (PLACE-10)."""
    shapes = [
        (1, 1, 0), (2, 1, 0), (3, 1, 0), (5, 2, 0), (16, 8, 48), (16, 1, 1),
        (1, 64, 0), (2, 33, 0), (4, 8, 13), (4, 9, 12), (1, 16, 6), (1, 17, 6),
        (1, 16, 7), (1, 1, 48), (8, 8, 24), (8, 8, 25),
    ]  # fmt: skip
    bench = await Bench.begin(dut)
    for warps, registers, shared in shapes:
        for barrier in (False, True):
            kernel = Kernel(0, 1, warps, registers, shared, barrier)
            limits = [8, 16 // warps, 128 // (warps * registers)]
            limits += [48 // shared] if shared else []
            await bench.describe(kernel)
            bench.hold = {0}
            sent = bench.send(kernel, 8)
            await bench.run(60)
            resident = sum(not block.waits for block in sent)
            assert resident == min(limits), (kernel, resident, limits)
            bench.hold.clear()
            await bench.rest()
