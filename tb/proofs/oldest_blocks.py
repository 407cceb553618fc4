"""Proof of the oldest unfinished blocks of queues (ASID-26)."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Cat

from signalbox.hw.config import Config
from signalbox.hw.task_unit.oldest_blocks import OldestBlocks
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    arbitrary,
)

__all__ = ["PROOFS"]

CONFIG = Config(slots=4, spare_rows=1, sms=1, queue_window=4, save_places=1)
WINDOW = CONFIG.queue_window


class OldestBlocksProof(Proof):
    """For any row, chosen by the solver, with a window of four. Blocks of the row are placed and
    end in any order. The row begins only when all blocks have ended, in the cycle after an end at
    the earliest. It closes under the same condition, or drops its unfinished blocks as it closes.
    `told` is the position of the oldest unfinished block that was last taken."""

    name = "task_unit.oldest_blocks"
    shows = (
        "each block told of a row with a queue is later than the one before, and all earlier ones "
        "have ended, also after a queue whose blocks were dropped; when nothing is to be told or "
        "looked at, the oldest one has not ended"
    )
    induction = 2
    cover = 14

    def build(self, m: Module, wrap: Wrap) -> None:
        self._dut = dut = OldestBlocks(CONFIG)
        self._inside = inside = Inside(dut)
        self._state = inside.machine("look")
        self._row = row = Signal(CONFIG.row_bits, name="row")
        self._rams = {
            name: inside.submodule(name).read_port(domain="comb")
            for name in ("counts", "bases", "oldest")
        }
        self._bits = [inside.submodule("bits").read_port(domain="comb") for _ in range(WINDOW)]
        m.submodules.dut = wrap(dut)
        for name in ("begin", "close", "ended", "take"):
            arbitrary(m, getattr(dut, name), name)
        m.d.comb += [row.eq(AnyConst(CONFIG.row_bits)), Assume(row < CONFIG.rows)]
        m.d.comb += [port.addr.eq(row) for port in self._rams.values()]
        bits = CONFIG.number_bits
        self._open, self._told = Signal(name="is_open"), Signal(bits, name="told")
        self._base, self._placed = Signal(bits, name="base"), Signal(WINDOW, name="placed")
        """`_placed`, `_over` : of the blocks from `told` on, those that were placed, and those that
        have ended."""
        self._over = Signal(WINDOW, name="over")
        self._cleared = Signal(name="was_cleared")
        self._follow(m)
        self._tables(m)
        self._look(m)

    def _mine(self, event: Value) -> Value:
        return event.valid & (event.row == self._row)

    def _follow(self, m: Module) -> None:
        """Blocks of the row."""
        dut, told, placed, over = self._dut, self._told, self._placed, self._over
        begins, closes = self._mine(dut.begin), self._mine(dut.close)
        takes = dut.take & self._mine(dut.moved)
        ends = self._mine(dut.ended) & self._open
        number = (told - self._base)[: len(told)]
        passed = (dut.moved.number - number)[: len(told)]
        which = (dut.ended.number - number)[: len(told)]
        places, now = anything(m, 1, "places"), Signal(WINDOW, name="placed_now")
        ended = Signal(WINDOW, name="over_now")
        one = (1 << which)[:WINDOW]
        marks = self._inside.signal("marks") & (self._inside.signal("ended_in") == self._row)
        mark = (self._inside.signal("mark") - told)[: len(told)]
        self._marks, self._mark = marks, mark
        self._seen = Signal(WINDOW, name="over_and_seen")
        drops = closes & dut.close.drops
        self._clears = dut.clears.bit_select(self._row, 1)
        changes = begins | closes
        m.d.comb += [
            now.eq(Mux(places & self._open, Cat(1, placed[:-1]), placed)),
            ended.eq(Mux(ends, over | one, over)),
            self._seen.eq(Mux(marks, over & ~(1 << mark)[:WINDOW], over)),
            Assume(~ends | ((which < WINDOW) & ((placed & ~over & one) != 0))),
            Assume(~changes | (((placed == over) | drops) & ~marks & ~ends & ~takes)),
            Assume(~begins | ~self._clears),
            Cover(begins & self._cleared),
            Assume(~closes | self._open),
            Assume(~(begins & closes)),
            Assume(~dut.take | dut.moved.valid),
            # Rows are in range.
            Assume(dut.begin.row < CONFIG.rows),
            Assume(dut.close.row < CONFIG.rows),
            Assume(dut.ended.row < CONFIG.rows),
        ]
        with m.If(self._mine(dut.moved)):
            m.d.comb += [
                Assert(self._open),
                Assert((passed != 0) & (passed <= WINDOW)),
                Assert((over | ~((1 << passed) - 1)[:WINDOW]).all()),
                Cover(passed == 3),
            ]
        m.d.sync += [placed.eq(now), over.eq(ended)]
        with m.If(takes):
            m.d.sync += [
                told.eq(told + passed),
                placed.eq(now >> passed),
                over.eq(ended >> passed),
            ]
        with m.If(changes):
            m.d.sync += [
                told.eq(told + sum(over)),
                placed.eq(0),
                over.eq(0),
                self._open.eq(begins),
            ]
        with m.If(drops):
            m.d.sync += [told.eq(0), self._cleared.eq(1)]
        with m.If(begins):
            m.d.sync += self._base.eq(told + sum(over) - dut.begin.number)

    def _tables(self, m: Module) -> None:
        """Contents of the tables for the row."""
        told, placed, over, seen = self._told, self._placed, self._over, self._seen
        count, base = self._rams["counts"].data, self._rams["bases"].data
        follows = self._inside.signal("has_queue").bit_select(self._row, 1)
        clears, index = self._clears, self._inside.signal("cleared_bit")
        row_cleared, clearing = self._inside.signal("cleared_row"), self._inside.signal("clearing")
        here = clearing & (row_cleared == self._row)
        progress = Signal.like(index, name="progress")
        m.d.comb += progress.eq(Mux(here, index, 0))
        m.d.comb += [
            Assert((placed & (placed + 1)[:WINDOW]) == 0),
            Assert((over & ~placed) == 0),
            Assert((clears & (progress == 0)) | (count == (told + sum(over))[: len(told)])),
            Assert(~clears | (~self._open & (told == 0))),
            Assert(~here | clears),
            Assert(clearing | (index == 0)),
            Assert(~clearing | (row_cleared < CONFIG.rows)),
            Assert(follows == self._open),
            Assert(self._open | (placed == 0)),
            Assert(~self._open | (base == self._base)),
            Assert(~self._marks | ((self._mark < WINDOW) & (over & (1 << self._mark)).any())),
            Assert(~self._marks | self._open),
        ]
        for number, bit in enumerate(self._bits):
            at = Signal.like(told, name=f"at_{number}")
            m.d.comb += [
                at.eq(told + number),
                bit.addr.eq(Cat(at[:-1], self._row)),
                Assert((clears & (number >= progress)) | ((bit.data ^ at[-1]) == seen[number])),
            ]

    def _look(self, m: Module) -> None:
        """The look at the row."""
        dut, inside, told, seen = self._dut, self._inside, self._told, self._seen
        looked = inside.signal("looked_at")
        here, some = looked == self._row, inside.signal("some_passed")
        looks = inside.signal("to_look_at").bit_select(self._row, 1)
        position, ended = inside.signal("position"), inside.signal("has_ended")
        oldest = self._rams["oldest"].data
        passed = (position - told)[: len(told)]
        before = ((1 << passed) - 1)[:WINDOW]
        walks = here & self._state.ongoing("STEP", "KEEP", "TELL")
        at = (seen & (1 << passed)[:WINDOW]).any()
        rests = (
            ~(here & self._state.ongoing("LOAD", "STEP", "KEEP", "TELL")) & ~looks & ~self._marks
        )
        m.d.comb += [
            Assert(self._state.ongoing("SEEK", "LOAD", "STEP", "KEEP", "TELL")),
            Assert(looked < CONFIG.rows),
            Assert(~dut.moved.valid | self._state.ongoing("TELL")),
            Assert(~self._state.ongoing("TELL") | (dut.moved.valid & (dut.moved.row == looked))),
            Assert(self._open | ~(looks | (here & ~self._state.ongoing("SEEK")))),
            Assert(
                ~self._open | (oldest == Mux(here & self._state.ongoing("TELL"), position, told))
            ),
            Assert(~self._open | ~rests | ~seen[0]),
        ]
        with m.If(walks):
            m.d.comb += [
                Assert(passed <= WINDOW),
                Assert((seen | ~before).all()),
                Assert(self._state.ongoing("STEP") | (passed != 0)),
                Assert((passed != 0) == some),
            ]
        with m.If(here & self._state.ongoing("STEP")):
            m.d.comb += [
                Assert(~ended | at),
                Assert(ended | ~at | looks),
            ]
        with m.If(here & self._state.ongoing("KEEP", "TELL")):
            m.d.comb += Assert(~at | looks | self._marks)
        with m.If(here & self._state.ongoing("TELL")):
            m.d.comb += Assert(dut.moved.number == (position - self._base)[: len(told)])


PROOFS = [OldestBlocksProof()]
