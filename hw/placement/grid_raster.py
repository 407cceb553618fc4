"""Grid position of the next block of each row (PLACE-7, ASID-25)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.placement.row_order import row_event
from signalbox.hw.records.placement import coordinates

__all__ = ["GridRaster"]

_place = data.StructLayout({"at": coordinates, "last_x": 1, "last_y": 1})
"""A position. `last_x`: the last one of its line. `last_y`: its line is the last one of its
plane."""

_grid = data.StructLayout({"before_x": 32, "before_y": 16, "one_x": 1, "one_y": 1})
"""`before_x`: second to last position of a line. `before_y`: second to last line of a plane.
`one_x`, `one_y`: there is only one."""


class GridRaster(wiring.Component):
    """Keeps the grid position of the next block of each row, in RAM. x varies fastest, then y, then
    z.

    One step per cycle, even of the same row in consecutive cycles: the selected row is held in
    registers, and its successor follows from comparisons made one step ahead.

    Members
    -------
    open : in, strobe: a row opens at `first`; it can be `ahead` 3 cycles later.
    fresh : in, the row `ahead` has not been updated since it opened.
    ahead : in, `row_bits` bits: the row to be selected in the next cycle.
    at : out, registered: position of the selected row.
    take : in, strobe: advance to the next position from the next cycle on.
    keep : in, strobe: the count of the row changes, but not its position.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        event = row_event(config)
        super().__init__({
            "open": In(
                data.StructLayout({**event.members, "first": coordinates, "grid": coordinates})
            ),
            "fresh": In(1),
            "ahead": In(config.row_bits),
            "at": Out(coordinates),
            "take": In(1),
            "keep": In(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = data.StructLayout({"place": _place, "grid": _grid})
        m.submodules.opened = opened = self._memory(rows)
        m.submodules.places = places = self._memory(_place)
        write_opened = opened.write_port()
        self._open(m, write_opened)
        first, then = opened.read_port(domain="comb"), places.read_port(domain="comb")
        row = Signal(self._config.row_bits)
        stale = Signal(name="stale")
        now, after = Signal(_place, name="now"), Signal(_place, name="after")
        grid = Signal(_grid)
        m.d.comb += [
            first.addr.eq(self.ahead),
            then.addr.eq(self.ahead),
            self.at.eq(now.at),
        ]
        self._step(m, now, grid, after)
        m.d.sync += [
            row.eq(self.ahead),
            stale.eq(write_opened.en & (write_opened.addr == self.ahead)),
        ]
        with m.If((self.ahead != row) | stale):
            m.d.sync += [
                now.eq(Mux(self.fresh, first.data.place.as_value(), then.data.as_value())),
                grid.eq(first.data.grid),
            ]
        with m.Elif(self.take):
            m.d.sync += now.eq(after)
        write = places.write_port()
        m.d.comb += [
            write.en.eq(self.take | self.keep),
            write.addr.eq(row),
            write.data.eq(Mux(self.keep, now, after)),
        ]
        return m

    def _memory(self, shape: data.Layout) -> Memory:
        return Memory(shape=shape, depth=1 << self._config.row_bits, init=[])

    def _open(self, m: Module, write: data.View) -> None:
        """Precompute the comparison values, in two steps."""
        step = Signal(self.open.shape())
        final = Signal(coordinates)
        m.d.sync += [
            step.eq(self.open),
            final.x.eq(self.open.grid.x - 1),
            final.y.eq(self.open.grid.y - 1),
            write.en.eq(step.valid),
            write.addr.eq(step.row),
            write.data.place.at.eq(step.first),
            write.data.place.last_x.eq(step.first.x == final.x),
            write.data.place.last_y.eq(step.first.y == final.y),
            write.data.grid.before_x.eq(final.x - 1),
            write.data.grid.before_y.eq(final.y - 1),
            write.data.grid.one_x.eq(final.x == 0),
            write.data.grid.one_y.eq(final.y == 0),
        ]

    def _step(self, m: Module, now: data.View, grid: data.View, after: data.View) -> None:
        """The position after `now`."""
        at = now.at
        m.d.comb += [
            after.at.x.eq(Mux(now.last_x, 0, at.x + 1)),
            after.last_x.eq(Mux(now.last_x, grid.one_x, at.x == grid.before_x)),
            after.at.y.eq(at.y),
            after.last_y.eq(now.last_y),
            after.at.z.eq(at.z + (now.last_x & now.last_y)),
        ]
        with m.If(now.last_x):
            m.d.comb += [
                after.at.y.eq(Mux(now.last_y, 0, at.y + 1)),
                after.last_y.eq(Mux(now.last_y, grid.one_y, at.y == grid.before_y)),
            ]
