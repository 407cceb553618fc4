"""What the task unit asks of the kernel status register table, one thing after another."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.records.placement import (
    BLOCK_COUNT_BITS,
    coordinates,
    kernel_open,
    row_blocks,
    row_left,
)

__all__ = ["Requests"]


class Requests(wiring.Component):
    """Takes one request per cycle: close before open before stop before add; of these two none in
    the cycle after an `open`.

    `open` and `close` take one cycle, and decisions go on. `stop` and `add` take three cycles, in
    which no block is placed: all decisions are dropped, so that nothing of the row is under way,
    and its count is read and written. `stopped` is valid 3 cycles after `stop` was taken; until it
    is taken, no other `stop` is.

    Members
    -------
    open, add, stop, stopped, close : see `GlobalPort`.
    opens : a row opens, as `open` says. fills : it is filled, or will be. closes : it closes.
    refills, empties : its blocks were added; were taken away.
    holds : decisions are to be dropped, and none to begin, in the next cycle.
    reads : the row to be looked at in the next cycle; then it has `blocks` undistributed, the first
        at `at`. change : it has as many from now on.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_event(config)
        super().__init__({
            "open": In(stream.Signature(kernel_open(config))),
            "add": In(stream.Signature(row_blocks(config))),
            "stop": In(stream.Signature(config.row_bits)),
            "stopped": Out(stream.Signature(row_left(config))),
            "close": In(stream.Signature(config.row_bits)),
            "opens": Out(1),
            "fills": Out(event),
            "closes": Out(event),
            "refills": Out(event),
            "empties": Out(event),
            "holds": Out(1),
            "reads": Out(event),
            "blocks": In(BLOCK_COUNT_BITS),
            "at": In(coordinates),
            "change": Out(data.StructLayout({"valid": 1, "count": BLOCK_COUNT_BITS})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(row_blocks(self._config), name="held")
        stops, begins = Signal(name="stops"), Signal(name="begins")
        with m.FSM(name="state"):
            with m.State("TAKE"):
                self._take(m, held, stops, begins)
                with m.If(begins):
                    m.d.comb += self.holds.eq(1)
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += [self.holds.eq(1), self.reads.valid.eq(1), self.reads.row.eq(held.row)]
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    self.holds.eq(1),
                    self.change.valid.eq(1),
                    self.change.count.eq(Mux(stops, 0, self.blocks + held.blocks)),
                    self.empties.valid.eq(stops),
                    self.refills.valid.eq(~stops),
                ]
                m.next = "TAKE"
        m.d.comb += [self.empties.row.eq(held.row), self.refills.row.eq(held.row)]
        with m.If(self.change.valid & stops):
            m.d.sync += [
                self.stopped.valid.eq(1),
                self.stopped.p.row.eq(held.row),
                self.stopped.p.blocks.eq(self.blocks),
                self.stopped.p.next.eq(self.at),
            ]
        with m.Elif(self.stopped.ready):
            m.d.sync += self.stopped.valid.eq(0)
        return m

    def _take(self, m: Module, held: data.View, stops: Signal, begins: Signal) -> None:
        """Take one request."""
        # The place of what has just opened is not in RAM yet when it is looked at.
        opened, looks = Signal(), Signal()
        m.d.sync += opened.eq(self.opens)
        m.d.comb += [
            self.close.ready.eq(1),
            self.open.ready.eq(~self.close.valid),
            looks.eq(~self.close.valid & ~self.open.valid & ~opened),
            self.stop.ready.eq(looks & ~self.stopped.valid),
            self.add.ready.eq(looks & ~(self.stop.valid & self.stop.ready)),
            self.closes.valid.eq(self.close.valid),
            self.closes.row.eq(self.close.payload),
            self.opens.eq(self.open.valid & self.open.ready),
            self.fills.valid.eq(self.opens | (self.add.valid & self.add.ready)),
            self.fills.row.eq(Mux(self.opens, self.open.p.row, self.add.p.row)),
            begins.eq((self.stop.valid & self.stop.ready) | (self.add.valid & self.add.ready)),
        ]
        m.d.sync += [
            stops.eq(self.stop.ready & self.stop.valid),
            held.row.eq(Mux(self.stop.ready & self.stop.valid, self.stop.payload, self.add.p.row)),
            held.blocks.eq(self.add.p.blocks),
        ]
