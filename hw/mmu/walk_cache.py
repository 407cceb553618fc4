"""Walk cache: the PD0 table, or the 512 MiB page, of recently walked regions (ASID-4, HOST-17)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import lowest, select
from signalbox.hw.mmu.page_table_entry import region_page
from signalbox.hw.mmu.plru import TreePlru
from signalbox.hw.mmu.records import PAGE_BITS, VPN_BITS, Scope, invalidation, touches
from signalbox.hw.page_tables import DIRECTORIES

__all__ = ["WalkCache", "cached_region"]

_REGION = DIRECTORIES[2].shift - PAGE_BITS
"""Page-number bits within the region of one PD0 table."""


def cached_region(config: Config) -> data.StructLayout:
    """An entry. `table`: address of the region's PD0 table, without its low bits, which are 0; with
    `whole` the region is one page, and `table` its `region_page`."""
    return data.StructLayout({
        "valid": 1,
        "asid": config.asid_bits,
        "region": VPN_BITS - _REGION,
        "whole": 1,
        "table": region_page(config).size,
    })


class WalkCache(wiring.Component):
    """Caches the PD0 table, or the 512 MiB page, of each region. Fully associative; latency 1
    cycle.

    Replaces an invalid entry, else the pseudo least recently used one (`TreePlru`). An invalidation
    takes effect in the next cycle; the invalidation of a page also removes the entry of its region.
    In the cycle of an invalidation nothing is filled, and a pending fill is dropped.

    A fill takes 3 cycles, plus those with a look-up. Further fills are dropped meanwhile, at the
    cost of a few reads at most.

    Parameters
    ----------
    entries : 2 … 64, a power of two.

    Members
    -------
    look : in, strobe: look up the region of `vpn` in `asid`.
    asid : in, `asid_bits` bits: address space of the look-up.
    vpn : in, 37 bits: page number of the look-up.
    hit : out, the region is cached; 1 cycle after `look`.
    whole : out, with `hit`: the region is one page of 512 MiB.
    table : out, `address_width` - `TABLE_BITS` bits, with `hit`: the table or page, see
        `cached_region`.
    fill : in, strobe: the region of page `vpn` of `asid` has this `table`.
    invalidate : in, see `invalidation`.
    """

    def __init__(self, config: Config, *, entries: int) -> None:
        self._entries = entries
        self._recency = TreePlru(entries)
        page = {"asid": config.asid_bits, "vpn": VPN_BITS}
        self._row = cached_region(config)
        kept = {name: self._row[name].shape for name in ("whole", "table")}
        super().__init__({
            "look": In(1),
            "asid": In(config.asid_bits),
            "vpn": In(VPN_BITS),
            "hit": Out(1),
            **{name: Out(shape) for name, shape in kept.items()},
            "fill": In(data.StructLayout({"valid": 1, **page, **kept})),
            "invalidate": In(invalidation(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.recency = self._recency
        rows = Signal(data.ArrayLayout(self._row, self._entries))
        writes, chosen = self._fill(m, rows)
        wanted = Signal(self._entries)
        found = Signal(self._entries)
        m.d.comb += [
            wanted.eq(Cat(self._is(row, self.asid, self.vpn[_REGION:]) for row in rows)),
            self.hit.eq(found.any()),
            self.whole.eq(select(found, (row.whole for row in rows))),
            self.table.eq(select(found, (row.table for row in rows))),
            self._recency.use.eq(Mux(writes, chosen, found)),
        ]
        m.d.sync += found.eq(Mux(self.look, wanted, 0))
        event = self.invalidate
        for row in rows:
            here = (event.scope != Scope.PAGE) | (event.vpn[_REGION:] == row.region)
            with m.If(touches(event, row.asid) & here):
                m.d.sync += row.valid.eq(0)
        return m

    def _fill(self, m: Module, rows: data.View) -> tuple[Value, Value]:
        """Returns whether an entry is written, and which one."""
        event = self.invalidate
        comes = Signal(self._row)
        compared, new = Signal(name="compared"), Signal(name="new")
        same, chosen, free, place = (
            Signal(self._entries, name=name) for name in ("same", "chosen", "free", "place")
        )
        writes = Signal()
        m.d.comb += [
            free.eq(Cat(~row.valid for row in rows)),
            place.eq(Mux(free.any(), free, self._recency.oldest)),
            # A row that hit stays until its table has been read.
            writes.eq(comes.valid & new & ~self.look & ~event.valid),
        ]
        m.d.sync += [
            same.eq(Cat(self._is(row, comes.asid, comes.region) for row in rows)),
            compared.eq(comes.valid),
            new.eq(compared & ~same.any()),
            chosen.eq(lowest(place)),
        ]
        with m.If(event.valid | writes | (compared & same.any())):
            m.d.sync += [comes.valid.eq(0), compared.eq(0), new.eq(0)]
        with m.Elif(~comes.valid):
            m.d.sync += [
                comes.valid.eq(self.fill.valid),
                comes.asid.eq(self.fill.asid),
                comes.region.eq(self.fill.vpn[_REGION:]),
                comes.whole.eq(self.fill.whole),
                comes.table.eq(self.fill.table),
            ]
        for number, row in enumerate(rows):
            with m.If(writes & chosen[number]):
                m.d.sync += row.eq(comes)
        return writes, chosen

    @staticmethod
    def _is(row: data.View, asid: Value, region: Value) -> Value:
        return row.valid & (row.asid == asid) & (row.region == region)
