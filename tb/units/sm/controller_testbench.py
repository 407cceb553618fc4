"""Testbench of the SM logic controller; models the global controller and the core.

Every cycle is compared with the model (`tb.units.sm.model`), which is untimed. This module adds
only the documented latencies of the design.
"""

import os
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from signalbox.hw.config import REGISTER_UNIT, SHARED_UNIT, Config
from signalbox.hw.records.placement import kernel_needs
from signalbox.hw.sm.controller import SmController
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.sm.model import Block, Kernel, Sm

__all__ = ["MOST_REGISTERS", "ControllerTestbench", "Pace", "Size", "config"]

_NEEDS, _SPACE = 0, 1
"""The words of a kernel row that the controller uses."""

_NEEDS_RECORD = Record(kernel_needs)

MOST_REGISTERS = (1 << 10) - 1
"""Limit of a block's registers, in units: `block_registers` of a kernel word has 10 bits."""


@dataclass(frozen=True)
class Size:
    """Size of an SM: warps, block slots, and units of registers and shared memory;
    `masks` : 1 on a machine with SM masks."""

    warps: int = 16
    blocks: int = 8
    registers: int = 32
    shared: int = 48
    slots: int = 16
    masks: int = 0

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
        sm_masks=size.masks > 0,
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
    """The correct decision in a cycle: a start, if any, and the priority of the most urgent block
    with warps to start."""

    start: tuple[Block, bool] | None = None
    head: int = -1

    def still(self, arrived: list[Block]) -> tuple[Block, bool]:
        """The start; asserts that it is still correct after these blocks have arrived
        (PLACE-22)."""
        assert self.start, "nothing could be started"
        higher = self.higher(arrived)
        assert not higher, f"{higher} should be chosen, and not {self.start}"
        return self.start

    def higher(self, arrived: list[Block]) -> list[Block]:
        """The blocks among these that precede all others."""
        return [one for one in arrived if one.kernel.priority > self.head]


def _claimed(kernel: Kernel) -> tuple[int, dict[str, int]]:
    """Level and first needs of a claimed block."""
    return kernel.priority + 1, Sm.share(Block(kernel, (0, 0, 0)))


class ControllerTestbench(Testbench):
    """Drives the unit cycle by cycle and compares it with the model.

    Members
    -------
    todo : blocks to send, in order.
    pace : speed of each event.
    hold : rows of kernels whose warps do not end, except one for each entry in `by_hand`.
    seen : events so far.
    rows : finished blocks that have not been reported: row, and low bits of x.
    killed : rows that are killed.
    returned : answers to recalls: blocks, or None for a recall that returned none.
    """

    timeout = 2_000

    def __init__(self, dut: Any, kernels: Iterable[Kernel] = ()) -> None:
        """`kernels` : rows that the unit knows after `start`."""
        self.size = size = Size.here()
        super().__init__(dut, component(SmController, config(size)))
        self._numbers = 2 * config(size).queue_window
        self.model = Sm({
            "registers": size.registers,
            "warps": size.warps,
            "shared": size.shared,
            "slots": size.blocks,
        })
        self.pace, self.seen = Pace(), Seen()
        self.todo: list[Block] = []
        self.hold: set[int] = set()
        self.by_hand: list[int] = []
        self.rows: list[dict[str, int]] = []
        self.killed: set[int] = set()
        self.returned: list[Block | None] = []
        self._claim: Kernel | None = None
        self._claimed_before: Kernel | None = None  # in the last cycle
        self._had_room = False  # in the last cycle
        self._took = -1  # last cycle in which the start of a warp took resources
        self._withdrew = -2  # last cycle in which a block was withdrawn
        self._waits_since = 0
        self._heads: deque[Block | None] = deque([None] * 4, maxlen=4)  # blocks that waited last
        self._recalled = False  # a recall has not been answered
        self._withdrawn: deque[Block] = deque()  # one entry per warp that has not been counted
        self._kernels = kernels
        self._now = 0  # the cycle that is driven and checked
        self._slots = size.blocks  # free slots, as known to the global controller
        self._due: dict[int, list[tuple[str, Any]]] = defaultdict(list)
        self._done: dict[int, int] = {}  # earliest end of each running warp
        self._sending: Block | None = None  # on its way to the unit
        self._ending: int | None = None  # the warp whose end is offered
        self._first: Block | None = None  # its first warp was decided, but not offered yet
        self._busy: set[int] = set()
        self._decisions = [_Decision(), _Decision()]  # of the last two cycles
        self._begins: tuple[Block, bool] | None = None  # decided, not in effect yet
        self._arrivals: dict[int, list[Block]] = defaultdict(list)  # by cycle of entry
        self._late = self._count = 0
        self._reported = [(0, 0), (0, 0)]  # in the last two cycles
        self._kernel = Strobe(self, "kernel")
        self._block, self._end = Source(self, "link__block"), Source(self, "port__end")
        self._ended = Sink(self, "link__ended", lambda: self._flip(self.pace.ended))
        self._begin = Sink(self, "port__begin", lambda: self._flip(self.pace.begin))
        self._start = Sink(self, "port__start", lambda: self._flip(self.pace.start))

    async def start(self) -> Self:
        """Start the clock, reset, and describe the kernels."""
        await super().start()
        for kernel in self._kernels:
            await self.describe(kernel)
        return self

    async def describe(self, kernel: Kernel) -> None:
        """Send the words of a kernel row, including those that the controller ignores."""
        total = kernel.registers * kernel.warps
        assert total <= MOST_REGISTERS, kernel
        needs = ("priority", "barrier", "warps", "registers", "shared")
        words = [_NEEDS_RECORD.pack({name: getattr(kernel, name) for name in needs})]
        words += [total | self.random.getrandbits(22) << 10]
        words += [self.random.getrandbits(32) for _ in range(8)]
        for word in (_NEEDS, *range(2, 10), _SPACE):
            self._kernel.send(row=kernel.row, word=word, data=words[word])
            await self.step()

    def send(self, kernel: Kernel, count: int = 1) -> list[Block]:
        """Queue blocks to be sent after the others."""
        at = [tuple(self.random.getrandbits(bits) for bits in (32, 16, 16)) for _ in range(count)]
        blocks = [Block(kernel, one) for one in at]
        self.todo += blocks
        return blocks

    def claim(self, kernel: Kernel | None) -> None:
        """Claim room for a block of the kernel, from the next cycle on."""
        self._claim = kernel
        word: dict[str, int] = {"valid": 0}
        if kernel is not None:
            word = {"valid": 1, **self._claim_of(kernel)}
        self.drive(link__claim=word)

    def _claim_of(self, kernel: Kernel) -> dict[str, int]:
        level, needs = _claimed(kernel)
        row = {"row": kernel.row} if self.size.masks else {}
        return {"level": level, **needs, **row}

    async def recall(self, kernel: Kernel) -> Block | None:
        """Claim a block of the kernel that waits here, and recall it. With SM masks, the claim of
        another SM's block continues in the next cycle."""
        self.drive(link__claim={"valid": 0, **self._claim_of(kernel)}, link__recall=1)
        self._recalled, answers = True, len(self.returned)
        await self.step()
        self.drive(link__recall=0)
        if self.size.masks:
            self.claim(self._claim)
        await self.until(lambda: len(self.returned) > answers, "the recall is answered", 20)
        return self.returned[-1]

    def kill(self, row: int) -> None:
        """Kill a row: no further block of it is sent, and its warps end at any time."""
        self.todo = [block for block in self.todo if block.kernel.row != row]
        self.killed.add(row)
        self.drive(kill=mask(self.killed))

    def gone(self, row: int) -> bool:
        """Whether no block of the row is in the unit or on its way."""
        sent = [self._sending, *(one for due in self._due.values() for _, one in due)]
        blocks = [one for one in sent if isinstance(one, Block)]
        return all(one.kernel.row != row for one in [*self.model.blocks, *blocks])

    def revive(self) -> None:
        """Let rows without blocks be used again."""
        self.killed -= {row for row in self.killed if self.gone(row)}
        self.drive(kill=mask(self.killed))

    # Cycles

    async def step(self) -> None:
        """One cycle."""
        self._now = self.cycle
        self._offer()
        # Offers that remain from the last cycle are not new.
        old = {one for one in (self._begin, self._start) if one.offered and not one.open}
        await super().step()
        self._commits(old)
        self._changes()
        self._outputs()
        self._room()
        self._waits()
        self._claimed_before = self._claim
        self._transfers()

    async def rest(self, limit: int = 30_000) -> None:
        """Step until everything sent is finished and reported."""
        await self.until(self._resting, "everything sent is finished and reported", limit)
        await self.steps(3)
        assert self.model.left == self.model.capacity

    def _resting(self) -> bool:
        under_way = self.todo or self.model.blocks or self.rows or self._sending
        return not under_way and not any(self._due.values())

    def _flip(self, share: float) -> bool:
        return self.random.random() < share

    def _offer(self) -> None:
        """Begin to offer a block, and the end of a warp, at random."""
        if self._sending is None and self.todo and self._slots and self._flip(self.pace.block):
            self._sending = block = self.todo.pop(0)
            self._slots -= 1
            at = dict(zip("xyz", block.at, strict=True))
            self._block.put({"row": block.kernel.row, "at": at})
        if self._ending is None and self._flip(self.pace.end):
            ready = [warp for warp in self._done if self._may_end(warp)]
            if ready:
                self._ending = self.random.choice(ready)
                row = self.model.running[self._ending].kernel.row
                if row in self.hold and row not in self.killed:
                    self.by_hand.remove(row)
                self._end.put(self._ending)

    def _may_end(self, warp: int) -> bool:
        """Whether a warp may end. Warps of a block with a barrier end only after all of them have
        run."""
        block = self.model.running[warp]
        kernel = block.kernel
        if kernel.row in self.killed:
            return True
        if self._done[warp] > self._now or kernel.row in self.hold.difference(self.by_hand):
            return False
        mine = [other for other, owner in self.model.running.items() if owner is block]
        together = len(mine) + block.ended == kernel.warps and not (
            self._first is block or set(mine) - set(self._done)
        )
        return together or not kernel.barrier

    # Checks, against the model's state before this cycle's changes

    def _commits(self, old: set[Sink]) -> None:
        """A new `begin` was decided one cycle earlier, a new `start` two cycles earlier; decisions
        take effect one cycle after they were made. `old` : sinks whose offers are not new."""
        begun, self._begins = self._begins, None
        if begun:
            self._commit(*begun)
        if self._start.offered and self._start not in old:
            start = self.get("port__start__payload")
            if self._first:
                assert not self._begin.offered, "start before begin was taken"
                self._is_first(start)
            else:
                self._started(start, self._decisions[0], self._arrivals[self._now - 1])
        if self._begin.offered and self._begin not in old:
            begin = self.get("port__begin__payload")
            self._begun(begin, self._decisions[1], self._arrivals[self._now])
        decision = self._decisions[1]
        waits = not (self._first or self._start.offered or begun) and decision.start
        waits = waits and not (self._recalled or decision.higher(self._arrivals[self._now]))
        self._late = self._late + 1 if waits else 0
        # Decisions are stalled for two of five cycles while blocks are withdrawn.
        assert self._late <= (9 if self.killed else 3), f"{decision} could have been for cycles"

    def _commit(self, block: Block, urgent: bool) -> None:
        self.seen.starts.append((self._now - 1, block, block.started))
        self._took = self._now if any(self.model.share(block).values()) else self._took
        self.model.start(block, urgent)

    def _started(self, start: dict[str, Any], decision: _Decision, arrived: list[Block]) -> None:
        """Check a further warp of a block that has begun."""
        block, urgent = decision.still(arrived)
        assert block.begun, f"{start} where {block} was right"
        assert (start["slot"], start["row"]) == (block.slot, block.kernel.row), (start, block)
        self._busy = set(self.model.running)
        self._runs(start, block, block.started)
        self._commit(block, urgent)

    def _begun(self, begin: dict[str, Any], decision: _Decision, arrived: list[Block]) -> None:
        """Check the decision on the first warp of a block."""
        block, urgent = decision.still(arrived)
        assert not block.begun, f"{begin} where {block} was right"
        kernel = block.kernel
        assert (begin["row"], begin["shared"]) == (kernel.row, kernel.shared), (begin, block)
        assert tuple(begin["at"][axis] for axis in "xyz") == block.at, (begin, block)
        assert begin["slot"] not in [one.slot for one in self.model.blocks], (begin, block)
        block.slot = begin["slot"]
        self._first, self._begins, self._busy = block, (block, urgent), set(self.model.running)

    def _is_first(self, start: dict[str, Any]) -> None:
        """Check the start that follows a begin."""
        block, self._first = self._first, None
        assert block is not None and start["slot"] == block.slot, (start, block)
        self._runs(start, block, 0)

    def _runs(self, start: dict[str, Any], block: Block, index: int) -> None:
        kernel, warp = block.kernel, start["warp"]
        assert (start["row"], start["index"], start["registers"]) == (
            kernel.row,
            index,
            kernel.registers,
        )
        assert warp < self.size.warps and warp not in self._busy, (warp, self._busy)
        self.model.running[warp] = block
        self.seen.offers.append((self._now, block, index))

    # Changes in this cycle

    def _changes(self) -> None:
        """Enter blocks into the table and remove warps and blocks, as expected."""
        self._reported = [self._reported[1], (self.model.highest, self._count)]
        self._returns()
        freed = dict.fromkeys(("registers", "warps", "shared", "slots"), 0)
        finished = 0
        for what, one in self._due.pop(self._now, []):
            if what == "arrive":
                self.model.arrive(one)
                self._count += 1
            elif what == "end":
                block = self.model.running[one]
                freed |= self.model.end(one)
                self._counted(block)
            else:
                freed |= self.model.finish(one)
                finished |= 1 << one.slot if one.begun else 0
                self.rows.append({"row": one.kernel.row, "number": one.at[0] % self._numbers})
                self.seen.over.append((self._now, one))
        told = self.get("link__freed")
        if told["warps"] and not freed["warps"]:
            block = self._withdrawn.popleft()
            freed |= self.model.drop(block)
            self._counted(block)
        self._withdraws()
        claim = self._claimed_before  # claims take effect one cycle late
        self.model.claim = _claimed(claim) if claim else None
        waiting = self.model.waiting()
        head = waiting[0].kernel.priority if waiting else -1
        self._decisions = [self._decisions[1], _Decision(self.model.next(), head)]
        self._slots += freed["slots"]
        told = {name: told[name] for name in ("registers", "warps", "shared", "block")}
        assert told == {**{k: v for k, v in freed.items() if k != "slots"}, "block": freed["slots"]}
        assert self.get("port__finish") == finished

    def _returns(self) -> None:
        """A block may leave that was recalled."""
        told = self.get("link__returned")
        if not told["valid"]:
            return
        self._recalled = False
        at = tuple(told["at"][axis] for axis in "xyz")
        here = [
            one for one in self.model.waiting() if (one.kernel.row, one.at) == (told["row"], at)
        ]
        self.returned.append(here[0] if told["some"] else None)
        if told["some"]:
            (block,) = here
            assert block is self.model.waiting()[0] and block is not self._first
            needs = told["needs"]
            names = ("priority", "barrier", "warps", "registers", "shared")
            assert all(needs[name] == getattr(block.kernel, name) for name in names), told
            assert needs["block_registers"] == block.kernel.registers * block.kernel.warps
            self.model.give_back(block)
            self._slots += 1

    def _room(self) -> None:
        """Check that room is reported, one cycle late, unless the start of a warp took resources.
        The report may pause when a block has arrived or was withdrawn."""
        told = self.get("link__room")
        right = self._had_room and self._took != self._now
        pauses = self._arrivals[self._now - 1] or self._now - self._withdrew <= 2
        assert right or not told, "there is no room"
        assert told or pauses or not right, "room is not reported"
        self._had_room = self.model.room()

    def _waits(self) -> None:
        """Check that the most urgent block is reported while it waits, with its needs."""
        told, waiting = self.get("link__waits"), self.model.waiting()
        lacks = waiting and not waiting[0].begun and not self.model.fits(waiting[0])
        head = waiting[0] if lacks and waiting[0] is not self._first else None
        self._waits_since = self._waits_since if head is self._heads[-1] else self._now
        self._heads.append(head)
        if told["valid"] and not self.killed:
            known = [{"valid": 1, **self._claim_of(one.kernel)} for one in self._heads if one]
            assert told in known, (told, known)
        late = head is not None and self._now - self._waits_since > 5
        assert told["valid"] or not late or self.killed, "the waiting block is not reported"

    def _counted(self, block: Block) -> None:
        """A warp of the block counts as ended."""
        if block.ended == block.kernel.warps:
            self._due[self._now + 2].append(("finish", block))

    def _withdraws(self) -> None:
        """A block of a killed row may be withdrawn."""
        event = self.get("events")["withdrawn"]
        if event["valid"]:
            at = tuple(event["at"][axis] for axis in "xyz")
            here = [
                one for one in self.model.blocks if (one.kernel.row, one.at) == (event["row"], at)
            ]
            assert len(here) == 1 and event["row"] in self.killed, (event, here)
            left = self.model.withdraw(here[0])
            self._withdrew = self._now
            assert event["left"] == left, (event, here)
            assert not self._withdrawn, "two at once"
            self._withdrawn.extend(here * left)

    def _outputs(self) -> None:
        left = self.get("left")
        for name in ("registers", "warps", "shared"):
            assert left[name] == self.model.left[name], (name, left, self.model.left)
        highest, count = self._reported[0]
        assert self.get("link__highest") == highest
        assert self.get("link__received") == count % 64

    def _transfers(self) -> None:
        """Transfers of this cycle, with the cycles in which they take effect."""
        self._events()
        if self._sending and self._now in self._block.sent[-1:]:
            self._due[self._now + 3].append(("arrive", self._sending))
            self._arrivals[self._now + 3].append(self._sending)
            self.seen.taken.append((self._now, self._sending))
            self._sending = None
        if self._ending is not None and self._now in self._end.sent[-1:]:
            self._ends(self._ending)
            self._ending = None
        if self._start.offered and self._start.open:
            warp = self.get("port__start__payload")["warp"]
            self._done[warp] = self._now + self.random.randint(*self.pace.runs)
        if self._ended.offered:
            end = self.get("link__ended__payload")
            assert self.rows and end == self.rows[0], (end, self.rows)
            if self._ended.open:
                self.rows.pop(0)

    def _events(self) -> None:
        """Check that the strobes for timelines are the transfers and `finish`."""
        events = self.get("events")
        ends = self._now in self._end.sent[-1:]
        starts = self._start.offered and self._start.open
        assert events["begin"]["valid"] == (self._begin.offered and self._begin.open), "begin"
        assert events["start"]["valid"] == starts, "start"
        assert events["end"]["valid"] == ends, "end"
        if starts:
            start = self.get("port__start__payload")
            assert all(events["start"][name] == start[name] for name in ("warp", "slot", "index"))
        if ends:
            assert events["end"]["warp"] == self._ending
        assert events["finish"] == self.get("port__finish")

    def _ends(self, warp: int) -> None:
        block = self.model.running[warp]
        del self._done[warp]
        self._due[self._now + 2].append(("end", warp))
        self.seen.ends.append((self._now, warp, block))
