"""Requests of the task unit to the kernel status register table."""

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

__all__ = ["RowRequests"]


class RowRequests(wiring.Component):
    """Executes requests of the task unit on rows. Accepts one per cycle; priority: close, open,
    stop, add. `stop` and `add` are not accepted in the cycle after an `open`.

    `open` and `close` take one cycle; decisions continue. `stop` and `add` take three cycles
    without placement: all decisions are dropped, so that no block of the row is in flight, and the
    row's count is read and written. `stopped` is valid 3 cycles after `stop` is accepted; until it
    is taken, no other `stop` is accepted.

    Members
    -------
    open : in, stream of `kernel_open`: open a free row.
    add : in, stream of `row_blocks`: add blocks to an open row.
    stop : in, stream of rows: withdraw all undistributed blocks; answered by `stopped`.
    drops : in, with `stop`: withdraw saved blocks, too.
    stopped : out, stream of `row_left`: the blocks withdrawn.
    close : in, stream of rows: free a drained row.
    opens : out, strobe: a row opens, with the payload of `open`.
    fills : out, strobe: a row has undistributed blocks now, or will have them.
    closes : out, strobe: a row closes.
    refills : out, strobe: blocks were added to a row.
    empties : out, strobe: all undistributed blocks of a row were withdrawn.
    drop : out, strobe: the saved blocks were withdrawn, too.
    holds : out, all decisions are dropped in the next cycle, and none is issued.
    reads : out, the row to be selected in the next cycle.
    busy : in, no row may open, stop or close: `blocks` and `saved` may disagree.
    blocks : in, 32 bits: undistributed blocks of the selected row.
    saved : in, 0 … `save_places`: number of these that are saved.
    at : in, position of the first block that is not saved.
    change : out, strobe: the new count of the selected row.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_event(config)
        super().__init__({
            "open": In(stream.Signature(kernel_open(config))),
            "add": In(stream.Signature(row_blocks(config))),
            "stop": In(stream.Signature(config.row_bits)),
            "drops": In(1),
            "stopped": Out(stream.Signature(row_left(config))),
            "close": In(stream.Signature(config.row_bits)),
            "opens": Out(1),
            "fills": Out(event),
            "closes": Out(event),
            "refills": Out(event),
            "empties": Out(event),
            "drop": Out(event),
            "holds": Out(1),
            "reads": Out(event),
            "busy": In(1),
            "blocks": In(BLOCK_COUNT_BITS),
            "saved": In(range(config.save_places + 1)),
            "at": In(coordinates),
            "change": Out(data.StructLayout({"valid": 1, "count": BLOCK_COUNT_BITS})),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(row_blocks(self._config), name="held")
        stops, begins = Signal(name="stops"), Signal(name="begins")
        self._drops = drops = Signal(name="drops")
        kept = Mux(drops, 0, self.saved)
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
                    self.change.count.eq(Mux(stops, kept, self.blocks + held.blocks)),
                    self.empties.valid.eq(stops & (kept == 0)),
                    self.drop.valid.eq(stops & drops),
                    self.refills.valid.eq(~stops),
                ]
                m.next = "TAKE"
        m.d.comb += [one.row.eq(held.row) for one in (self.empties, self.refills, self.drop)]
        with m.If(self.change.valid & stops):
            m.d.sync += [
                self.stopped.valid.eq(1),
                self.stopped.p.row.eq(held.row),
                self.stopped.p.blocks.eq(self.blocks - self.saved),
                self.stopped.p.next.eq(self.at),
            ]
        with m.Elif(self.stopped.ready):
            m.d.sync += self.stopped.valid.eq(0)
        return m

    def _take(self, m: Module, held: data.View, stops: Signal, begins: Signal) -> None:
        """Accept one request."""
        # The position of a row just opened is not in RAM yet.
        opened = Signal()
        looks = Signal()
        m.d.sync += opened.eq(self.opens)
        m.d.comb += [
            self.close.ready.eq(~self.busy),
            self.open.ready.eq(~self.close.valid & ~self.busy),
            looks.eq(~(self.closes.valid | self.opens | opened)),
            self.stop.ready.eq(looks & ~self.stopped.valid & ~self.busy),
            self.add.ready.eq(looks & ~(self.stop.valid & self.stop.ready)),
            self.closes.valid.eq(self.close.valid & self.close.ready),
            self.closes.row.eq(self.close.payload),
            self.opens.eq(self.open.valid & self.open.ready),
            self.fills.valid.eq(self.opens | (self.add.valid & self.add.ready)),
            self.fills.row.eq(Mux(self.opens, self.open.p.row, self.add.p.row)),
            begins.eq((self.stop.valid & self.stop.ready) | (self.add.valid & self.add.ready)),
        ]
        m.d.sync += [
            stops.eq(self.stop.ready & self.stop.valid),
            self._drops.eq(self.drops),
            held.row.eq(Mux(self.stop.ready & self.stop.valid, self.stop.payload, self.add.p.row)),
            held.blocks.eq(self.add.p.blocks),
        ]
