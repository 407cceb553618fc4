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
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Pace, Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.nested.test_nested_kernels import config

CONFIG: Config = config(int(os.environ["NODES"]))
NODES = CONFIG.nested_kernels
ALL = (1 << CONFIG.channels) - 1
LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


class EndsTestbench(Testbench):
    """Sends random requests as the machine may. Checks that each kernel leaves once, with the
    result of its end, after its descendants; kernels outside of the tree do not wait for kernels in
    it.

    Members
    -------
    live : blocks that are not over, of kernels that have not ended.
    over : numbers of kernels that have been reported.
    disowned : kernels that never ran.
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
            for name in ("births", "blocks", "ended", "failed", "disowned", "completed")
        }
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
            "task": {"page": number, "asid": number % 7, "channel": number % CONFIG.channels},
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
        dies = kept and way == "complete" and self.off >> number % CONFIG.channels & 1
        assert where == ("given_up" if dies else way) and number not in self.over
        assert got["task"]["asid"] == word["task"]["asid"] and got["context"] == word["context"]
        if where == "given_up":
            assert got["verdict"]["refusal"] is (Refusal.KILLED if dies else Refusal.KERNEL)
            self.met["killed"] += bool(dies)
            self.over.add(number)
            self._done(self._kernels[number], failed=bool(dies))
        else:
            self._ending, self._sent = number, False
        self.met[where] += 1

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
    tb = await EndsTestbench(dut).start()
    await tb.until(lambda: tb.get("empty"), "the lists of free nodes are full")
    kinds = (
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
    while tb.live or tb.leaving:
        for block in [*tb.leaving, *(block for blocks in tb.live.values() for block in blocks)]:
            await leave(tb, block)
        for kernel in [*tb.live]:
            tb.end(kernel, how="ended")
        await settle(tb)
    await tb.steps(3)
    assert tb.get("empty")
    assert {tb.number(one) for one in tb.disowned} ^ tb.over == set(
        range(len(tb.over) + len(tb.disowned))
    )
    print(dict(tb.met))


@cocotb.test(**LIMIT)
async def others_pass(dut: Any) -> None:
    """While a complete kernel is not accepted, kernels that fail outside of the tree are."""
    tb = await EndsTestbench(dut).start()
    await tb.until(lambda: tb.get("empty"), "the lists of free nodes are full")
    parent = tb.root()
    block = tb.live[parent][0]
    tb.launch(block)
    await settle(tb)
    child = tb.born
    assert child is not None
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
