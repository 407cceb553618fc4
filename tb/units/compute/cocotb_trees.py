"""Random trees of kernels on engines of different sizes: priorities, faults and kills, waits of all
kinds (NEST-10 … NEST-15)."""

from typing import Any

import cocotb
import numpy as np

from signalbox.hw.errors import Refusal
from signalbox.hw.registers import KillScope
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.nested_testbench import DEPTH, NestedTestbench, Sum
from signalbox.tb.units.compute.saving_steps import state_writes
from signalbox.tb.units.compute.testbench import CONFIG

ROOTS = 8 + 2 * CONFIG.sms
"""Trees of a test: more than the engine has slots."""


class Trees(NestedTestbench):
    """Grows trees and kills some of their kernels. In odd turns the trees are in two contexts.

    Members
    -------
    roots : kernels of the host.
    loose : kernels whose results are unknown: killed kernels, their ancestors, and their
        descendants, which may never be launched.
    """

    def __init__(self, dut: Any, turn: int) -> None:
        super().__init__(dut, contexts=1 + turn % 2)
        self.random.seed(self.random.random() + turn)
        self.roots: list[Launch] = []
        self.loose: set[int] = set()
        self._kills = Source(self, "control__kill")

    def grow(self, asid: int, depth: int = 1, *, faults: float = 0.0) -> Launch:
        """A tree whose kernels fault with probability `faults`."""
        rng, children = self.random, list[Launch]()
        if depth < DEPTH and rng.random() < 0.5:
            children = [self.grow(asid, depth + 1, faults=faults)]
        elif depth < DEPTH:
            children = [self._leaf(asid, faults) for _ in range(rng.randrange(4))]
        return self._leaf(asid, faults, *children)

    def _leaf(self, asid: int, faults: float, *children: Launch) -> Launch:
        rng = self.random
        return self.kernel(
            *children,
            asid=asid,
            joins=rng.random() < 0.8,
            priority=rng.choice((0, 10, 62, 63)),
            faults=rng.random() < faults,
            blocks=rng.choice((1, 1, 2, 5)),
            delay=rng.choice((0, 0, 300)),
            **self.shape(),
        )

    def in_progress(self, kernel: Launch) -> bool:
        """Whether it has been launched and is not over."""
        known = self.link(kernel) or kernel.accepted is not None
        return bool(known) and kernel.over is None

    @property
    def stopped(self) -> bool:
        """Whether blocks have been stopped for others. With several contexts: whether each has left
        while children were not over, which also stops blocks."""
        return state_writes(self) > 0 and (self.contexts == 1 or min(self.left) > 0)

    def kill(self, kernel: Launch) -> None:
        """Kill a kernel, if it is in progress; its descendants continue."""
        self._kills.put({"scope": KillScope.TASK, "asid": kernel.asid, "page": kernel.page})
        self.unsure(kernel)
        below = [kernel]
        while below:
            job = below.pop().job
            assert isinstance(job, Sum)
            self.loose.update(child.number for child in job.children)
            below += job.children

    def unsure(self, kernel: Launch) -> None:
        """The kernel may not end as planned."""
        number: int | None = kernel.number
        while number is not None:
            self.loose.add(number)
            number = self.parents.get(number)

    async def over(self) -> None:
        """Step until everything launched is over."""
        await self.until(lambda: not self.waiting, "launches answered", 200_000)
        await self.steps(5)
        await self.until(lambda: self.get("control__idle"), "all waits end", 400_000)

    def found(self, verdict: Refusal) -> set[str]:
        """Whether kernels of the host, and their descendants, were over with this verdict."""
        numbers = [one.number for one in self.tasks.values() if one.verdict is verdict]
        return {"child" if number in self.parents else "root" for number in numbers}

    def check_trees(self) -> None:
        """Check that each kernel was over once, after its descendants, that each of its blocks has
        run once, its results include its children's, and its record names its parent."""
        place = {number: n for n, number in enumerate(self.order)}
        known = {one.number: one for one in self.tasks.values()}
        for number, one in known.items():
            above = known.get(self.parents.get(number, -1))
            assert above is None or place.get(number, -1) < place.get(above.number, len(place))
            self._check(one, 0 if above is None else above.page)

    def _check(self, one: Launch, parent: int) -> None:
        job = one.job
        assert isinstance(job, Sum)
        marks = self.contents.read((one.asid, 0), job.marks, 4 * job.blocks)
        assert max(np.frombuffer(marks, np.uint32)) <= 1, "a block has run twice"
        if one.number in self.loose:
            assert one.verdict in {None, Refusal.NONE, Refusal.KERNEL, Refusal.KILLED}, one
            assert self.link(one) in {0, parent}, one
            return
        assert self.link(one) == parent, one
        if job.faults:
            assert one.over is not None and one.verdict is Refusal.KERNEL, one
        else:
            self.check(one)


@cocotb.test()
@cocotb.parametrize(turn=range(4))
async def random_trees(dut: Any, turn: int) -> None:
    """Random trees, in some of whose kernels, of the host and others, a warp faults, end with the
    expected results. Again, until blocks were stopped."""
    tb = await Trees(dut, turn).start()
    rounds, faulty = Rounds(1), list[Launch]()
    while rounds.more(
        tb.stopped and len({one.number in tb.parents for one in faulty}) == 2, (tb.stopped, faulty)
    ):
        for n in range(ROOTS):
            tb.roots.append(tb.grow(1 + n % (CONFIG.asids - 1), faults=0.2))
            tb.launch(tb.roots[-1])
            await tb.steps(tb.random.choice((0, 0, 100, 600)))
        await tb.over()
        faulty = [one for one in tb.tasks.values() if isinstance(one.job, Sum) and one.job.faults]
    tb.check_trees()
    print(f"{len(tb.tasks)} kernels, {len(tb.roots)} of the host, {len(faulty)} faulted")


@cocotb.test()
@cocotb.parametrize(turn=range(4))
async def random_kills(dut: Any, turn: int) -> None:
    """If kernels of the host and others are killed by name while trees run, the other kernels of
    these trees continue, all waits end, and trees without a killed kernel are not disturbed."""
    tb = await Trees(dut, turn).start()
    rng, rounds = tb.random, Rounds(ROOTS)

    def children() -> list[Launch]:
        return [
            one for one in tb.tasks.values() if one.number in tb.parents and tb.in_progress(one)
        ]

    while rounds.more(len(found := tb.found(Refusal.KILLED)) == 2, found):
        tb.roots.append(tb.grow(1 + rounds.number % (CONFIG.asids - 1)))
        root = tb.roots[-1]
        tb.launch(root)
        await tb.steps(rng.choice((0, 100, 600)))
        if rounds.number >= ROOTS:  # alone
            await tb.until(lambda root=root: children() or root.over is not None, "a child")
        if running := [one for one in tb.tasks.values() if tb.in_progress(one)]:
            tb.kill(rng.choice(running))
        if rounds.number >= ROOTS - 1:
            await tb.over()
    tb.check_trees()
    killed = sum(one.verdict is Refusal.KILLED for one in tb.tasks.values())
    print(f"{len(tb.tasks)} kernels, {killed} killed, {len(tb.loose)} unsure")


@cocotb.test()
async def whole_trees(dut: Any) -> None:
    """If the channels of some trees are disabled, all kernels of these trees are killed, nothing of
    them is left, and other trees are not disturbed. Again, until kernels of the host and others
    were killed, and blocks stopped."""
    tb, rounds = await Trees(dut, 0).start(), Rounds(1)
    while rounds.more(tb.stopped and len(tb.found(Refusal.KILLED)) == 2, tb.found(Refusal.KILLED)):
        for n in range(ROOTS):
            tb.roots.append(tb.grow(1 + n % (CONFIG.asids - 1)))
            tb.launch(tb.roots[-1])
        await tb.steps(tb.random.randrange(500, 4000))
        await tb.until(lambda: not tb.waiting, "launches answered", 100_000)
        off = set(tb.random.sample(range(CONFIG.channels), CONFIG.channels // 2))
        tb.drive(host__on=sum(1 << n for n in range(CONFIG.channels) if n not in off))
        for one in tb.tasks.values():
            if tb.root(one.number) % CONFIG.channels in off:
                tb.unsure(one)
        await tb.over()
        tb.check_trees()
        tb.drive(host__on=(1 << CONFIG.channels) - 1)
