"""The tree of kernels against objects that count their children (NEST-12, NEST-15)."""

import os
from collections import Counter, deque
from typing import Any

import cocotb

from signalbox.hw.nested.kernel_tree import KernelTree, TreeEvent, TreeOp
from signalbox.tb.models.kernel_tree import Block, Joined, Kernel, Over
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds

NODES = int(os.environ["NODES"])

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


class TreeTestbench(Testbench):
    """Sends random requests as the machine may, and checks all answers.

    Members
    -------
    blocks : blocks that are not over, by kernel that has not ended.
    complete : kernels that are complete, but not done.
    leaving : blocks of ended kernels whose end has not been reported to the tree.
    requests, told, over : source and sinks.
    met : number of events of each kind.
    most : maximum numbers of kernels in the tree, and of generations, so far.
    limit : maximum number of children that are not done, or 0.
    """

    timeout = 2_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(KernelTree, NODES))
        self.blocks: dict[Kernel, list[Block]] = {}
        self.leaving: list[Block] = []
        self.met: Counter[str] = Counter()
        self.most = [0, 0]
        self.limit = 0
        self.complete: list[Kernel] = []
        self._kernels: dict[Kernel, int] = {}
        """Nodes of the kernels in the tree."""
        self._families: dict[Block, int] = {}
        self._told: deque[Joined | tuple[Block, bool]] = deque()
        """Expected events: children that are complete, or a launch and whether there is room."""
        self._over: deque[Over] = deque()
        self.requests = Source(self, "i")
        pace = self.share(0.6)
        self.told = Sink(self, "told", pace, self._hear)
        self.over = Sink(self, "over", pace, self._take)

    @property
    def _pending(self) -> int:
        """Children that are not done."""
        return sum(kernel.parent is not None for kernel in self._kernels)

    def set_limit(self, limit: int) -> None:
        """Limit the number of pending children; 0: no limit."""
        self.limit = limit
        self.drive(limit=limit)

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way."""
        return not (self.requests.pending or self._told or self._over)

    def root(self) -> None:
        """A kernel of the host's."""
        kernel = Kernel()
        self.blocks[kernel] = [Block(kernel) for _ in range(self.random.randint(1, 3))]

    def launch(self, block: Block) -> None:
        kernel = block.kernel
        room = NODES - len(self._kernels) > (kernel not in self._kernels)
        room &= NODES - len(self._families) >= (block not in self._families)
        if self.limit and room and self._pending >= self.limit:
            self.met["limited"] += 1
            room = False
        self._ask(TreeOp.LAUNCH, kernel, block)
        self._told.append((block, room))

    def end(self, kernel: Kernel) -> None:
        """All blocks of the kernel are over; the tree is told of some of them later."""
        failed = self.random.random() < 0.1
        self.leaving += [block for block in self.blocks.pop(kernel) if block.parent]
        follows = [*kernel.end(failed=failed)]
        if kernel in self._kernels:
            self._ask(TreeOp.END, kernel, failed=failed)
            self._expect(follows)
        else:
            self.met["alone"] += 1

    def leave(self, block: Block) -> None:
        """The block is over."""
        (self.leaving if block in self.leaving else self.blocks[block.kernel]).remove(block)
        if block.parent:
            self._ask(TreeOp.LEAVE, None, block)
            self._expect(block.leave())

    def done(self, kernel: Kernel) -> None:
        """The releases of a complete kernel are made."""
        self.complete.remove(kernel)
        failed = self.random.random() < 0.1
        self._ask(TreeOp.DONE, kernel, failed=failed)
        del self._kernels[kernel]
        self._expect(kernel.done(failed=failed))

    def ask(self, block: Block) -> None:
        """The block is on an SM again."""
        if block.parent:
            self._ask(TreeOp.ASK, None, block)
            if not block.children:
                self._told.append(Joined(block, block.failed))

    def _ask(
        self, op: TreeOp, kernel: Kernel | None, block: Block | None = None, *, failed: bool = False
    ) -> None:
        noise = self.random.randrange(NODES)
        self.requests.put({
            "op": op,
            "known": kernel in self._kernels,
            "kernel": self._kernels.get(kernel, noise) if kernel else noise,
            "related": block in self._families,
            "family": self._families.get(block, noise) if block else noise,
            "failed": failed,
        })
        self.met[op.name] += 1

    def _expect(self, follows: Any) -> None:
        for one in follows:
            (self._over if isinstance(one, Over) else self._told).append(one)

    def _hear(self, event: dict[str, Any]) -> None:
        expected, kind = self._told.popleft(), event["kind"]
        self.met[kind.name] += 1
        if isinstance(expected, Joined):
            assert kind is TreeEvent.JOINED
            assert event["family"] == self._families[expected.block]
            assert event["failed"] == expected.failed
            return
        block, room = expected
        assert kind is (TreeEvent.LAUNCHED if room else TreeEvent.REFUSED)
        if room:
            self._note(self._kernels, block.kernel, event["kernel"])
            self._note(self._families, block, event["family"])
            child = block.launch()
            self._note(self._kernels, child, event["child"])
            self.blocks[child] = [Block(child) for _ in range(self.random.randint(1, 3))]
            self.most[0] = max(self.most[0], len(self._kernels))
            self.most[1] = max(self.most[1], generation(child))

    @staticmethod
    def _note(nodes: dict[Any, int], one: Any, node: int) -> None:
        """Check that a kernel or family keeps its node, which no other has."""
        assert nodes.get(one, node) == node
        assert one in nodes or node not in nodes.values()
        nodes[one] = node

    def _take(self, over: dict[str, int]) -> None:
        expected = self._over.popleft()
        assert over["kernel"] == self._kernels[expected.kernel]
        self.complete.append(expected.kernel)
        assert over["failed"] == expected.failed
        self.met["over"] += 1
        self._forget()

    def _forget(self) -> None:
        """Forget families that have ended, which is not reported."""
        for block in [block for block in self._families if block not in block.kernel.families]:
            del self._families[block]

    async def settle(self) -> None:
        """Step until all events have come: further requests depend on them."""
        await self.until(lambda: self.quiet, "all events")
        await self.steps(self.random.choice((0, 0, 3, 30)))
        self._forget()


def generation(kernel: Kernel) -> int:
    """1 for a kernel of the host's, 2 for its children, …"""
    return 1 if kernel.parent is None else 1 + generation(kernel.parent.kernel)


async def random_step(tb: TreeTestbench, launches: float) -> None:
    """One or several random requests."""
    if not tb.blocks or tb.random.random() < 0.03:
        tb.root()
    kernel = tb.random.choice([*tb.blocks])
    blocks = tb.blocks[kernel]
    if tb.complete and tb.random.random() < 0.5:
        tb.done(tb.random.choice(tb.complete))
    elif tb.leaving and tb.random.random() < 0.3:
        tb.leave(tb.random.choice(tb.leaving))
    elif not blocks or tb.random.random() < 0.05:
        tb.met["END before LEAVE"] += any(block.parent for block in blocks)
        tb.end(kernel)
    else:
        block, chance = tb.random.choice(blocks), tb.random.random()
        if chance < launches:
            tb.launch(block)
        elif chance < launches + 0.1:
            tb.ask(block)
        else:
            tb.leave(block)
    await tb.settle()


@cocotb.test(**LIMIT)
async def random_trees(dut: Any) -> None:
    """In trees that grow until there is no room, and shrink again, each kernel is complete once,
    after its descendants; waits end; no node is used twice at a time, and all nodes are free in the
    end."""
    tb = await TreeTestbench(dut).start()
    kinds = (
        "LAUNCH",
        "END",
        "LEAVE",
        "ASK",
        "DONE",
        "LAUNCHED",
        "REFUSED",
        "JOINED",
        "over",
        "alone",
    )
    kinds += ("END before LEAVE", *["limited"] * (NODES > 2))

    def enough() -> bool:
        grown = tb.most[0] == NODES and tb.most[1] >= min(NODES, 4)
        return grown and all(tb.met[kind] > 20 for kind in kinds)

    rounds = Rounds(1, 400)
    while rounds.more(enough(), (tb.met, tb.most)):
        tb.set_limit(tb.random.choice((0, 0, tb.random.randint(1, NODES))))
        await tb.steps(2)
        for _ in range(100):
            await random_step(tb, tb.random.choice((0.1, 0.5, 0.8)))
    await finish(tb)
    tb.set_limit(0)
    await tb.steps(2)
    kernel = Kernel()
    tb.blocks[kernel] = blocks = [Block(kernel) for _ in range(NODES)]
    for block in blocks:
        tb.launch(block)
        await tb.settle()
    assert [len(block.children) for block in blocks] == [1] * (NODES - 1) + [0]


async def finish(tb: TreeTestbench) -> None:
    """Let all kernels become complete."""
    while tb.blocks or tb.leaving or tb.complete:
        for kernel in [*tb.complete]:
            tb.done(kernel)
            await tb.settle()
        for block in [*tb.leaving, *(block for blocks in tb.blocks.values() for block in blocks)]:
            tb.leave(block)
            await tb.settle()
        for kernel in [*tb.blocks]:
            tb.end(kernel)
            await tb.settle()


@cocotb.test(**LIMIT)
async def cycles(dut: Any) -> None:
    """Cycles from the acceptance of a request to its answer are as documented in the unit."""
    tb = await TreeTestbench(dut).start()
    tb.told.pace = tb.over.pace = lambda: True
    kernel = Kernel()
    tb.blocks[kernel] = [Block(kernel), Block(kernel)]
    first, second = tb.blocks[kernel]

    async def taken(sink: Sink, wanted: int) -> None:
        await tb.settle()
        assert sink.taken[-1][0] - tb.requests.sent[-1] == wanted

    for block, wanted in ((first, 6), (first, 4), (second, 5)) if NODES > 3 else ((first, 6),):
        tb.launch(block)
        await taken(tb.told, wanted)
    for _ in range(NODES - 4):
        tb.launch(first)
        await taken(tb.told, 4)
    tb.launch(first)
    await taken(tb.told, 2)
    children = [one for one in tb.blocks if one is not kernel]
    for child in children:
        tb.blocks[child].clear()
        tb.end(child)
        await taken(tb.over, 2)
    for child in children:
        joined = tb.met["JOINED"]
        tb.done(child)
        await tb.settle()
        if tb.met["JOINED"] > joined:
            await taken(tb.told, 4)
    assert tb.met["JOINED"] == (2 if NODES > 3 else 1)
    tb.ask(first)
    await taken(tb.told, 2)
    tb.end(kernel)
    for block in [*tb.leaving]:
        tb.leave(block)
        await tb.settle()
    await taken(tb.over, 4)


@cocotb.test(**LIMIT)
async def generations(dut: Any) -> None:
    """In a chain of kernels whose blocks leave and which end from the first generation on, the last
    generation is complete first, and every other one when its child is done (example 4)."""
    tb = await TreeTestbench(dut).start()
    tb.told.pace = tb.over.pace = lambda: True
    tb.root()
    line = [next(iter(tb.blocks))]
    while len(line) < NODES:
        tb.launch(tb.blocks[line[-1]][0])
        await tb.settle()
        line.append(next(kernel for kernel in tb.blocks if kernel not in line))
    for kernel in line:
        assert not tb.met["over"]
        for block in [*tb.blocks[kernel]]:
            tb.leave(block)
            await tb.settle()
        tb.end(kernel)
        await tb.settle()
    for number, kernel in enumerate(reversed(line), 1):
        assert tb.complete == [kernel] and tb.met["over"] == number
        tb.done(kernel)
        await tb.settle()
        if kernel is not line[0]:
            assert tb.over.taken[-1][0] - tb.requests.sent[-1] == 6
