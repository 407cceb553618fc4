"""Which blocks of each row are undistributed (PLACE-7, ASID-25)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, MemoryData
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.work.records import BLOCK_COUNT_BITS, coordinates

__all__ = ["Numbering"]


class Numbering(wiring.Component):
    """Of each row how many blocks are undistributed, the next one's place in the grid, and the
    grid's size; in RAM. x counts fastest, then y, then z.

    One block per cycle, also of one row in cycles one after the other: the row is named a cycle
    ahead, and what is taken counts in the next cycle.

    What a row opens with and what becomes of it are in RAMs of their own, so that a row can open
    while a block is taken from another; `fresh` tells which counts.

    Members
    -------
    open : a row opens; none of the other events is for it.
    ahead : the row that is looked at in the next cycle.
    blocks, at, empty, last : of the row looked at, `blocks` undistributed, the first of them at
        `at`; there is none, just one.
    take : that block is distributed. change : the row has `count` undistributed blocks from now on;
        not together with `take`.
    ask, asked : a second row to look at, while `ask.valid`; its count, in the cycle after and until
        the next is asked.
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
            "change": In(data.StructLayout({"valid": 1, "count": BLOCK_COUNT_BITS})),
            "ask": In(data.StructLayout({"valid": 1, "row": config.row_bits})),
            "asked": Out(BLOCK_COUNT_BITS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._row, self._writes = Signal(self._config.row_bits), Signal()
        self._fresh = Signal(self._config.rows)
        m.d.sync += self._row.eq(self.ahead)
        m.d.comb += self._writes.eq(self.take | self.change.valid)
        self._counts(m)
        self._places(m)
        with m.If(self._writes):
            m.d.sync += self._fresh.bit_select(self._row, 1).eq(0)
        with m.If(self.open.valid):
            m.d.sync += self._fresh.bit_select(self.open.row, 1).eq(1)
        return m

    def _ram(self, m: Module, name: str, shape: data.Layout | int) -> Memory:
        m.submodules[name] = ram = Memory(
            MemoryData(shape=shape, depth=1 << self._config.row_bits, init=[])
        )
        return ram

    def _is_fresh(self, m: Module, row: Signal, enable: Signal, name: str) -> Signal:
        """Whether nothing has become of `row` since it opened; in the next cycle."""
        fresh = Signal(name=name)
        written = self._writes & (self._row == row)
        with m.If(enable):
            m.d.sync += fresh.eq(self._fresh.bit_select(row, 1) & ~written)
        return fresh

    def _counts(self, m: Module) -> None:
        opened, now = self._ram(m, "opened", BLOCK_COUNT_BITS), self._ram(m, "counts", 33)
        write_opened, write = opened.write_port(), now.write_port()
        m.d.comb += [
            write_opened.en.eq(self.open.valid),
            write_opened.addr.eq(self.open.row),
            write_opened.data.eq(self.open.blocks),
        ]
        always = Signal(init=1)
        results = []
        for name, row, enable in (
            ("ahead", self.ahead, always),
            ("ask", self.ask.row, self.ask.valid),
        ):
            first = opened.read_port(transparent_for=[write_opened])
            then = now.read_port(transparent_for=[write])
            fresh = self._is_fresh(m, row, enable, f"{name}_fresh")
            m.d.comb += [
                first.addr.eq(row),
                then.addr.eq(row),
                first.en.eq(enable),
                then.en.eq(enable),
            ]
            results.append((
                Mux(fresh, first.data, then.data[:BLOCK_COUNT_BITS]),
                ~fresh & then.data[BLOCK_COUNT_BITS],
            ))
        (blocks, empty), (asked, _) = results
        count = Signal(BLOCK_COUNT_BITS)
        m.d.comb += [
            self.blocks.eq(blocks),
            self.empty.eq(empty),
            self.last.eq(blocks == 1),
            self.asked.eq(asked),
            count.eq(Mux(self.take, blocks - 1, self.change.count)),
            write.en.eq(self._writes),
            write.addr.eq(self._row),
            write.data[:BLOCK_COUNT_BITS].eq(count),
            write.data[BLOCK_COUNT_BITS].eq(Mux(self.take, self.last, self.change.count == 0)),
        ]

    def _places(self, m: Module) -> None:
        grids = self._ram(
            m, "grids", data.StructLayout({"first": coordinates, "grid": coordinates})
        )
        places = self._ram(m, "places", coordinates)
        write_grid, write = grids.write_port(), places.write_port()
        opened = grids.read_port(transparent_for=[write_grid])
        then = places.read_port(transparent_for=[write])
        fresh = self._is_fresh(m, self.ahead, Signal(init=1, name="always_place"), "place_fresh")
        at, grid = self.at, opened.data.grid
        last_x, last_y = Signal(), Signal()
        after = Signal(coordinates)
        m.d.comb += [
            write_grid.en.eq(self.open.valid),
            write_grid.addr.eq(self.open.row),
            write_grid.data.first.eq(self.open.first),
            write_grid.data.grid.eq(self.open.grid),
            opened.addr.eq(self.ahead),
            then.addr.eq(self.ahead),
            at.eq(Mux(fresh, opened.data.first.as_value(), then.data.as_value())),
            last_x.eq(at.x + 1 == grid.x),
            last_y.eq(at.y + 1 == grid.y),
            after.x.eq(Mux(last_x, 0, at.x + 1)),
            after.y.eq(Mux(last_x, Mux(last_y, 0, at.y + 1), at.y)),
            after.z.eq(Mux(last_x & last_y, at.z + 1, at.z)),
            write.en.eq(self._writes),
            write.addr.eq(self._row),
            write.data.eq(Mux(self.take, after, at)),
        ]
