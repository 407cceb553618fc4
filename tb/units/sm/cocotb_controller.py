"""SM logic controller: every start is the one required by the rules (PLACE-10, PLACE-20 … 26)."""

from random import Random
from typing import Any

import cocotb

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.controller_testbench import (
    MOST_REGISTERS,
    ControllerTestbench,
    Pace,
    Size,
)
from signalbox.tb.units.sm.model import Block, Kernel

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


def kernels(numbers: Random, size: Size, count: int) -> list[Kernel]:
    """Random kernels. Blocks fit into an empty SM, except that some blocks without a barrier have
    more warps than fit at a time; some blocks need all of a resource."""
    found = []
    for row in range(count):
        warps = numbers.choice([1, 1, 2, 3, size.warps, numbers.randint(1, size.warps)])
        warps = min(warps, size.warps, size.registers)
        most = min(64, size.registers // warps)
        registers = numbers.choice([1, 1, most, numbers.randint(1, most)])
        shared = numbers.choice([0, 0, 1, size.shared, numbers.randint(0, size.shared)])
        barrier = numbers.random() < 0.4
        if not barrier and numbers.random() < 0.2:
            registers = min(64, size.registers, MOST_REGISTERS // warps)
        priority = numbers.choice([0, 1, 2, 63, numbers.randrange(64)])
        found.append(Kernel(row, priority, warps, registers, shared, barrier))
    return found


async def play(dut: Any, pace: Pace, blocks: int, rounds: int = 1) -> None:
    """Run random kernels, with their blocks in random order."""
    tb = await ControllerTestbench(dut).start()
    tb.pace = pace
    for _ in range(rounds):
        known = kernels(tb.random, tb.size, tb.size.slots)
        for kernel in known:
            await tb.describe(kernel)
        sent = [tb.send(tb.random.choice(known))[0] for _ in range(blocks)]
        await tb.rest()
        check_all(tb, sent)


def check_all(tb: ControllerTestbench, sent: list[Block]) -> None:
    """Check that every warp of every block was started once, in order."""
    for block in sent:
        indices = [index for _, one, index in tb.seen.starts if one is block]
        assert indices == list(range(block.kernel.warps - block.withdrawn)), (block, indices)
        assert block.ended == block.kernel.warps


@cocotb.test(**LIMIT)
async def random_fast(dut):
    """Random kernels start correctly on a full SM, without waits at the ports."""
    await play(dut, Pace(), 25, 2)


@cocotb.test(**LIMIT)
async def random_pace(dut):
    """Random kernels start correctly with random waits at the ports."""
    numbers = Random(cocotb.RANDOM_SEED)
    shares = [numbers.choice([0.2, 0.5, 1.0]) for _ in range(5)]
    dut._log.info("paces %s", shares)
    await play(dut, Pace(*shares, runs=(1, numbers.choice([1, 10, 50]))), 25)


@cocotb.test(**LIMIT)
async def whole_resources(dut):
    """Blocks that need all of a resource, or of each, run one after another, and next to blocks
    that need nothing of it (PLACE-10)."""
    tb = await ControllerTestbench(dut).start()
    size = tb.size
    warps = min(size.warps, size.registers)
    kernels = [
        Kernel(0, 1, warps, min(64, size.registers // warps), size.shared, True),
        Kernel(1, 1, size.warps, 1, 0, True) if size.warps <= size.registers else Kernel(1, 1),
        Kernel(2, 1, 1, min(64, size.registers), 0),
        Kernel(3, 1, 1, 1, size.shared),
    ]
    for kernel in kernels:
        await tb.describe(kernel)
    sent = [tb.send(kernels[n % 4])[0] for n in range(8)]
    await tb.rest()
    check_all(tb, sent)


@cocotb.test(**LIMIT)
async def random_kills(dut):
    """Blocks of rows killed at any time end without starting all their warps, and blocks of other
    rows run as if these had never been there (PREEMPT-7)."""
    numbers = Random(cocotb.RANDOM_SEED)
    tb = await ControllerTestbench(dut).start()
    ended = numbers.choice([0.02, 1.0])
    tb.pace = Pace(ended=ended, begin=0.7, start=0.7, runs=(1, numbers.choice([10, 50])))
    known = kernels(tb.random, tb.size, tb.size.slots)
    for kernel in known:
        await tb.describe(kernel)
    withdrawn, rounds = 0, Rounds(60)
    # With one slot, blocks do not wait, and none is found in time.
    while rounds.more(withdrawn > 20 or tb.size.blocks == 1, withdrawn):
        usable = [kernel for kernel in known if kernel.row not in tb.killed]
        sent = [tb.send(tb.random.choice(usable))[0] for _ in range(4)]
        tb.claim(numbers.choice((None, *known)))
        await tb.steps(numbers.choice((1, 10, 30, 100)))
        victims = tb.random.sample(sent, 2)
        for one in victims[: len(usable) - 1]:
            tb.kill(one.kernel.row)
        await tb.steps(numbers.choice((1, 10, 30)))
        tb.claim(None)
        if tb.random.random() < 0.3:
            await tb.rest()
        tb.revive()
        withdrawn += sum(one.withdrawn > 0 for one in sent)
    await tb.rest()
    print(f"{withdrawn} blocks withdrawn in {tb.cycle} cycles")


@cocotb.test(**LIMIT)
async def killed_in_any_slot(dut):
    """While all hardware warps or registers are held, a waiting block of a killed row is over
    within the stated bound, whatever its slot (PREEMPT-7)."""
    tb = await ControllerTestbench(dut).start()
    size = tb.size
    holders = [Kernel(row, 63, warps=min(size.warps, size.registers)) for row in (0, 1)]
    count = min(size.blocks - 1, size.slots - 2)  # with one slot, none can wait
    waiting = [Kernel(2 + n, n, warps=min(size.warps, 3)) for n in range(count)]
    for kernel in (*holders, *waiting):
        await tb.describe(kernel)
    tb.hold = {0, 1}
    for turn in range(4):  # the holder takes another slot each time
        holder, last = holders[turn % 2], holders[1 - turn % 2]
        tb.send(holder)
        await tb.steps(10)
        tb.by_hand = [last.row] * last.warps if turn else []
        started = (turn + 1) * holder.warps
        await tb.until(lambda n=started: len(tb.seen.starts) == n, "everything is held")
        for kernel in waiting:
            tb.send(kernel)
        await tb.until(lambda: not tb.todo, "all are there")
        await tb.steps(10)
        for kernel in tb.random.sample(waiting, count):
            tb.kill(kernel.row)
            bound = 8 * size.blocks + 3 * kernel.warps + 10
            await tb.until(lambda row=kernel.row: tb.gone(row), "its block is over", bound)
        tb.revive()
    tb.hold = set()
    await tb.rest()


@cocotb.test(**LIMIT)
async def random_claims(dut):
    """While room is claimed for a block of another SM, warps start by the rules, and room is
    reported when there is room. Blocks are recalled at any moment: blocks that have not begun
    leave, and all others run as if these had never been there (PLACE-5)."""
    numbers = Random(cocotb.RANDOM_SEED)
    tb = await ControllerTestbench(dut).start()
    tb.pace = Pace(begin=0.7, start=0.7, runs=(1, numbers.choice([10, 50])))
    known = kernels(tb.random, tb.size, tb.size.slots)
    for kernel in known:
        await tb.describe(kernel)
    left, stayed, rounds = 0, 0, Rounds(60)
    several = tb.size.blocks > 1  # with one slot, a block waits for nothing
    while rounds.more((left > 20 or not several) and stayed > 20, (left, stayed)):
        sent = [tb.send(tb.random.choice(known))[0] for _ in range(4)]
        for _ in range(numbers.randrange(4)):
            tb.claim(numbers.choice((None, *known)))
            await tb.steps(numbers.choice((1, 3, 10, 30)))
            if numbers.random() < 0.5:
                tb.claim(None)
                await tb.steps(numbers.choice((1, 3, 10, 30)))
        tb.claim(None)
        if waiting := [one for one in tb.model.waiting() if not one.begun]:
            block = await tb.recall(waiting[0].kernel)
            left += block is not None
            stayed += block is None
        if tb.random.random() < 0.3:
            await tb.rest()
            check_all(tb, [one for one in sent if one not in tb.returned])
    await tb.rest()
    print(f"{left} blocks returned, {stayed} not, in {tb.cycle} cycles")


@cocotb.test(**LIMIT)
async def recalled_by_row(dut):
    """A recall takes the most urgent block if it has the needs of the claimed one; with SM masks,
    only if it is of the same row, as other blocks may not be allowed on the target SM (PLACE-5)."""
    tb = await ControllerTestbench(dut).start()
    size = tb.size
    holder = Kernel(0, 63, warps=min(size.warps, size.registers))
    one, other = Kernel(1, 5), Kernel(2, 5)
    for kernel in (holder, one, other):
        await tb.describe(kernel)
    tb.hold = {0}
    tb.send(holder)
    await tb.until(lambda: len(tb.seen.starts) == holder.warps, "everything is held")
    if size.blocks > 1:  # with one slot, none can wait
        (waiting,) = tb.send(one)
        await tb.steps(20)
        assert await tb.recall(other) is (None if size.masks else waiting)
        if size.masks:
            assert await tb.recall(one) is waiting
    tb.hold = set()
    await tb.rest()


@cocotb.test(**LIMIT, skip=not Size.here().masks)
async def keeps_room_over_a_recall(dut):
    """With SM masks, a block is recalled from an SM that keeps room for another block: it leaves,
    although the SM is busy with killed blocks, and nothing less urgent starts before or after (rule
    7)."""
    tb = await ControllerTestbench(dut).start()
    size = tb.size
    holder, claimed = Kernel(0, 63, warps=size.warps - 1), Kernel(1, 9, warps=2, barrier=True)
    waits, small = Kernel(2, 5, warps=2, barrier=True), Kernel(3, 1)
    killed = Kernel(4, 0, warps=3)
    for kernel in (holder, claimed, waits, small, killed):
        await tb.describe(kernel)
    tb.hold = {0}
    tb.send(holder)
    await tb.until(lambda: len(tb.seen.starts) == holder.warps, "one warp is left")
    for number in range(20):
        tb.claim(claimed)
        (block,), (other,), _ = tb.send(waits), tb.send(small), tb.send(killed)
        await tb.steps(30)
        tb.kill(killed.row)
        await tb.steps(number)
        assert await tb.recall(waits) is block
        await tb.until(lambda: tb.gone(killed.row), "the killed one is over")
        tb.revive()
        assert not other.started, "it has started in the room kept"
        tb.claim(None)
        await tb.until(lambda one=other: not one.waits, "it starts")
        await tb.steps(60)
    tb.hold = set()
    await tb.rest()
