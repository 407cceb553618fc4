"""Kernels that launch kernels (NEST-10 … NEST-15)."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.task_unit.nested_testbench import Kernel, NestedTestbench
from signalbox.tb.units.task_unit.rows import ENDLESS
from signalbox.tb.units.task_unit.task_testbench import (
    ACCEPTED,
    AREA,
    CONFIG,
    LOG_SIZE,
    SYSTEM,
    TIMEOUT,
)

CILP = PreemptionLevel.CILP


async def running(tb: NestedTestbench, number: int = 1, **options: Any) -> Kernel:
    """A kernel of the host with running blocks, none of which ends."""
    kernel = Kernel(number, **{"priority": 7, "blocks": 40 + number, "epoch": 1} | options)
    tb.rows.end = 0.0
    tb.submit(kernel)
    await tb.until(lambda: tb.runs(kernel), "blocks run")
    return kernel


async def bear(
    tb: NestedTestbench, child: Kernel, parent: Kernel, block: int | None = None
) -> object:
    """A block of `parent` launches `child`. Returns the verdict."""
    tb.bear(child, parent, block)
    await tb.until(lambda: child.number in tb.verdicts, "answer")
    return tb.verdicts[child.number]


async def end(tb: NestedTestbench) -> None:
    """All blocks end."""
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test()
async def child_of_a_kernel(dut: Any) -> None:
    """A child has the level of its parent plus 1, whatever its record says, and runs in the address
    space, context and channel of its parent; a grandchild likewise. Each end names its kernel in
    the tree."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb, asid=3, channel=2)
    child, grandchild = Kernel(2, priority=0, blocks=5), Kernel(3, priority=0, blocks=6)
    assert await bear(tb, child, parent) is ACCEPTED
    await tb.until(lambda: tb.runs(child), "the child runs")
    assert await bear(tb, grandchild, child) is ACCEPTED
    assert (child.priority, grandchild.priority, grandchild.depth) == (8, 9, 3)
    assert len({parent.node, child.node, grandchild.node}) == 3
    await end(tb)
    assert parent.outcome == child.outcome == grandchild.outcome == "ended"


@cocotb.test()
async def above_the_host(dut: Any) -> None:
    """Children of a kernel of priority 63 precede it, and each generation precedes its parents, in
    slots and in lists."""
    tb = await NestedTestbench(dut).start()
    chain = [await running(tb, priority=63)]
    for number in range(2, 25):
        chain.append(Kernel(number, priority=0, blocks=20 + number))
        assert await bear(tb, chain[-1], chain[-2]) is ACCEPTED
        await tb.until(lambda: tb.runs(chain[-1]), "it runs at once", 2 * TIMEOUT)
    assert chain[-1].priority == CONFIG.levels - 1 == 86
    for kernel in chain[: 24 - CONFIG.slots - 1]:
        assert kernel.stops == 1, "a less urgent one was to be stopped"
    await end(tb)
    assert all(kernel.outcome == "ended" for kernel in chain)


@cocotb.test()
async def depth_limit(dut: Any) -> None:
    """The deepest kernels launch no others; the tree is not asked (NEST-11)."""
    tb = await NestedTestbench(dut).start()
    tb.limit(2)
    parent, child = await running(tb), Kernel(2, priority=0, blocks=5)
    assert await bear(tb, child, parent) is ACCEPTED
    await tb.until(lambda: tb.runs(child), "the child runs")
    asked = tb.tree.asks
    assert await bear(tb, Kernel(3, priority=0, blocks=6), child) is Refusal.DEPTH
    tb.limit(0)
    assert await bear(tb, Kernel(4, priority=0, blocks=7), parent) is Refusal.DEPTH
    assert tb.tree.asks == asked
    await end(tb)


@cocotb.test()
async def no_room_in_the_tree(dut: Any) -> None:
    """A full tree refuses a child (NEST-15); the next launch succeeds."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb)
    tb.tree.full = True
    assert await bear(tb, Kernel(2, priority=0, blocks=5), parent) is Refusal.ROOM
    assert parent.node is None
    tb.tree.full = False
    assert await bear(tb, Kernel(3, priority=0, blocks=6), parent) is ACCEPTED
    await end(tb)


@cocotb.test()
async def no_save_place(dut: Any) -> None:
    """A block for which no save place can be reserved launches nothing, and the tree is not asked
    (NEST-12): its wait might not end. A block that has a place, or has launched before, can
    launch."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb)
    await tb.until(lambda: len(tb.rows.rows[parent.row or 0].running) >= 3, "three blocks run")
    first, second, third = tb.rows.rows[parent.row or 0].running[:3]
    assert await bear(tb, Kernel(2, priority=0, blocks=5), parent, first) is ACCEPTED
    tb.rows.full, asked = True, tb.tree.asks
    assert await bear(tb, Kernel(3, priority=0, blocks=6), parent, second) is Refusal.ROOM
    assert tb.tree.asks == asked
    parent.restored.add(third)
    for number, block in ((4, first), (5, third)):
        assert await bear(tb, Kernel(number, priority=0, blocks=7), parent, block) is ACCEPTED
    tb.rows.full = False
    assert await bear(tb, Kernel(6, priority=0, blocks=8), parent, second) is ACCEPTED
    await end(tb)


@cocotb.test()
async def bad_records(dut: Any) -> None:
    """A child that has a bad record, is a queue, or has a record that cannot be read is refused
    with the reason, and gives its place in the tree back."""
    tb = await NestedTestbench(dut).start()
    parent, refused = await running(tb), []
    for number, (fields, reason) in enumerate(
        (
            ({"major": 2}, Refusal.MODEL),
            ({"registers": 0}, SkedCheck.REGISTER_COUNT),
            ({"is_queue": 1, "queue_size": 8, "grid_x": 0}, Refusal.MODEL),
        ),
        2,
    ):
        child = Kernel(number, priority=0, blocks=5, fields=fields)
        verdict = await bear(tb, child, parent)
        assert verdict is reason
        refused.append(child.node)
    unread = Kernel(9, priority=0, blocks=5)
    pages = range(unread.page << 8, (unread.page << 8) + 256)
    tb.contents.failing = [Failing((parent.asid, 0), pages, MemoryStatus.BUS, False)]
    assert await bear(tb, unread, parent) is Refusal.BUS
    await tb.until(lambda: tb.tree.ends == [*refused, unread.node], "places are given back")
    assert await bear(tb, Kernel(10, priority=0, blocks=6), parent) is ACCEPTED
    await end(tb)


@cocotb.test()
async def queue_as_parent(dut: Any) -> None:
    """Blocks of a queue launch nothing; neither the tree nor the record is asked."""
    tb = await NestedTestbench(dut).start()
    entries = {"is_queue": 1, "queue_size": 8, "inner_put": 3, "grid_x": 1}
    parent = await running(tb, channel=2, blocks=ENDLESS[0], fields=entries)
    for number, fields in ((2, {}), (3, {"registers": 0}), (4, entries)):
        child = Kernel(number, priority=0, blocks=5, fields=fields)
        assert await bear(tb, child, parent) is Refusal.MODEL
        assert child.node is parent.node is None
    assert not tb.tree.asks
    tb.disable(2)  # it is open, so it would not end
    await end(tb)
    assert parent.outcome == "failed"


@cocotb.test()
async def full_list(dut: Any) -> None:
    """A child that finds its list full is refused, and gives its place in the tree back."""
    tb = await NestedTestbench(dut, place=0.9).start()
    parent = await running(tb, blocks=2)
    room = CONFIG.slots + (1 << LOG_SIZE) - CONFIG.rows  # the parent leaves its slot
    others = [Kernel(number, priority=parent.priority + 1) for number in range(2, room + 2)]
    for number, kernel in enumerate(others):
        kernel.blocks = 1000 + number
        tb.submit(kernel)
    await tb.until(lambda: not tb.offered, "the list is full", 10 * TIMEOUT)
    child = Kernel(room + 2, priority=0, blocks=5)
    assert await bear(tb, child, parent) is Refusal.FULL
    await tb.until(lambda: tb.tree.ends == [child.node], "its place is given back")


@cocotb.test()
async def faulty_list(dut: Any) -> None:
    """A child whose list is in memory that cannot be written is refused, and gives its place in the
    tree back. The next launch succeeds."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb)
    for number in range(10, 9 + CONFIG.slots):
        tb.submit(Kernel(number, priority=60, blocks=60 + number))
    await tb.until(lambda: len(tb.running) == CONFIG.slots, "no slot is free")
    lists = range(AREA, AREA + (1 << 24))
    tb.contents.failing = [Failing((SYSTEM, 0), lists, MemoryStatus.BUS, write=True)]
    child = Kernel(2, priority=0, blocks=5)
    assert await bear(tb, child, parent) is Refusal.LISTS
    await tb.until(lambda: tb.tree.ends == [child.node], "its place is given back")
    tb.contents.failing = []
    assert await bear(tb, Kernel(3, priority=0, blocks=6), parent) is ACCEPTED
    await end(tb)


@cocotb.test()
async def killed_parent(dut: Any) -> None:
    """A kernel that is about to be killed launches nothing; its accepted children are killed, too,
    as their channel is disabled."""
    tb = await NestedTestbench(dut).start()
    parent, child = await running(tb, channel=2), Kernel(2, priority=0, blocks=5)
    assert await bear(tb, child, parent) is ACCEPTED
    tb.disable(2)
    await tb.until(lambda: tb.get("kill") >> (parent.row or 0) & 1, "marked")
    assert await bear(tb, Kernel(3, priority=0, blocks=6), parent) is Refusal.KILLED
    await end(tb)
    assert {tb.verdicts[1], tb.verdicts[2]} == {Refusal.KILLED}


@cocotb.test()
async def killed_in_a_list(dut: Any) -> None:
    """Children of an evicted kernel go to their lists; when their channel is disabled, they are
    killed there. The parent is killed, too, and refuses a further child. Each end names its kernel
    in the tree."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb, channel=2)
    for number in range(10, 10 + CONFIG.slots):
        tb.submit(Kernel(number, priority=60, blocks=60 + number))
    await tb.until(lambda: parent.stops, "the parent is evicted", 4 * TIMEOUT)
    children = [Kernel(number, priority=0, blocks=number) for number in range(2, 5)]
    for child in children[:2]:
        assert await bear(tb, child, parent) is ACCEPTED
    assert all(child.outcome == "waits" for child in children[:2])
    tb.disable(2)
    assert await bear(tb, children[2], parent) is Refusal.KILLED
    await tb.until(lambda: all(one.outcome == "failed" for one in children[:2]), "killed")
    await end(tb)
    killed = {tb.verdicts[one.number] for one in (parent, *children)}
    assert killed == {Refusal.KILLED}


@cocotb.test()
async def evicted_parent(dut: Any) -> None:
    """An evicted kernel keeps its place in the tree, and so do its children, even in a list and
    with saved blocks."""
    tb = await NestedTestbench(dut, level=CILP).start()
    parent = await running(tb)
    first = Kernel(2, priority=0, blocks=5)
    assert await bear(tb, first, parent) is ACCEPTED
    await tb.until(lambda: tb.runs(first), "the child runs")
    urgent = [Kernel(number, priority=60, blocks=60 + number) for number in range(10, 26)]
    for kernel in urgent:
        tb.submit(kernel)
    await tb.until(lambda: parent.resumed and first.resumed, "both are in lists", 4 * TIMEOUT)
    tb.rows.end = 0.3
    await tb.until(lambda: tb.runs(parent), "it is back", 40 * TIMEOUT)
    tb.rows.end = 0.0
    await tb.until(lambda: tb.runs(parent), "blocks run")
    second = Kernel(3, priority=0, blocks=6)
    assert await bear(tb, second, parent) is ACCEPTED
    await end(tb)


@cocotb.test()
@cocotb.parametrize(kill=[False, True])
async def slow_links(dut: Any, kill: bool) -> None:
    """A child that ends or fails before its record names its parent is reported after the record
    does, and no parent is lost if the writes are slower than launches."""
    tb = await NestedTestbench(dut).start()
    parent = await running(tb, channel=2)
    tb.write_delay = TIMEOUT // 3
    children = [Kernel(number, priority=0, blocks=number) for number in range(2, 6)]
    for child in children:
        assert await bear(tb, child, parent) is ACCEPTED
    if kill:
        tb.disable(2)
        await tb.until(lambda: all(map(tb.killed, children)), "all are killed", 10 * TIMEOUT)
    await end(tb)
    assert {child.outcome for child in children} == {"failed" if kill else "ended"}


@cocotb.test()
async def link_of_another(dut: Any) -> None:
    """A child may end before the record of another child names its parent, but not before its own
    record does, even if that is written later."""
    tb = await NestedTestbench(dut).start()
    parent, first = await running(tb), Kernel(2, priority=0, blocks=1)
    assert await bear(tb, first, parent) is ACCEPTED
    await tb.until(lambda: tb.link(first) and tb.runs(first), "it runs")
    tb.write_delay = TIMEOUT // 3
    second, third = Kernel(3, priority=0, blocks=5), Kernel(4, priority=0, blocks=1)
    for child in (second, third):
        assert await bear(tb, child, parent) is ACCEPTED
    await tb.until(lambda: tb.runs(third), "it runs")
    for child in (first, third):
        assert child.row is not None and not tb.link(second)
        tb.rows.finish(tb.rows.rows[child.row])
        await tb.until(lambda child=child: child.outcome == "ended", "it ends")
    await end(tb)


@cocotb.test()
async def random_trees(dut: Any) -> None:
    """Kernels of any priority launch others, some of which are refused: each block of each kernel
    ends once, each end names its kernel in the tree, and each refused child gives its place in the
    tree back."""
    tb = await NestedTestbench(dut, place=0.5, end=0.2, level=CILP).start()
    rng, rounds, kernels = tb.random, Rounds(20), list[Kernel]()
    tb.limit(6)

    def children() -> int:
        return sum(one.outcome != "refused" for one in kernels if one.parent)

    while rounds.more(children() > 15, children()):
        number, parents = rounds.number, [one for one in kernels if tb.runs(one)]
        tb.tree.full, tb.rows.full = rng.random() < 0.1, rng.random() < 0.1
        one = Kernel(
            number, priority=rng.choice((0, 20, 63)), blocks=1 + number + rng.choice((0, 1000))
        )
        if parents and rng.random() < 0.8:
            if rng.random() < 0.1:
                one.fields["registers"] = 0
            tb.bear(one, rng.choice(parents))
        else:
            one.epoch, one.asid = rng.randrange(2), rng.randrange(4)
            one.head = rng.random() < 0.2
            tb.submit(one)
        kernels.append(one)
        await tb.steps(rng.choice((0, 30, 200)))
    await end(tb)
    print(f"{children()} children, deepest {max(one.depth for one in kernels)}")
