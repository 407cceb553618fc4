"""Proof of the moves of blocks between SMs (PLACE-5)."""

from dataclasses import replace
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Value

from signalbox.hw.lib.onehot import select
from signalbox.hw.placement.block_recall import BlockRecall
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    arbitrary,
)
from signalbox.tb.proofs.placement import TWO_SMS

__all__ = ["PROOFS"]

SMS = 3
PAUSE = 4
"""Number of cycles without a placement before a recall."""

LATEST = 2
"""Cycles from the answer of an SM to the move."""

PROMPT = 22
"""Maximum number of cycles from the time at which another SM has room for a block to the move of
the block. Cycles in which an SM has not answered, or not reported a block, are not counted."""


def _at_most_one(bits: Value) -> Value:
    return ~(bits & (bits - 1)).any()


class RecallProof(Proof):
    """SMs answer a recall at any time, with any block or none."""

    name = "placement.recall"
    shows = (
        "at most one block is on its way between SMs: it is sent once, two cycles after its SM has "
        "returned it, to another SM, which had room when nothing could be sent to it any more; "
        "nothing else is sent meanwhile; no SM is recalled from before it has answered"
    )
    induction = 8
    cover = 30

    masks = False

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = BlockRecall(replace(TWO_SMS, sms=SMS, sm_masks=self.masks))
        inside = Inside(dut)
        self._state = inside.machine("recall")
        self._answer = inside.signal("answer", dut.returned[0].shape())
        self._left, self._chosen = inside.signal("cycles_left"), inside.signal("chosen")
        self._source, self._second = inside.signal("source"), Const(0)
        self._fixed = self._state.ongoing("WAIT", "SEND")
        if self.masks:
            self._second = inside.signal("moves_second")
        else:
            self._fixed |= self._state.ongoing("ARRIVE")
        self._claims = dut.claim.valid | self._second
        self._inspect(inside)
        m.submodules.dut = wrap(dut)
        for name in ("room", "accepts", "heard", "open"):
            arbitrary(m, getattr(dut, name), name)
        for n in range(SMS):
            arbitrary(m, dut.waits[n], f"waits_{n}")
            arbitrary(m, dut.returned[n], f"returned_{n}")
        self._dut, self._inside = dut, inside
        self._recalls(m, dut)
        self._moves(m, dut)

    def _inspect(self, inside: Inside) -> None:
        """Get the internal signals of submodules."""

    def _recalls(self, m: Module, dut: BlockRecall) -> None:
        """Recalls: one at a time, to the SM of the claimed block, after a pause."""
        asked, paused = Signal(SMS, name="asked"), Signal(range(PAUSE + 1), name="paused")
        answers = Cat(one.valid for one in dut.returned)
        m.d.sync += [
            asked.eq((asked | dut.recall) & ~answers),
            paused.eq((paused + (paused != PAUSE)) & dut.pause.replicate(len(paused))),
        ]
        m.d.comb += [
            Assume(~(answers & ~asked).any()),
            Assert(_at_most_one(dut.recall) & _at_most_one(asked)),
            Assert(~(dut.recall & asked).any()),
            Assert(~dut.recall.any() | (dut.recall == self._source)),
            Assert(~asked.any() | (asked == self._source)),
            Assert(~(dut.recall | asked).any() | (dut.pause & self._claims)),
            Assert(~dut.recall.any() | (paused >= PAUSE)),
        ]
        pending = Cat(dut.recall.any(), asked.any(), self._answer.valid)
        fixed = self._fixed
        m.d.comb += [
            Assert(self._state.ongoing("WAIT") == pending.any()),
            Assert(_at_most_one(pending)),
            Assert(~self._state.ongoing("SETTLE") | (paused + self._left == PAUSE - 1)),
            Assert(~self._state.ongoing("WAIT", "SEND") | (paused == PAUSE)),
            Assert(_at_most_one(self._chosen) & _at_most_one(dut.owner)),
            Assert(_at_most_one(dut.move.target)),
            Assert(~dut.claim.valid | dut.owner.any()),
            Assert(~fixed | self._claims),
            Assert(~fixed | (dut.move.target.any() & ~(dut.move.target & self._source).any())),
        ]

    def _moves(self, m: Module, dut: BlockRecall) -> None:
        """Every block that is returned moves, and no other."""
        move, record = dut.move, dut.returned[0].shape()
        some, held = Signal(name="some"), Signal(record, name="held")
        since, able = Signal(range(LATEST + 2), name="since"), Signal(SMS, name="able_then")
        for n, one in enumerate(dut.returned):
            with m.If(one.valid & one.some):
                m.d.sync += [some.eq(1), held.eq(one), since.eq(1)]
                m.d.comb += [Assert(~some), Assert(self._source == 1 << n)]
        with m.If(some):
            m.d.sync += since.eq(since + 1)
        with m.If(dut.recall.any()):
            m.d.comb += Assert((able & move.target).any())
        m.d.sync += able.eq(dut.room & dut.accepts & dut.heard & ~self._source)
        with m.If(move.valid):
            m.d.sync += some.eq(0)
        m.d.comb += [
            Assert(~move.valid | some),
            Assert(~some | (since <= LATEST)),
            Assert(~some | dut.pause),
            Assert(~move.valid | (dut.pause & self._claims)),
            Assert(~move.valid | (move.source == self._source)),
            Assert(~move.valid | ~(move.source & move.target).any()),
            Assert(_at_most_one(move.target) & move.target.any() | ~move.valid),
            Cover(move.valid & move.target[2] & move.source[1]),
        ]
        told = self._answer.valid & self._answer.some
        m.d.comb += [
            Assert(some == (told | self._state.ongoing("SEND"))),
            Assert(~told | ((since == 1) & (self._answer.as_value() == held.as_value()))),
            Assert(~self._state.ongoing("SEND") | (since == LATEST)),
        ]
        with m.If(move.valid):
            m.d.comb += [Assert(move[name] == held[name]) for name in ("row", "at", "needs")]


class MaskedRecallProof(RecallProof):
    """SMs return only blocks of the claimed row. The row's mask stays the same while a block of it
    moves."""

    name = "placement.masked_recall"
    shows = (
        "a block moves only to an SM that takes blocks of its row, also if it was claimed "
        "second; no SM keeps room for both"
    )
    masks = True

    def build(self, m: Module, wrap: Wrap) -> None:
        super().build(m, wrap)
        dut, another = self._dut, self._inside.submodule("another")
        row, mask = Signal.like(dut.claim.row, name="a_row"), Signal(SMS, name="its_mask")
        with m.If(dut.open.valid & (dut.open.row == row)):
            m.d.sync += mask.eq(dut.open.disabled)
        for unit in (self._inside, self._other):
            kept = unit.submodule("masks").read_port(domain="comb")
            m.d.comb += [kept.addr.eq(row), Assert(kept.data == mask)]
        m.d.comb += [
            row.eq(AnyConst(len(row))),
            Assert(~dut.move.valid | (dut.move.row != row) | ~(dut.move.target & mask).any()),
            Cover(dut.move.valid & dut.barred[0]),
            Cover(dut.move.valid & self._second),
        ]
        claims = self._state.ongoing("SETTLE", "WAIT", "SEND")
        self._first(m, claims, row, mask)
        self._another(m, claims, row, mask, another)
        self._answers(m)

    def _inspect(self, inside: Inside) -> None:
        self._other = Inside(inside.submodule("another"))

    def _first(self, m: Module, claims: Value, row: Value, mask: Value) -> None:
        """The mask of the first block is read with the claim."""
        dut, self._opened = self._dut, Signal(name="opened")
        last, sought = Signal(dut.open.shape(), name="last_open"), Signal(name="sought")
        m.d.sync += [last.eq(dut.open), sought.eq(self._state.ongoing("SEEK"))]
        late = sought & last.valid & (last.row == dut.claim.row)
        """The row was opened while its mask was read."""
        self._opens = claims & (late | (dut.open.valid & (dut.open.row == dut.claim.row)))
        m.d.sync += self._opened.eq(claims & (self._opened | self._opens))
        fixed = self._state.ongoing("WAIT", "SEND") & ~self._second
        m.d.comb += [
            Assert(~claims | self._opened | late | (dut.claim.row != row) | (dut.barred == mask)),
            Assert(~fixed | self._opened | ~(dut.move.target & dut.barred).any()),
        ]

    def _another(self, m: Module, claims: Value, row: Value, mask: Value, another: Any) -> None:
        """The mask of the second block is read before it is claimed."""
        dut, inside = self._dut, self._other
        candidate = inside.signal("candidate", another.claim.shape())
        source, disabled = inside.signal("source"), inside.signal("disabled")
        barred, state = inside.signal("barred"), inside.machine("second")
        self._opened_second = Signal(name="opened_second")
        self._opens_second = claims & dut.open.valid & (dut.open.row == another.claim.row)
        m.d.sync += self._opened_second.eq(claims & (self._opened_second | self._opens_second))
        fixed = self._state.ongoing("WAIT", "SEND") & self._second
        first = dut.claim.valid.replicate(SMS) & ~(dut.barred | dut.owner)
        decides = state.ongoing("DECIDE") & candidate.valid & (candidate.row == row)
        m.d.comb += [
            Assert(_at_most_one(another.owner) & _at_most_one(source)),
            Assert(~another.claim.valid | another.owner.any()),
            Assert(~(state.ongoing("READ", "DECIDE") & candidate.valid) | source.any()),
            Assert(~decides | (disabled == mask)),
            Assert(~another.claim.valid | (another.claim.row != row) | (barred == mask)),
            Assert(~(another.told & first).any()),
            Assert(~fixed | another.owner.any()),
            Assert(~fixed | self._opened_second | another.claim.valid),
            Assert(~fixed | ~(dut.move.target & barred).any()),
        ]

    def _answers(self, m: Module) -> None:
        """SMs return blocks of the row for which they are asked."""
        dut, another = self._dut, self._inside.submodule("another")
        row = Mux(self._second, another.claim.row, dut.claim.row)
        opens = Mux(self._second, self._opens_second, self._opens)
        opened = Mux(self._second, self._opened_second, self._opened)
        for one in dut.returned:
            own = (one.row == row) & ~opened & ~opens
            m.d.comb += Assume(~(one.valid & one.some) | own)
        told = self._answer.valid & self._answer.some
        moves = told | self._state.ongoing("SEND")
        m.d.comb += [
            Assume(~(moves & opens)),
            Assert(~moves | ~opened),
            Assert(~told | (self._answer.row == row)),
            Assert(~self._state.ongoing("SEND") | (dut.move.row == row)),
        ]


class PromptRecallProof(RecallProof):
    """An SM reports the most urgent waiting block until the block is sent elsewhere, or the SM
    answers that it has none to return; SMs with room for it keep this room."""

    name = "placement.prompt_recall"
    shows = (
        f"the most urgent waiting block is sent to another SM at most {PROMPT} cycles after that "
        "has room for it, whatever is claimed or moves at first, not counting those in which an SM "
        "has not answered a recall, or not yet reported a block that was sent to it"
    )
    induction = 10
    cover = 32

    def build(self, m: Module, wrap: Wrap) -> None:
        super().build(m, wrap)
        own, counted = Signal(SMS, name="its_sm"), Signal(range(PROMPT + 2), name="counted")
        room, now, goes_on = self._has_room(m, own)
        ends = self._ends(own)
        m.d.sync += counted.eq(Mux(goes_on, counted, 0) + ~self._waits())
        with m.If(~now | ends):
            m.d.sync += counted.eq(0)
        m.d.comb += [
            own.eq(1 << AnyConst(range(SMS))),
            Assume(own.any()),
            Assert((counted == 0) | (counted + self._remaining(m, own, room) <= PROMPT)),
            Cover((counted == PROMPT) & ends),
        ]

    def _has_room(self, m: Module, own: Value) -> tuple[Value, Value, Value]:
        """Returns three values: SMs other than `own` that had room in the last cycle; whether SM
        `own` reports the most urgent block, and another SM has room; whether the block and the SMs
        with room in the last cycle are still the same."""
        dut = self._dut
        block, room = Signal(dut.claim.shape(), name="block"), Signal(SMS, name="has_room")
        last, before = Signal.like(block, name="last_block"), Signal(SMS, name="had_room")
        m.d.comb += [
            block.eq(select(own, [one.as_value() for one in dut.waits])),
            room.eq(dut.room & dut.accepts & dut.heard & ~own),
        ]
        m.d.sync += [last.eq(block), before.eq(room)]
        first = Cat(
            own[n] | ~one.valid | (one.level + (own > 1 << n) < block.level + 1)
            for n, one in enumerate(dut.waits)
        )
        same = block.as_value() == last.as_value()
        return before, block.valid & first.all() & room.any(), same & ~(before & ~room).any()

    def _ends(self, own: Value) -> Value:
        """Whether the block moves, or its SM answers that it has none to return."""
        move, answers = self._dut.move, self._dut.returned
        none = Cat(one.valid & ~one.some for one in answers)
        return (move.valid & (move.source == own)) | (none & own).any()

    def _waits(self) -> Value:
        """Whether an SM has not answered yet, or not reported a block that was sent to it."""
        dut, answers = self._dut, Cat(one.valid for one in self._dut.returned)
        asked = self._state.ongoing("WAIT") & ~(answers.any() | self._answer.valid)
        return asked | (self._state.ongoing("ARRIVE") & ~(dut.heard & dut.move.target).any())

    def _remaining(self, m: Module, own: Value, room: Value) -> Value:
        """Maximum number of counted cycles until the move. From the return to SEEK on, it is 10."""
        dut, left = self._dut, Signal(range(PROMPT + 1), name="remaining")
        mine = self._source == own
        able = mine & dut.claim.valid & (dut.move.target & room).any()
        remaining = {
            "SEEK": self._left + 7,
            "SETTLE": self._left + Mux(able, 3, Mux(mine, 11, 16)),
            "WAIT": Mux(mine, 2, 15) - self._answer.valid,
            "SEND": Mux(mine, 0, 13),
            "ARRIVE": self._left + 11,
        }
        m.d.comb += Assert(self._state.ongoing(*remaining))
        for state, cycles in remaining.items():
            with m.If(self._state.ongoing(state)):
                m.d.comb += left.eq(cycles)
        return left


PROOFS = [RecallProof(), MaskedRecallProof(), PromptRecallProof()]
