"""Ends of kernels that launch kernels, as reported by the task unit and SMs (NEST-12, NEST-15)."""

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.nested.kernel_tree import TreeEvent, TreeOp
from signalbox.hw.nested.nested_kernels import NestedKernels
from signalbox.tb.models.kernel_tree import Block, Joined, Kernel, Over
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.nested.test_nested_kernels import config

CONFIG: Config = config(int(os.environ["NODES"]))
NODES = CONFIG.nested_kernels
ALL = (1 << CONFIG.channels) - 1
LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}
SPACES = 7


class Sweeps(Participant):
    """Searches for ended kernels that must be killed: at random times, all kernels of random
    address spaces. A kernel that ends before a sweep must be killed, unless it is already on its
    way out at the end of the sweep; a kernel that ends during the sweep may be killed.

    Members
    -------
    rate : probability that a sweep begins, per cycle.
    cycles : duration of each sweep.
    """

    def __init__(self, tb: "EndsTestbench") -> None:
        self.rate, self.cycles = 0.0, list[int]()
        self._tb = tb
        self._spaces: set[int] = set()
        """Address spaces that the sweep in progress names."""
        self._named = False
        self._begun: int | None = None
        self._stored: set[int] = set()
        """Kernels with a stored end that are not over."""
        self._must: set[int] = set()
        self._may: set[int] = set()
        self._before: set[int] = set()
        """Named kernels that had ended before the sweep."""
        self._read: set[int] = set()
        """Kernels one of which, the next one to leave, may have been read before it was marked."""
        self._queued: set[int] = set()
        """Kernels that were complete at the end of a sweep that named them."""
        tb.join(self)

    def stored(self, number: int) -> None:
        """A kernel of the tree has ended."""
        self._stored.add(number)
        if self._begun is not None and self._names(number):
            self._may.add(number)

    def leaves(self, number: int, *, killed: bool, off: bool) -> None:
        """Check an ended kernel of the tree that leaves. `off` : its channel is disabled."""
        assert killed or not off
        assert off or not killed or number in self._may, "killed for nothing"
        must = number in self._must and number not in self._read
        assert killed or not must, "not killed"
        self._tb.met["swept"] += must
        self._tb.met["swept in the queue"] += must and number in self._queued
        self._stored.discard(number)
        self._read.clear()

    def passes(self) -> None:
        """A failed kernel of the tree leaves."""
        self._read.clear()

    def drive(self, cycle: int) -> None:
        tb = self._tb
        if self._begun is None and tb.random.random() < self.rate:
            self._begun = cycle
            self._spaces = set(tb.random.sample(range(SPACES), tb.random.choice((1, 3, SPACES))))
            self._before = {one for one in self._stored if self._names(one)}
            self._may |= self._before
        tb.drive(sweep=self._begun is not None, named=self._named)

    def sample(self, cycle: int) -> None:
        tb = self._tb
        self._named = tb.get("visited")["task"]["asid"] in self._spaces
        if tb.get("swept"):
            assert self._begun is not None
            self.cycles.append(cycle + 1 - self._begun)
            self._begun = None
            self._must |= self._before & self._stored
            self._read = {one for one in self._stored if tb.may_leave(one)}
            self._queued |= self._read & self._before

    def _names(self, number: int) -> bool:
        return number % SPACES in self._spaces


class EndsTestbench(Testbench):
    """Sends random requests as the machine may. Checks that each kernel leaves once, with the
    result of its end, after its descendants; kernels outside of the tree do not wait for kernels in
    it.

    Members
    -------
    live : blocks that are not over, of kernels that have not ended.
    over : numbers of kernels that have been reported.
    disowned : kernels that never ran.
    sweeps : searches for kernels that must be killed.
    met : number of events of each kind.
    """

    timeout = 3_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(NestedKernels, CONFIG))
        self.live: dict[Kernel, list[Block]] = {}
        self.leaving: list[Block] = []
        self.over: set[int] = set()
        self.disowned: set[Kernel] = set()
        self.met: Counter[str] = Counter()
        self.born: Kernel | None = None
        self._numbers: dict[Kernel, int] = {}
        self._nodes: dict[Kernel, int] = {}
        self._families: dict[Block, int] = {}
        self._due: dict[int, tuple[str, dict[str, Any]]] = {}
        """Kernels that may leave, by number: output and contents."""
        self._words: dict[Kernel, tuple[str, dict[str, Any]]] = {}
        """Kernels that have ended: output and contents of their later leaving."""
        self._kernels: dict[int, Kernel] = {}
        """All kernels, by number."""
        self._ending: int | None = None
        self._sent = False
        """Whether the releases of a kernel are being made."""
        self._joined: list[Joined] = []
        self._asked: Block | None = None
        self.off = 0
        """Channels that are disabled, one bit each."""
        self.drive(on=ALL)
        self._sources = {
            name: Source(self, name, self.share(0.7))
            for name in ("births", "blocks", "failed", "disowned", "completed")
        }
        self._sources["ended"] = Source(self, "ended", self.share(0.7), self._stored)
        self.opens = self.share(0.4)
        """Pace at which complete kernels go to their releases."""
        self.complete = Sink(
            self,
            "complete",
            lambda: self._ending is None and self.opens(),
            lambda got: self._left("complete", got),
        )
        given_up = self.share(0.4)
        self._gives_up = False
        Sink(
            self, "given_up", lambda: self._turn(given_up), lambda got: self._left("given_up", got)
        )
        Sink(self, "reported", lambda: not self._gives_up, self._reported)
        self.sweeps = Sweeps(self)

    async def step(self) -> None:
        if self._ending is not None and self.random.random() < 0.1 and not self._sent:
            refusal = self.random.choice((Refusal.NONE, Refusal.NONE, Refusal.RELEASE))
            word = {"task": {"page": self._ending}, "verdict": {"refusal": refusal}}
            self._sources["completed"].put(word)
            self._sent = True
        await super().step()
        told = self.get("told")
        if told["valid"]:
            self._hear(told["event"])

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way."""
        sent = not any(source.pending for source in self._sources.values())
        busy = self._due or self._joined or self._asked or self._ending is not None
        return sent and not busy and bool(self.get("idle"))

    def number(self, kernel: Kernel) -> int:
        return self._numbers[kernel]

    def may_leave(self, number: int) -> bool:
        """Whether the kernel has ended and its descendants are over."""
        return number in self._due

    def root(self) -> Kernel:
        """A kernel of the host's."""
        kernel = Kernel()
        self._add(kernel)
        return kernel

    def _add(self, kernel: Kernel) -> None:
        self._numbers[kernel] = len(self._numbers)
        self._kernels[self._numbers[kernel]] = kernel
        self.live[kernel] = [Block(kernel) for _ in range(self.random.randint(1, 3))]

    def launch(self, block: Block) -> None:
        self._asked = block
        self._send("births", TreeOp.LAUNCH, block)

    def leave(self, block: Block) -> None:
        (self.leaving if block in self.leaving else self.live[block.kernel]).remove(block)
        if block.parent:
            self._send("blocks", TreeOp.LEAVE, block)
            self._expect(block.leave())

    def end(self, kernel: Kernel, *, how: str) -> None:
        """The kernel ends as `ended`, `failed` or `disowned`."""
        blocks = self.live.pop(kernel)
        self.leaving += [block for block in blocks if block.parent]
        number, node = self._numbers[kernel], self._nodes.get(kernel)
        word: dict[str, Any] = {
            "task": {"page": number, "asid": number % SPACES, "channel": number % CONFIG.channels},
            "context": number % CONFIG.contexts,
            "kin": {"known": node is not None, "kernel": node or 0},
        }
        if how == "failed":
            word["verdict"] = {"refusal": Refusal.KERNEL}
        self._sources[how].put(node if how == "disowned" else word)
        self.met[f"{how} {'in' if node is not None else 'out'}"] += 1
        if how == "disowned":
            self.disowned.add(kernel)
        else:
            self._words[kernel] = "complete" if how == "ended" else "given_up", word
        self._expect(kernel.end(failed=how == "failed"))

    def _send(self, name: str, op: TreeOp, block: Block) -> None:
        node, family = self._nodes.get(block.kernel), self._families.get(block)
        self._sources[name].put({
            "op": op,
            "known": node is not None,
            "kernel": node or 0,
            "related": family is not None,
            "family": family or 0,
        })
        self.met[op.name] += 1

    def _expect(self, follows: Iterable[Over | Joined]) -> None:
        for one in follows:
            if isinstance(one, Joined):
                self._joined.append(one)
            elif one.kernel in self._words:
                self._due[self._numbers[one.kernel]] = self._words.pop(one.kernel)
            else:
                self._done(one.kernel)
        for block in [*self._families]:
            if block.left and block not in block.kernel.families:
                del self._families[block]

    def _hear(self, event: dict[str, Any]) -> None:
        self.met[event["kind"].name] += 1
        if event["kind"] is TreeEvent.JOINED:
            one = next(one for one in self._joined if self._families[one.block] == event["family"])
            self._joined.remove(one)
            assert event["failed"] == one.failed
            return
        block, self._asked = self._asked, None
        assert block is not None
        room = NODES - len(self._nodes) > (block.kernel not in self._nodes)
        room &= NODES - len(self._families) >= (block not in self._families)
        assert event["kind"] is (TreeEvent.LAUNCHED if room else TreeEvent.REFUSED)
        if not room:
            return
        assert self._nodes.setdefault(block.kernel, event["kernel"]) == event["kernel"]
        assert self._families.setdefault(block, event["family"]) == event["family"]
        self.born = child = block.launch()
        assert event["child"] not in self._nodes.values()
        self._nodes[child] = event["child"]
        self._add(child)

    def _left(self, where: str, got: dict[str, Any]) -> None:
        number = got["task"]["page"]
        way, word = self._due.pop(number)
        kept = self._kernels[number] in self._nodes
        dies = kept and (way, where) == ("complete", "given_up")
        assert (where == way or dies) and number not in self.over
        if kept and way == "complete":
            off = bool(self.off >> number % CONFIG.channels & 1)
            self.sweeps.leaves(number, killed=dies, off=off)
        elif kept:
            self.sweeps.passes()
        assert got["task"]["asid"] == word["task"]["asid"] and got["context"] == word["context"]
        if where == "given_up":
            assert got["verdict"]["refusal"] is (Refusal.KILLED if dies else Refusal.KERNEL)
            self.met["killed"] += dies
            self.over.add(number)
            self._done(self._kernels[number], failed=dies)
        else:
            self._ending, self._sent = number, False
        self.met[where] += 1

    def _stored(self, word: dict[str, Any]) -> None:
        if word["kin"]["known"]:
            self.sweeps.stored(word["task"]["page"])

    def _reported(self, word: dict[str, Any]) -> None:
        number, self._ending = word["task"]["page"], None
        assert number not in self.over
        self.over.add(number)
        self._done(self._kernels[number], failed=word["verdict"]["refusal"] is not Refusal.NONE)

    def _done(self, kernel: Kernel, *, failed: bool = False) -> None:
        self._nodes.pop(kernel, None)
        self._expect(kernel.done(failed=failed))

    def _turn(self, pace: Pace) -> bool:
        """A pace: failed and complete kernels are not reported at the same time."""
        self._gives_up = pace()
        return self._gives_up


async def settle(tb: EndsTestbench) -> None:
    """Step until nothing is under way: further requests depend on it."""
    await tb.until(lambda: tb.quiet, "nothing is under way")


async def leave(tb: EndsTestbench, block: Block) -> None:
    """End a block at a time when it is certain whether the block has received JOINED."""
    await settle(tb)
    tb.leave(block)
    await settle(tb)


async def launched(tb: EndsTestbench, block: Block) -> Kernel:
    """A child of the block; there must be room for it."""
    await settle(tb)
    tb.launch(block)
    await settle(tb)
    child, tb.born = tb.born, None
    assert child is not None
    return child


async def random_step(tb: EndsTestbench, launches: float) -> None:
    """A random request, or several at the same time."""
    rng = tb.random
    if len(tb.live) < 2 or rng.random() < 0.05:
        tb.root()
    kernel = rng.choice([*tb.live])
    if tb.leaving and rng.random() < 0.3:
        await leave(tb, rng.choice(tb.leaving))
    elif not tb.live[kernel] or rng.random() < 0.2 * (1 - launches):
        tb.end(kernel, how=rng.choice(("ended", "ended", "failed")))
        alone = [one for one in tb.live if one.parent is None and not one.families]
        for one in alone[: rng.randrange(3)]:  # these pass meanwhile
            tb.end(one, how=rng.choice(("ended", "failed")))
    elif rng.random() < launches:
        await settle(tb)
        tb.launch(rng.choice(tb.live[kernel]))
        await settle(tb)
        if tb.born is not None and rng.random() < 0.3:
            tb.end(tb.born, how="disowned")
        tb.born = None
    else:
        await leave(tb, rng.choice(tb.live[kernel]))
    if rng.random() < 0.7:
        await settle(tb)


@cocotb.test(**LIMIT)
async def random_ends(dut: Any) -> None:
    """Each kernel leaves once, with its reported result, after all its descendants; disowned
    kernels do not leave; the tree is empty in the end."""
    await random_kernels(await EndsTestbench(dut).start())


@cocotb.test(**LIMIT)
async def random_sweeps(dut: Any) -> None:
    """Likewise if sweeps find kernels that must be killed."""
    tb = await EndsTestbench(dut).start()
    tb.sweeps.rate = 0.05
    await random_kernels(tb, "swept")


async def random_kernels(tb: EndsTestbench, *more: str) -> None:
    """Random requests, until each kind of event was met often enough, `more` included; then all
    kernels end."""
    await tb.until(lambda: tb.get("empty"), "the lists of free nodes are full")
    kinds = (
        *more,
        "killed",
        "ended in",
        "ended out",
        "failed in",
        "failed out",
        "disowned in",
        "REFUSED",
        "JOINED",
    )
    rounds = Rounds(1, 600)
    while rounds.more(all(tb.met[kind] > 10 for kind in kinds), tb.met):
        launches = tb.random.choice((0.1, 0.5, 0.95))
        await settle(tb)
        tb.off = tb.random.choice((0, 0, 1, 0x16)) & ALL
        tb.drive(on=ALL & ~tb.off)
        for _ in range(60):
            await random_step(tb, launches)
    await settle(tb)
    await end_all(tb)
    await tb.steps(3)
    assert tb.get("empty")
    assert {tb.number(one) for one in tb.disowned} ^ tb.over == set(
        range(len(tb.over) + len(tb.disowned))
    )
    print(dict(tb.met))


async def end_all(tb: EndsTestbench) -> None:
    """End all kernels, when nothing is under way."""
    while tb.live or tb.leaving:
        for block in [*tb.leaving, *(block for blocks in tb.live.values() for block in blocks)]:
            await leave(tb, block)
        for kernel in [*tb.live]:
            tb.end(kernel, how="ended")
        await settle(tb)


@cocotb.test(**LIMIT)
async def sweeps_of_a_queue(dut: Any) -> None:
    """Of complete kernels that wait for their releases one after the other, a sweep kills those
    that it names, except the first one."""
    tb = await EndsTestbench(dut).start()
    await tb.until(lambda: tb.get("empty"), "the lists of free nodes are full")
    opens, rounds = tb.opens, Rounds(5)
    while rounds.more(tb.met["swept in the queue"] > 10 or NODES == 2, tb.met):
        block = tb.live[tb.root()][0]
        children = [await launched(tb, block) for _ in range(min(NODES - 1, 12))]
        for child in children:
            for one in [*tb.live[child]]:
                await leave(tb, one)
        tb.opens = lambda: False
        for child in children:
            tb.end(child, how="ended")
        await tb.until(lambda: tb.complete.offered, "one is offered")
        await tb.steps(tb.random.randrange(60))
        tb.sweeps.rate = 1.0
        await tb.step()
        tb.sweeps.rate = 0.0
        await tb.steps(tb.random.randrange(8 * NODES))
        tb.opens = opens
        await settle(tb)
        await end_all(tb)


@cocotb.test(**LIMIT)
async def time_of_a_sweep(dut: Any) -> None:
    """A sweep takes 4 cycles per number, if nothing else is under way."""
    tb = await EndsTestbench(dut).start()
    tb.sweeps.rate = 0.5
    await tb.until(lambda: len(tb.sweeps.cycles) == 4, "four sweeps")
    assert set(tb.sweeps.cycles) == {4 * NODES}


@cocotb.test(**LIMIT)
async def others_pass(dut: Any) -> None:
    """While a complete kernel is not accepted, kernels that fail outside of the tree are."""
    tb = await EndsTestbench(dut).start()
    await tb.until(lambda: tb.get("empty"), "the lists of free nodes are full")
    parent = tb.root()
    block = tb.live[parent][0]
    child = await launched(tb, block)
    for one in [*tb.live[child], *tb.live[parent]]:
        await leave(tb, one)
    tb.opens = lambda: False
    tb.end(parent, how="ended")
    tb.end(child, how="ended")
    await tb.until(lambda: tb.complete.offered, "the child is offered")
    for _ in range(3):
        tb.end(tb.root(), how="failed")
    await tb.until(lambda: tb.met["given_up"] == 3, "they pass")
    assert not tb.get("empty")
    tb.opens = lambda: True
    await settle(tb)
    assert tb.met["complete"] == 2
    await tb.steps(3)
    assert tb.get("empty")
