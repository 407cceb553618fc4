"""Undistributed blocks of each row (PLACE-7, ASID-25)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.grid_raster import GridRaster
from signalbox.hw.records.placement import BLOCK_COUNT_BITS, coordinates

__all__ = ["BlockNumbers"]

_count = data.StructLayout({"blocks": BLOCK_COUNT_BITS, "last": 1, "empty": 1})
"""Number of undistributed blocks; flags for exactly one, and for none."""


class BlockNumbers(wiring.Component):
    """Keeps, for each row, the number of undistributed blocks and the grid position of the next
    one, in RAM.

    One block per cycle, even of the same row in consecutive cycles: the row is selected one cycle
    ahead, and `take` takes effect in the next cycle. The selected row is held in registers.

    Initial and updated counts are in separate RAMs, so a row can open while a block of another one
    is taken; `fresh` selects between them.

    Members
    -------
    open : in, strobe: a row opens; no other event of this row in the same cycle. The row may be
        `ask` and `ahead` from the next cycle on, but `at` is correct only if it is `ahead` at least
        3 cycles later.
    ahead : in, `row_bits` bits: the row to be selected in the next cycle.
    blocks : out, 32 bits, registered as the next three: undistributed blocks of the selected row.
    at : out, position of the first one.
    empty : out, there is none.
    last : out, there is exactly one.
    take : in, strobe: a block is distributed.
    saved : in, with `take`: a saved block is distributed, and `at` stays.
    change : in, strobe: the selected row has `count` undistributed blocks from now on; never
        together with `take`.
    ask : in, `row_bits` bits: a second row to read.
    asked : out, 32 bits, combinational: its undistributed blocks.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "open": In(
                data.StructLayout({
                    "valid": 1,
                    "row": config.row_bits,
                    "blocks": BLOCK_COUNT_BITS,
                    "first": coordinates,
                    "grid": coordinates,
                })
            ),
            "ahead": In(config.row_bits),
            "blocks": Out(BLOCK_COUNT_BITS),
            "at": Out(coordinates),
            "empty": Out(1),
            "last": Out(1),
            "take": In(1),
            "saved": In(1),
            "change": In(data.StructLayout({"valid": 1, "count": BLOCK_COUNT_BITS})),
            "ask": In(config.row_bits),
            "asked": Out(BLOCK_COUNT_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.raster = raster = GridRaster(config)
        self._row = row = Signal(config.row_bits, name="selected")
        self._fresh = fresh = Signal(config.rows, name="is_fresh")
        writes = Signal()
        m.d.sync += row.eq(self.ahead)
        m.d.comb += [
            writes.eq(self.take | self.change.valid),
            [raster.open[name].eq(self.open[name]) for name in ("valid", "row", "first", "grid")],
            raster.fresh.eq(fresh.bit_select(self.ahead, 1)),
            raster.ahead.eq(self.ahead),
            raster.take.eq(self.take & ~self.saved),
            raster.keep.eq(self.change.valid | (self.take & self.saved)),
            self.at.eq(raster.at),
        ]
        with m.If(writes):
            m.d.sync += fresh.bit_select(row, 1).eq(0)
        with m.If(self.open.valid):
            m.d.sync += fresh.bit_select(self.open.row, 1).eq(1)
        self._counts(m, writes)
        return m

    def _counts(self, m: Module, writes: Signal) -> None:
        row, fresh, depth = self._row, self._fresh, 1 << self._config.row_bits
        m.submodules.opened = opened = Memory(shape=_count, depth=depth, init=[])
        m.submodules.counts = counts = Memory(shape=_count, depth=depth, init=[])
        write_opened, write = opened.write_port(), counts.write_port()
        found = []
        for asked in (self.ahead, self.ask):
            first, then = (ram.read_port(domain="comb") for ram in (opened, counts))
            m.d.comb += [first.addr.eq(asked), then.addr.eq(asked)]
            one = Mux(fresh.bit_select(asked, 1), first.data.as_value(), then.data.as_value())
            found.append(one)
        now, then = Signal(_count, name="now"), Signal(_count, name="then")
        stale = Signal()
        self._count(m, now, then)
        m.d.comb += [
            write_opened.en.eq(self.open.valid),
            write_opened.addr.eq(self.open.row),
            write_opened.data.blocks.eq(self.open.blocks),
            write_opened.data.last.eq(self.open.blocks == 1),
            write_opened.data.empty.eq(self.open.blocks == 0),
            write.en.eq(writes),
            write.addr.eq(row),
            write.data.eq(then),
            self.blocks.eq(now.blocks),
            self.empty.eq(now.empty),
            self.last.eq(now.last),
            self.asked.eq(data.View(_count, found[1]).blocks),
        ]
        m.d.sync += stale.eq(self.open.valid & (self.open.row == self.ahead))
        with m.If((self.ahead != row) | stale):
            m.d.sync += now.eq(found[0])
        with m.Elif(writes):
            m.d.sync += now.eq(then)

    def _count(self, m: Module, now: data.View, then: data.View) -> None:
        """Next count. Selected by `change`, which is known earlier than `take`."""
        count = self.change.count
        with m.If(self.change.valid):
            m.d.comb += [then.blocks.eq(count), then.last.eq(count == 1), then.empty.eq(count == 0)]
        with m.Else():
            m.d.comb += [
                then.blocks.eq(now.blocks - 1),
                then.last.eq(now.blocks == 2),
                then.empty.eq(now.last),
            ]
