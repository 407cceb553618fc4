"""Testbench of the SM logic controller; models the global controller and the core.

Every cycle is compared with the model (`tb.units.sm.model`), which is untimed. This module adds
only the documented latencies of the design.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import REGISTER_UNIT, SHARED_UNIT, Config
from signalbox.hw.sm.controller import SmController
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.sm.model import Block, Kernel, Sm

__all__ = ["Bench", "Pace", "Size", "config"]

_NEEDS, _SPACE = 0, 1
"""The words of a kernel row that the controller uses."""


@dataclass(frozen=True)
class Size:
    """Size of an SM: warps, block slots, and units of registers and shared memory."""

    warps: int = 16
    blocks: int = 8
    registers: int = 32
    shared: int = 48
    slots: int = 16

    def environment(self) -> dict[str, str]:
        return {"SM_SIZE": ",".join(str(value) for value in vars(self).values())}

    @classmethod
    def here(cls) -> "Size":
        return cls(*map(int, os.environ["SM_SIZE"].split(",")))


def config(size: Size) -> Config:
    """A configuration with SMs of this size."""
    return Config(
        slots=size.slots,
        sm_warps=size.warps,
        sm_blocks=size.blocks,
        sm_registers=size.registers * REGISTER_UNIT,
        sm_shared=size.shared * SHARED_UNIT,
    )


@dataclass
class Pace:
    """Fractions of cycles in which a block is sent, an ended row is accepted, a `begin` or a
    `start` is accepted, or a finished warp ends. `runs`: range of cycles for which a warp runs."""

    block: float = 1.0
    ended: float = 1.0
    begin: float = 1.0
    start: float = 1.0
    end: float = 1.0
    runs: tuple[int, int] = (1, 20)


@dataclass
class Seen:
    """Events with their cycles: (cycle, block, index) of starts, at their decision and at their
    offer; (cycle, warp, block) of accepted ends; (cycle, block) of accepted blocks and of finished
    blocks."""

    starts: list[tuple[int, Block, int]] = field(default_factory=list)
    offers: list[tuple[int, Block, int]] = field(default_factory=list)
    ends: list[tuple[int, int, Block]] = field(default_factory=list)
    taken: list[tuple[int, Block]] = field(default_factory=list)
    over: list[tuple[int, Block]] = field(default_factory=list)


@dataclass(frozen=True)
class _Decision:
    """The correct decision of one cycle: a start, if any, and the priority of the most urgent block
    with warps to start."""

    start: tuple[Block, bool] | None = None
    head: int = -1

    def still(self, arrived: list[Block]) -> tuple[Block, bool]:
        """The start, which must still be correct after these blocks have arrived (PLACE-22)."""
        assert self.start, "nothing could be started"
        higher = self.higher(arrived)
        assert not higher, f"{higher} should be chosen, and not {self.start}"
        return self.start

    def higher(self, arrived: list[Block]) -> list[Block]:
        """The blocks among these that precede all others."""
        return [one for one in arrived if one.kernel.priority > self.head]


class Bench:
    """Drives the unit cycle by cycle and compares it with the model.

    Members
    -------
    todo : blocks to send, in order.
    pace : speed of each event.
    hold : rows of kernels whose warps do not end, except one for each entry in `by_hand`.
    seen : events so far.
    now : current cycle.
    """

    def __init__(self, dut: Any) -> None:
        self.dut, self.size = dut, Size.here()
        self.numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        members = dict(SmController(config(self.size)).signature.members)
        link, port = members["link"].signature.members, members["port"].signature.members
        shapes = {"kernel": members["kernel"].shape, "left": members["left"].shape}
        shapes |= {"freed": link["freed"].shape, "events": members["events"].shape}
        for name, member in (("block", link), ("begin", port), ("start", port)):
            shapes[name] = member[name].signature.members["payload"].shape
        self.shapes = shapes
        size = self.size
        self.model = Sm({
            "registers": size.registers,
            "warps": size.warps,
            "shared": size.shared,
            "slots": size.blocks,
        })
        self.pace, self.seen, self.now = Pace(), Seen(), 0
        self.todo: list[Block] = []
        self.hold: set[int] = set()
        self.by_hand: list[int] = []
        self.slots = size.blocks  # free slots, as known to the global controller
        self.due: dict[int, list[tuple[str, Any]]] = defaultdict(list)
        self.done: dict[int, int] = {}  # earliest end of each running warp
        self.offers: dict[str, Any] = {"block": None, "end": None}
        self.before: dict[str, Any] = {}
        self.first: Block | None = None  # its first warp was decided, but not offered yet
        self.busy: set[int] = set()
        self.rows: list[int] = []  # rows of finished blocks, not yet reported
        self.decisions = [_Decision(), _Decision()]  # of the last two cycles
        self.begins: tuple[Block, bool] | None = None  # decided, not in effect yet
        self.arrivals: dict[int, list[Block]] = defaultdict(list)  # by cycle of entry
        self.late = self.count = 0
        self.reported = [(0, 0), (0, 0)]  # in the last two cycles

    @classmethod
    async def begin(cls, dut: Any, kernels: Iterable[Kernel] = ()) -> "Bench":
        bench = cls(dut)
        for name in ("link__block", "port__end"):
            getattr(dut, f"{name}__valid").value = 0
            getattr(dut, f"{name}__payload").value = 0
        for name in ("link__ended", "port__begin", "port__start"):
            getattr(dut, f"{name}__ready").value = 0
        dut.kernel.value = 0
        await reset(dut)
        for kernel in kernels:
            await bench.describe(kernel)
        return bench

    async def describe(self, kernel: Kernel) -> None:
        """Send the words of a kernel row, including those that the controller ignores."""
        total = kernel.registers * kernel.warps
        needs = kernel.priority | kernel.barrier << 6 | kernel.warps << 7
        needs |= kernel.registers << 14 | kernel.shared << 21
        words = [needs, total | self.numbers.getrandbits(22) << 10]
        words += [self.numbers.getrandbits(32) for _ in range(8)]
        for word in (_NEEDS, *range(2, 10), _SPACE):
            await self.step({"valid": 1, "row": kernel.row, "word": word, "data": words[word]})

    def send(self, kernel: Kernel, count: int = 1) -> list[Block]:
        """Queue blocks to be sent after the others."""
        at = [tuple(self.numbers.getrandbits(bits) for bits in (32, 16, 16)) for _ in range(count)]
        blocks = [Block(kernel, one) for one in at]
        self.todo += blocks
        return blocks

    # Cycles

    async def step(self, kernel: dict[str, int] | None = None) -> None:
        """One cycle."""
        dut = self.dut
        self._drive(kernel)
        await ReadOnly()
        here = {
            name: self._sample(name)
            for name in ("link__block", "link__ended", "port__begin", "port__start", "port__end")
        }
        self._commits(here)
        self._changes()
        self._outputs()
        self._transfers(here)
        self.before = here
        await RisingEdge(dut.clk)
        self.now += 1

    async def run(self, cycles: int) -> None:
        for _ in range(cycles):
            await self.step()

    async def until(self, condition: Callable[[], bool], limit: int = 2_000) -> None:
        """Step until the condition holds."""
        end = self.now + limit
        while not condition():
            assert self.now < end, "the condition did not come true"
            await self.step()

    async def rest(self, limit: int = 30_000) -> None:
        """Step until everything sent is finished and reported."""
        end = self.now + limit
        while (
            self.todo
            or self.model.blocks
            or self.rows
            or self.offers["block"]
            or any(self.due.values())
        ):
            assert self.now < end, f"not over: {self.model.blocks}, left {self.model.left}"
            await self.step()
        await self.run(3)
        assert self.model.left == self.model.capacity

    def _flip(self, share: float) -> int:
        return int(self.numbers.random() < share)

    def _drive(self, kernel: dict[str, int] | None) -> None:
        dut, pace, offers = self.dut, self.pace, self.offers
        word = self.shapes["kernel"].const(kernel or {"valid": 0})
        dut.kernel.value = word.as_bits()
        dut.link__ended__ready.value = self._flip(pace.ended)
        dut.port__begin__ready.value = self._flip(pace.begin)
        dut.port__start__ready.value = self._flip(pace.start)
        if offers["block"] is None and self.todo and self.slots and self._flip(pace.block):
            offers["block"] = self.todo.pop(0)
            self.slots -= 1
            at = dict(zip("xyz", offers["block"].at, strict=True))
            record = {"row": offers["block"].kernel.row, "at": at}
            dut.link__block__payload.value = self.shapes["block"].const(record).as_bits()
        dut.link__block__valid.value = int(offers["block"] is not None)
        if offers["end"] is None and self._flip(pace.end):
            ready = [warp for warp in self.done if self._may_end(warp)]
            if ready:
                offers["end"] = self.numbers.choice(ready)
                row = self.model.running[offers["end"]].kernel.row
                if row in self.hold:
                    self.by_hand.remove(row)
                dut.port__end__payload.value = offers["end"]
        dut.port__end__valid.value = int(offers["end"] is not None)

    def _may_end(self, warp: int) -> bool:
        """Whether a warp may end. Warps of a block with a barrier end only after all of them have
        run."""
        block = self.model.running[warp]
        kernel = block.kernel
        if self.done[warp] > self.now or kernel.row in self.hold.difference(self.by_hand):
            return False
        mine = [other for other, owner in self.model.running.items() if owner is block]
        together = len(mine) + block.ended == kernel.warps and not (
            self.first is block or set(mine) - set(self.done)
        )
        return together or not kernel.barrier

    def _sample(self, name: str) -> tuple[bool, bool, int]:
        stream = f"{name}__valid", f"{name}__ready", f"{name}__payload"
        valid, ready, payload = (getattr(self.dut, part).value for part in stream)
        return valid == 1, ready == 1, int(payload) if valid == 1 else 0

    # Checks, against the model's state before this cycle's changes

    def _fresh(self, name: str, here: dict[str, Any]) -> bool:
        """Whether an offer is new; otherwise it must be unchanged."""
        valid, ready, payload = self.before.get(name, (False, False, 0))
        if valid and not ready:
            assert here[name][::2] == (True, payload), f"{name} changed before it was taken"
            return False
        return here[name][0]

    def _commits(self, here: dict[str, Any]) -> None:
        """A new `begin` was decided one cycle earlier, a new `start` two cycles earlier; decisions
        take effect one cycle after they were made."""
        begun, self.begins = self.begins, None
        if begun:
            self._commit(*begun)
        if self._fresh("port__start", here):
            start = self.shapes["start"].from_bits(here["port__start"][2])
            if self.first:
                assert not here["port__begin"][0], "start before begin was taken"
                self._is_first(start)
            else:
                self._started(start, self.decisions[0], self.arrivals[self.now - 1])
        if self._fresh("port__begin", here):
            begin = self.shapes["begin"].from_bits(here["port__begin"][2])
            self._begun(begin, self.decisions[1], self.arrivals[self.now])
        decision = self.decisions[1]
        waits = not (self.first or here["port__start"][0] or begun) and decision.start
        waits = waits and not decision.higher(self.arrivals[self.now])
        self.late = self.late + 1 if waits else 0
        assert self.late <= 3, f"{decision} could have been for 3 cycles"

    def _commit(self, block: Block, urgent: bool) -> None:
        self.seen.starts.append((self.now - 1, block, block.started))
        self.model.start(block, urgent)

    def _started(self, start: Any, decision: "_Decision", arrived: list[Block]) -> None:
        """Check a further warp of a block that has begun."""
        block, urgent = decision.still(arrived)
        assert block.begun, f"{start} where {block} was right"
        assert (start.slot, start.row) == (block.slot, block.kernel.row), (start, block)
        self.busy = set(self.model.running)
        self._runs(start, block, block.started)
        self._commit(block, urgent)

    def _begun(self, begin: Any, decision: "_Decision", arrived: list[Block]) -> None:
        """Check the decision on the first warp of a block."""
        block, urgent = decision.still(arrived)
        assert not block.begun, f"{begin} where {block} was right"
        kernel = block.kernel
        assert (begin.row, begin.shared) == (kernel.row, kernel.shared), (begin, block)
        assert tuple(begin.at[axis] for axis in "xyz") == block.at, (begin, block)
        assert begin.slot not in [one.slot for one in self.model.blocks], (begin, block)
        block.slot = int(begin.slot)
        self.first, self.begins, self.busy = block, (block, urgent), set(self.model.running)

    def _is_first(self, start: Any) -> None:
        """Check the start that follows a begin."""
        block, self.first = self.first, None
        assert block is not None and start.slot == block.slot, (start, block)
        self._runs(start, block, 0)

    def _runs(self, start: Any, block: Block, index: int) -> None:
        kernel, warp = block.kernel, int(start.warp)
        assert (start.row, start.index, start.registers) == (kernel.row, index, kernel.registers)
        assert warp < self.size.warps and warp not in self.busy, (warp, self.busy)
        self.model.running[warp] = block
        self.seen.offers.append((self.now, block, index))

    # Changes in this cycle

    def _changes(self) -> None:
        """Enter blocks into the table and remove warps and blocks, as expected."""
        self.reported = [self.reported[1], (self.model.highest, self.count)]
        freed = dict.fromkeys(("registers", "warps", "shared", "slots"), 0)
        finished = 0
        for what, one in self.due.pop(self.now, []):
            if what == "arrive":
                self.model.arrive(one)
                self.count += 1
            elif what == "end":
                freed |= self.model.end(one)
            else:
                freed |= self.model.finish(one)
                finished |= 1 << one.slot
                self.rows.append(one.kernel.row)
                self.seen.over.append((self.now, one))
        waiting = self.model.waiting()
        head = waiting[0].kernel.priority if waiting else -1
        self.decisions = [self.decisions[1], _Decision(self.model.next(), head)]
        self.slots += freed["slots"]
        told = self.shapes["freed"].from_bits(int(self.dut.link__freed.value))
        told = {name: int(told[name]) for name in ("registers", "warps", "shared", "block")}
        assert told == {**{k: v for k, v in freed.items() if k != "slots"}, "block": freed["slots"]}
        assert self.dut.port__finish.value == finished

    def _outputs(self) -> None:
        left = self.shapes["left"].from_bits(int(self.dut.left.value))
        for name in ("registers", "warps", "shared"):
            assert left[name] == self.model.left[name], (name, left, self.model.left)
        highest, count = self.reported[0]
        assert self.dut.link__highest.value == highest
        assert self.dut.link__received.value == count % 64

    def _transfers(self, here: dict[str, Any]) -> None:
        """Transfers of this cycle, with the cycles in which they take effect."""
        taken = {name: valid and ready for name, (valid, ready, _) in here.items()}
        self._events(here, taken)
        if taken["link__block"]:
            self.due[self.now + 3].append(("arrive", self.offers["block"]))
            self.arrivals[self.now + 3].append(self.offers["block"])
            self.seen.taken.append((self.now, self.offers["block"]))
            self.offers["block"] = None
        if taken["port__end"]:
            self._ends(self.offers["end"])
            self.offers["end"] = None
        if taken["port__start"]:
            start = self.shapes["start"].from_bits(here["port__start"][2])
            self.done[int(start.warp)] = self.now + self.numbers.randint(*self.pace.runs)
        valid, ready, row = here["link__ended"]
        if valid:
            assert self.rows and row == self.rows[0], (row, self.rows)
            if ready:
                self.rows.pop(0)

    def _events(self, here: dict[str, Any], taken: dict[str, bool]) -> None:
        """Check that the strobes for timelines are the transfers and `finish`."""
        shape, bits = self.shapes["events"], int(self.dut.events.value)
        for name in ("begin", "start", "end"):
            assert bits >> shape[name].offset & 1 == taken[f"port__{name}"], name
        if taken["port__start"] or taken["port__end"]:
            events = shape.from_bits(bits)
            start = self.shapes["start"].from_bits(here["port__start"][2])
            told, given = events.start, (start.warp, start.slot, start.index)
            assert not taken["port__start"] or (told.warp, told.slot, told.index) == given
            assert not taken["port__end"] or events.end.warp == here["port__end"][2]
        assert bits >> shape["finish"].offset == int(self.dut.port__finish.value)

    def _ends(self, warp: int) -> None:
        block = self.model.running[warp]
        del self.done[warp]
        self.due[self.now + 2].append(("end", warp))
        self.seen.ends.append((self.now, warp, block))
        unended = block.kernel.warps - sum(one is block for _, _, one in self.seen.ends)
        if unended == 0:
            self.due[self.now + 4].append(("finish", block))
