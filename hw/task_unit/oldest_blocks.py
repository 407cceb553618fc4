"""Oldest unfinished block of each queue (ASID-26)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest_number
from signalbox.hw.records.placement import ended_block
from signalbox.hw.task_unit.slot_table import row_choice

__all__ = ["OldestBlocks", "row_block"]


def row_block(config: Config) -> data.StructLayout:
    """Strobe with a block of a row."""
    return data.StructLayout({"valid": 1, **ended_block(config).members})


class OldestBlocks(wiring.Component):
    """Follows the oldest unfinished block of each row with a queue; blocks end in any order. Only
    the first `Config.queue_window` blocks from the oldest one on may be placed.

    The blocks of a row have consecutive positions, modulo two windows; a new queue of the row
    continues behind the last one. A bit in RAM, at the position modulo the window, tells whether
    the block has ended: 1 means so in the first window, 0 in the second. So bits are not cleared
    for the next window or the next queue. With preemption, saved blocks of a killed queue are
    dropped, and never end. So after a kill the bits of the row are cleared, one per cycle in which
    no bit is set or about to be.

    Rows are looked at in turn, from their oldest block on, one block per cycle. A look takes 5
    cycles, plus one for each block passed, plus the time until `moved` is taken; a row with no new
    ended block is passed in one cycle.

    Members
    -------
    begin : in, strobe: the row begins or continues a queue at this block; all earlier blocks of the
        queue have ended.
    close : in, strobe: the row has no queue any more; `drops`: some of its blocks may not have
        ended.
    ended : in, strobe: a block has ended; those of rows without queues are ignored.
    moved : out, the oldest unfinished block of a row has advanced to this one. Holds until `take`,
        or until `begin` or `close` of the row.
    take : in, strobe: `moved` is taken.
    clears : out, per row: its bits are being cleared; no queue may begin there.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_block(config)
        super().__init__({
            "begin": In(event),
            "close": In(data.StructLayout({**row_choice(config).members, "drops": 1})),
            "ended": In(event),
            "moved": Out(event),
            "take": In(1),
            "clears": Out(config.rows),
        })
        number, rows = config.number_bits, 1 << config.row_bits
        self._counts, self._bases, self._oldest = (
            Memory(shape=number, depth=rows, init=[]) for _ in range(3)
        )
        """Per row: blocks ended, position of block 0, position of the oldest unfinished block."""
        self._bits = Memory(shape=1, depth=config.rows * config.queue_window, init=[])
        self._row = Signal(config.row_bits, name="looked_at")
        self._at = Signal(number, name="position")
        self._looks = Signal(config.rows, name="to_look_at")
        """Rows with a block that has ended since they were looked at."""
        self._follows = Signal(config.rows, name="has_queue")
        self._counted, self._marks = Signal(name="counts"), Signal(name="marks")
        """`_counted`: a block ends. `_marks`: the bit of a block that ended a cycle ago is set."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.counts, m.submodules.bases = self._counts, self._bases
        m.submodules.oldest, m.submodules.bits = self._oldest, self._bits
        start = self._begin(m)
        self._look(m, start)
        self._end(m)
        for event in (self.begin, self.close):
            with m.If(event.valid):
                m.d.sync += self._looks.bit_select(event.row, 1).eq(0)
        return m

    def _begin(self, m: Module) -> Signal:
        """The next block of the row has the first unused position, which is returned."""
        begin, start = self.begin, Signal(self._config.number_bits, name="start")
        count, base = self._counts.read_port(domain="comb"), self._bases.write_port()
        m.d.comb += [
            count.addr.eq(begin.row),
            start.eq(count.data),
            base.en.eq(begin.valid),
            base.addr.eq(begin.row),
            base.data.eq(start - begin.number),
        ]
        return start

    def _end(self, m: Module) -> None:
        """Count an ended block, and set its bit one cycle later."""
        ended, follows, counts, marks = self.ended, self._follows, self._counted, self._marks
        clear, index, cleared = self._clear(m)
        row, position = Signal.like(ended.row, name="ended_in"), Signal.like(self._at, name="mark")
        count, base = (ram.read_port(domain="comb") for ram in (self._counts, self._bases))
        write_count, write = self._counts.write_port(), self._bits.write_port()
        m.d.comb += [
            counts.eq(ended.valid & follows.bit_select(ended.row, 1)),
            count.addr.eq(ended.row),
            write_count.en.eq(counts | clear),
            write_count.addr.eq(Mux(counts, ended.row, cleared)),
            write_count.data.eq(Mux(counts, count.data + 1, 0)),
            base.addr.eq(ended.row),
            write.en.eq(marks | clear),
            write.addr.eq(Mux(marks, Cat(position[:-1], row), Cat(index, cleared))),
            write.data.eq(marks & ~position[-1]),
        ]
        m.d.sync += [marks.eq(counts), row.eq(ended.row), position.eq(ended.number + base.data)]
        with m.If(marks):
            m.d.sync += self._looks.bit_select(row, 1).eq(1)
        with m.If(self.close.valid):
            m.d.sync += follows.bit_select(self.close.row, 1).eq(0)
        with m.If(self.begin.valid):
            m.d.sync += follows.bit_select(self.begin.row, 1).eq(1)

    def _clear(self, m: Module) -> tuple[Value, Value, Value]:
        """Clear rows, one after the other. Returns whether a bit is cleared, and the count set to
        0, in this cycle; the index of the bit; the row."""
        if not self._config.preemption:
            return Const(0), Const(0), Const(0)
        close, clears = self.close, self.clears
        some, first = lowest_number(m, clears)
        row = Signal(self._config.row_bits, name="cleared_row")
        index = Signal(range(self._config.queue_window), name="cleared_bit")
        clearing, clear = Signal(name="clearing"), Signal(name="clear")
        m.d.comb += clear.eq(clearing & ~(self._counted | self._marks))
        with m.If(~clearing):
            m.d.sync += [clearing.eq(some & clears.bit_select(first, 1)), row.eq(first)]
        with m.If(clear):
            m.d.sync += index.eq(index + 1)
            with m.If(index.all()):
                m.d.sync += [clearing.eq(0), clears.bit_select(row, 1).eq(0)]
        with m.If(close.valid & close.drops & self._follows.bit_select(close.row, 1)):
            m.d.sync += clears.bit_select(close.row, 1).eq(1)
        return clear, index, row

    def _look(self, m: Module, start: Signal) -> None:
        """Look at one row after the other."""
        row, moved = self._row, self.moved
        loads, passes, keeps = (Signal(name=name) for name in ("loads", "passes", "keeps"))
        leaves, some = Signal(name="leaves"), Signal(name="some_passed")
        m.d.comb += leaves.eq(
            (self.begin.valid & (self.begin.row == row))
            | (self.close.valid & (self.close.row == row))
        )
        ended = self._read(m, loads, passes)
        self._keep(m, start, keeps)
        with m.FSM(name="look"):
            with m.State("SEEK"):
                with m.If(~self._looks.bit_select(row, 1)):
                    self._next(m)
                with m.Elif(~leaves):
                    m.d.sync += self._looks.bit_select(row, 1).eq(0)
                    m.next = "LOAD"
            with m.State("LOAD"):
                m.d.comb += loads.eq(1)
                m.d.sync += some.eq(0)
                m.next = "STEP"
                with m.If(leaves):
                    m.next = "SEEK"
            with m.State("STEP"):
                m.d.comb += passes.eq(ended)
                m.d.sync += some.eq(some | ended)
                with m.If(leaves):
                    m.next = "SEEK"
                with m.Elif(~ended & some):
                    m.next = "KEEP"
                with m.Elif(~ended):
                    self._next(m)
            with m.State("KEEP"):
                m.d.comb += keeps.eq(~self.begin.valid)
                m.d.sync += moved.valid.eq(keeps & ~leaves)
                with m.If(leaves):
                    m.next = "SEEK"
                with m.Elif(keeps):
                    m.next = "TELL"
            with m.State("TELL"):
                with m.If(leaves | self.take):
                    m.d.sync += moved.valid.eq(0)
                    m.next = "SEEK"

    def _next(self, m: Module) -> None:
        """Go on to the next row."""
        last = self._row == self._config.rows - 1
        m.d.sync += self._row.eq(Mux(last, 0, self._row + 1))
        m.next = "SEEK"

    def _read(self, m: Module, loads: Signal, passes: Signal) -> Signal:
        """Returns whether the block at the position has ended. The next position is read ahead."""
        ended, ask = Signal(name="has_ended"), Signal.like(self._at, name="asked")
        oldest, bit = self._oldest.read_port(domain="comb"), self._bits.read_port()
        m.d.comb += [
            oldest.addr.eq(self._row),
            ask.eq(Mux(loads, oldest.data, self._at + 1)),
            bit.addr.eq(Cat(ask[:-1], self._row)),
            ended.eq(bit.data ^ self._at[-1]),
        ]
        with m.If(loads | passes):
            m.d.sync += self._at.eq(ask)
        return ended

    def _keep(self, m: Module, start: Signal, keeps: Signal) -> None:
        """Keep the position of the oldest block, and give its number."""
        begin, moved = self.begin, self.moved
        write, base = self._oldest.write_port(), self._bases.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(begin.valid | keeps),
            write.addr.eq(Mux(begin.valid, begin.row, self._row)),
            write.data.eq(Mux(begin.valid, start, self._at)),
            base.addr.eq(self._row),
        ]
        with m.If(keeps):
            m.d.sync += [moved.row.eq(self._row), moved.number.eq(self._at - base.data)]
