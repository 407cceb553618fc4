"""Kernels that launch kernels, on the compute engine (NEST-10 … NEST-15)."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.tb.models.tasks import record_of
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.nested_testbench import DEPTH, NestedTestbench, Sum
from signalbox.tb.units.compute.saving_steps import state_writes, turns
from signalbox.tb.units.compute.testbench import CONFIG


@cocotb.test()
@cocotb.parametrize(joins=[True, False])
async def generations(dut: Any, joins: bool) -> None:
    """In a chain as long as the limit allows, the last generation is over first (example 4), even
    if blocks do not wait; parents that wait read the results of their children (NEST-13)."""
    tb = await NestedTestbench(dut).start()
    line = tb.chain(DEPTH, asid=3, joins=joins)
    tb.launch(line[-1])
    await tb.finish()
    assert tb.order == [one.number for one in line]
    tb.check_all()


@cocotb.test()
async def too_deep(dut: Any) -> None:
    """A launch by a kernel at the limit does not happen: its warp reads the error code and
    continues, and nothing else is disturbed (NEST-11, example 5)."""
    tb = await NestedTestbench(dut).start()
    child, *line = tb.chain(DEPTH + 1, asid=3)
    tb.refuse(line[0], child, Refusal.DEPTH.value)
    tb.launch(line[-1])
    await tb.finish()
    assert tb.order == [one.number for one in line]
    tb.check_all()


@cocotb.test()
async def bad_record(dut: Any) -> None:
    """A child whose record fails a check is refused with its number; the others run."""
    tb = await NestedTestbench(dut).start()
    children = [tb.kernel(asid=3) for _ in range(3)]
    parent, bad = tb.kernel(*children, asid=3), children[1]
    check = SkedCheck.THREAD_DIMENSION_ZERO
    tb.refuse(parent, bad, Refusal.CHECK.value | check.value << 8)
    record = record_of(bad.job.launch(), block_x=0)
    tb.contents.write((3, 0), bad.page << 8, record.to_bytes(256, "little"))
    tb.launch(parent)
    tb.tasks.pop((3, bad.page))
    await tb.finish()
    tb.check_all()


@cocotb.test()
async def many_children(dut: Any) -> None:
    """A block with a child that has a child with many children, beside kernels of the host: all
    results are right."""
    tb = await NestedTestbench(dut).start()
    leaves = [tb.kernel(asid=3) for _ in range(6)]
    child = tb.kernel(*leaves, asid=3)
    parent = tb.kernel(child, asid=3)
    others = [tb.kernel(asid=4 + n, priority=n) for n in range(4)]
    for one in (*others[:2], parent, *others[2:]):
        tb.launch(one)
    await tb.finish()
    tb.check_all()


@cocotb.test()
async def child_first(dut: Any) -> None:
    """A child is more urgent than all kernels that wait at its launch, and precedes them; only
    kernels whose blocks are already on SMs may end earlier (NEST-14). The same holds for a
    grandchild."""
    tb = await NestedTestbench(dut).start()
    line = tb.chain(3, asid=3)
    others = [tb.kernel(asid=3, priority=line[-1].priority) for _ in range(30)]
    for one in (line[-1], *others):
        tb.launch(one)
    await tb.until(lambda: len(tb.order) == len(tb.tasks), "all are over", 100_000)
    await tb.finish()
    tb.check_all()
    places = [tb.order.index(one.number) for one in line]
    assert places[0] <= 2 * CONFIG.sms * CONFIG.sm_blocks, tb.order
    assert places[1] <= places[0] + CONFIG.sms * CONFIG.sm_blocks, tb.order


@cocotb.test()
@cocotb.parametrize(slice_cycles=[1, 600])
async def short_slices(dut: Any, slice_cycles: int) -> None:
    """Contexts in which kernels may be nested run even if it takes longer than their slice to
    restore their blocks: the slice begins with the first block, and restoring does not count."""
    tb = await NestedTestbench(dut, contexts=2).start()
    tb.drive(control__slice=slice_cycles)
    tasks = []
    for n in range(2):
        job = Sum(n, (), 1, warps=4, delay=6000, cycles=6000, shared=CONFIG.sm_shared)
        tasks.append(Launch(n, job, asid=2 + n, priority=5, context=n))
        tb.launch(tasks[-1])
    await turns(tb, tasks, 200_000)
    await tb.finish()
    tb.check_all()


@cocotb.test()
@cocotb.parametrize(slice_cycles=[1, 600])
async def trees_in_turn(dut: Any, slice_cycles: int) -> None:
    """Contexts leave while blocks wait for children that are not over, and return: all results are
    right, and every wait ends (NEST-12). Again, until each has left so several times."""
    tb = NestedTestbench(dut, contexts=2)
    tb.drive(control__slice=slice_cycles)
    await tb.start()
    rounds = Rounds(1)
    while rounds.more(min(tb.left) >= 3, tb.left):
        for n in range(6):
            leaves = [tb.kernel(asid=1 + n, **tb.shape()) for _ in range(2)]
            child = tb.kernel(*leaves, asid=1 + n, **tb.shape())
            tb.launch(tb.kernel(child, asid=1 + n, delay=tb.random.choice((0, 300))))
            await tb.steps(tb.random.choice((0, 100, 1000)))
        await tb.until(lambda: len(tb.order) == len(tb.tasks), "all are over", 400_000)
        await tb.finish()
    tb.check_all()
    for turn in tb.turns:
        assert {asid % tb.contexts for asid in turn.reached} <= {turn.context}, turn
    print(f"{len(tb.turns)} turns, {tb.left} of which ended before children")


@cocotb.test()
async def waiting_everywhere(dut: Any) -> None:
    """With more parents than the SMs have room for, each waiting for a child that waits for its own
    child, waiting blocks give way, and every wait ends (NEST-12)."""
    tb = await NestedTestbench(dut).start()
    lines = [tb.chain(3, asid=1 + n) for n in range(2 * CONFIG.sms * CONFIG.sm_blocks)]
    for line in lines:
        tb.launch(line[-1])
    await tb.until(lambda: not tb.waiting, "launches answered", 100_000)
    await tb.until(lambda: len(tb.order) == len(tb.tasks), "all are over", 400_000)
    await tb.finish()
    tb.check_all()
    assert state_writes(tb), "no block was stopped"


@cocotb.test()
@cocotb.parametrize(turn=range(2))
async def killed_anywhere(dut: Any, turn: int) -> None:
    """If channels are disabled while their kernels run or wait, on SMs, in save places and in
    lists, kernels of all generations are killed, and nothing remains of them; other kernels are not
    disturbed."""
    tb = NestedTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    lines = [tb.chain(3, asid=1 + n) for n in range(2 * CONFIG.sms * CONFIG.sm_blocks)]
    for line in lines:
        tb.launch(line[-1])
    await tb.until(lambda: not tb.waiting and state_writes(tb), "a block is stopped", 100_000)
    await tb.steps(tb.random.randrange(1500))
    roots = [line[-1] for line in lines]
    await tb.until(lambda: all(situations(tb, roots).values()), "blocks are everywhere")
    chosen = [tb.random.choice(found) for found in situations(tb, roots).values()]
    off = {one.number % CONFIG.channels for one in chosen}
    others = [n for n in range(CONFIG.channels) if n not in off]
    off |= set(tb.random.sample(others, CONFIG.channels // 2 - len(off)))
    tb.drive(host__on=sum(1 << n for n in range(CONFIG.channels) if n not in off))
    killed = [one for one in tb.tasks.values() if tb.root(one.number) % CONFIG.channels in off]
    for one in killed:
        one.refused = True
    await tb.until(
        lambda: all(one.refused or one.over for one in tb.tasks.values()), "the others", 400_000
    )
    await tb.finish()
    tb.check_all()
    assert {one.verdict for one in killed} <= {None, Refusal.NONE, Refusal.KILLED}
    assert {one.verdict for one in chosen} == {Refusal.KILLED}


def situations(tb: NestedTestbench, roots: list[Launch]) -> dict[str, list[Launch]]:
    """Kernels of the host in each situation: in a list, begun with no block of its tree in a save
    place, and with some. Each has one block, and an address space of its own."""
    bursts = [
        (one.cycle, "read" if port in tb.sm_reads else "write", one)
        for port in (*tb.sm_reads, *tb.sm_writes)
        for one in port.bursts
    ]
    bursts.sort(key=lambda burst: burst[0])
    last = {(one.space, one.va): kind for _, kind, one in bursts}
    reached = {asid for (asid, _), _ in last}
    saved = {asid for ((asid, state), _), kind in last.items() if state and kind == "write"}
    left = [one for one in roots if one.over is None]
    return {
        "list": [one for one in left if one.asid not in reached],
        "SM": [one for one in left if one.asid in reached - saved],
        "saved": [one for one in left if one.asid in saved],
    }


@cocotb.test()
@cocotb.parametrize(turn=range(3))
async def random_trees(dut: Any, turn: int) -> None:
    """In random trees of kernels, all results are right; parents that do not wait have none from
    their children."""
    tb = NestedTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    rng, roots = tb.random, []

    def grow(asid: int, depth: int) -> Launch:
        children = []
        if depth < DEPTH and rng.random() < 0.5:
            children = [grow(asid, depth + 1)]
        elif depth < DEPTH:
            children = [tb.kernel(asid=asid) for _ in range(rng.randrange(4))]
        joins, priority = rng.random() < 0.7, rng.choice((0, 10, 63))
        return tb.kernel(*children, asid=asid, joins=joins, priority=priority)

    for n in range(12):
        root = grow(1 + n % (CONFIG.asids - 1), 1)
        roots.append(root)
        tb.launch(root)
        await tb.steps(rng.choice((0, 100, 600)))
        if rng.random() < 0.2:
            await tb.until(
                lambda: all(one.over is not None for one in roots), "trees are over", 100_000
            )
    await tb.until(lambda: len(tb.order) == len(tb.tasks), "all are over", 200_000)
    await tb.finish()
    tb.check_all()
