"""Kernels that launch kernels, on the compute engine with a core that only launches (NEST-10 …
NEST-15)."""

from dataclasses import dataclass, field
from typing import Any

import cocotb
import numpy as np

from signalbox.hw.records.launch import Refusal
from signalbox.tb.units.compute.launch import Job, Launch
from signalbox.tb.units.compute.launching_core import WITHOUT_JOIN
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

DEPTH = 4


@dataclass
class Tree:
    """Work of a kernel: each of its blocks launches the same number of children of its own, and
    waits for them if it `joins`."""

    blocks: int = 1
    first: int = 0
    count: int = 0
    joins: bool = True
    results: dict[int, np.ndarray] = field(default_factory=dict)

    def memory(self) -> dict[int, bytes]:
        return {}

    def launch(self) -> dict[str, Any]:
        return {
            "grid": (self.blocks, 1, 1),
            "block": (32, 1, 1),
            "program": 0x1000,
            "registers": 8,
            "shared": 0,
            "barrier": False,
            "constants": self.first << 8 | (0 if self.joins else WITHOUT_JOIN),
            "constant_bytes": 16 * self.count,
        }


class NestedTestbench(ComputeTestbench):
    """Numbers kernels, so that the children of a block follow one another.

    Members
    -------
    parents : parent of each child.
    order : kernels in the order in which they were over.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut)
        self.parents: dict[int, int] = {}
        self.order: list[int] = []
        self._next = 0
        self.context(0, range(CONFIG.asids), nesting=DEPTH)

    def kernel(self, *children: "Launch", asid: int, priority: int = 5, **how: Any) -> Launch:
        """A kernel of one block that launches `children`, which were made just before, in order."""
        numbers = [child.number for child in children]
        assert numbers == list(range(self._next - len(numbers), self._next)), numbers
        job = self.work(self._next, children, **how)
        made = Launch(self._next, job, asid=asid, priority=priority)
        self._next += 1
        self.know(made)
        self.parents.update(dict.fromkeys(numbers, made.number))
        return made

    def work(self, number: int, children: tuple[Launch, ...], **how: Any) -> Job:
        """Work of the kernel `number`."""
        first = children[0].page if children else Launch(0, Tree(), 0).page
        return Tree(first=first, count=len(children), **how)

    def _over(self, word: dict[str, Any]) -> None:
        super()._over(word)
        task = self.tasks[word["task"]["asid"], word["task"]["page"]]
        self.order.append(task.number)
        assert word["task"]["channel"] == self.root(task.number) % CONFIG.channels

    def root(self, number: int) -> int:
        """The kernel of the host above a kernel."""
        while number in self.parents:
            number = self.parents[number]
        return number

    def check_order(self) -> None:
        """Each child is over before its parent (NEST-12)."""
        place = {number: n for n, number in enumerate(self.order)}
        for child, parent in self.parents.items():
            if child in place:
                assert place[child] < place[parent], (child, parent)


def chain(tb: NestedTestbench, length: int, asid: int, **how: Any) -> list[Launch]:
    """Kernels each of which launches the one before."""
    line = [tb.kernel(asid=asid)]
    while len(line) < length:
        line.append(tb.kernel(line[-1], asid=asid, **how))
    return line


@cocotb.test()
async def parent_and_child(dut: Any) -> None:
    """A kernel launches a child and waits for it: the child is over first. Latency from the launch
    by the warp to the child's first warp."""
    tb = await NestedTestbench(dut).start()
    child, parent = chain(tb, 2, asid=3)
    tb.launch(parent)
    await tb.finish()
    assert tb.order == [child.number, parent.number]
    assert child.verdict is parent.verdict is Refusal.NONE


@cocotb.test()
@cocotb.parametrize(joins=[True, False])
async def generations(dut: Any, joins: bool) -> None:
    """A chain as long as the limit allows: the last generation is over first (example 4), also if
    blocks do not wait."""
    tb = await NestedTestbench(dut).start()
    line = chain(tb, DEPTH, asid=3, joins=joins)
    tb.launch(line[-1])
    await tb.finish()
    assert tb.order == [one.number for one in line]
    assert {one.verdict for one in line} == {Refusal.NONE}


@cocotb.test()
async def too_deep(dut: Any) -> None:
    """The launch by a kernel at the limit is refused (example 5): its warp sees that, here it
    faults; its ancestors see that a descendant has failed."""
    tb = await NestedTestbench(dut).start()
    line = chain(tb, DEPTH + 1, asid=3)
    tb.launch(line[-1])
    line[0].refused = True
    await tb.finish()
    assert tb.order == [one.number for one in line[1:]]
    assert {one.verdict for one in line[1:]} == {Refusal.KERNEL}


@cocotb.test()
async def bad_record(dut: Any) -> None:
    """A child with a bad record is refused; the other children of the block run."""
    tb = await NestedTestbench(dut).start()
    children = [tb.kernel(asid=3) for _ in range(3)]
    parent = tb.kernel(*children, asid=3)
    tb.contents.write((3, 0), children[1].page << 8, bytes(256))
    children[1].refused = True
    tb.launch(parent)
    await tb.finish()
    assert tb.order == [children[0].number, children[2].number, parent.number] or tb.order == [
        children[2].number,
        children[0].number,
        parent.number,
    ]
    assert parent.verdict is Refusal.KERNEL, "it saw the refusal"


@cocotb.test()
async def many_children(dut: Any) -> None:
    """A block with many children, of which some have children, beside kernels of the host."""
    tb = await NestedTestbench(dut).start()
    leaves = [tb.kernel(asid=3) for _ in range(6)]
    child = tb.kernel(*leaves, asid=3)
    parent = tb.kernel(child, asid=3)
    others = [tb.kernel(asid=4 + n, priority=n) for n in range(4)]
    for one in (*others[:2], parent, *others[2:]):
        tb.launch(one)
    await tb.finish()
    tb.check_order()
    assert len(tb.order) == len(tb.tasks)
    assert {one.verdict for one in tb.tasks.values()} == {Refusal.NONE}


@cocotb.test()
@cocotb.parametrize(turn=range(3))
async def random_trees(dut: Any, turn: int) -> None:
    """Random trees of kernels, two at a time. As blocks that wait are not stopped yet, these must
    leave a place free: there are at most four, two in each tree, and six places."""
    tb = NestedTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    rng, roots = tb.random, []

    def grow(asid: int, depth: int) -> Launch:
        children = []
        if depth < 3 and rng.random() < 0.5:
            children = [grow(asid, depth + 1)]
        elif depth < 3:
            children = [tb.kernel(asid=asid) for _ in range(rng.randrange(4))]
        how = {"joins": rng.random() < 0.5, "priority": rng.choice((0, 10, 63))}
        return tb.kernel(*children, asid=asid, **how)

    for n in range(12):
        root = grow(1 + n % (CONFIG.asids - 1), 1)
        roots.append(root)
        tb.launch(root)
        await tb.steps(rng.choice((0, 100, 600)))
        if n % 2:
            await tb.until(lambda: all(one.over is not None for one in roots), "trees are over")
    await tb.finish()
    tb.check_order()
