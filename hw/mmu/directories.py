"""Walk cache: where the PD0 of recently walked regions lie (ASID-4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.onehot import select
from hw.mmu.entries import TABLE_BITS
from hw.mmu.lookups import PAGE_BITS, VPN_BITS, Scope, invalidation, touches
from hw.mmu.recency import TreeRecency
from hw.pagetables import DIRECTORIES

__all__ = ["Directories"]

_REGION = DIRECTORIES[2].shift - PAGE_BITS
"""Bits of a page number inside the region of one PD0."""


class Directories(wiring.Component):
    """Fully associative; combinational look-up.

    An entry that is not valid is used before another is replaced; then the least recently used one,
    as a tree of bits remembers it. An invalidation takes effect in the cycle after it: also that
    of a page takes away the PD0 of its region. In its own cycle nothing is filled.

    Parameters
    ----------
    entries : 2 … 64, a power of two.

    Members
    -------
    asid, vpn : whose PD0 is wanted. use : it is used now.
    hit, table : it is known; its address >> `TABLE_BITS`.
    fill : the PD0 of page `vpn` of `asid` lies at `table`.
    invalidate : see `invalidation`.
    """

    def __init__(self, config: Config, *, entries: int = 8) -> None:
        self._entries = entries
        self._recency = TreeRecency(entries)
        table = config.address_width - TABLE_BITS
        page = {"asid": config.asid_bits, "vpn": VPN_BITS}
        self._row = data.StructLayout({
            "valid": 1,
            "asid": config.asid_bits,
            "region": VPN_BITS - _REGION,
            "table": table,
        })
        super().__init__({
            "asid": In(config.asid_bits),
            "vpn": In(VPN_BITS),
            "use": In(1),
            "hit": Out(1),
            "table": Out(table),
            "fill": In(data.StructLayout({"valid": 1, **page, "table": table})),
            "invalidate": In(invalidation(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.recency = recency = self._recency
        rows = Signal(data.ArrayLayout(self._row, self._entries))
        event, fill = self.invalidate, self.fill
        wanted = Cat(self._is(row, self.asid, self.vpn) for row in rows)
        known = Cat(self._is(row, fill.asid, fill.vpn) for row in rows)
        free, place, chosen = (Signal(self._entries) for _ in range(3))
        fills = Signal()
        m.d.comb += [
            self.hit.eq(wanted.any()),
            self.table.eq(select(wanted, (row.table for row in rows))),
            free.eq(Cat(~row.valid for row in rows)),
            place.eq(Mux(free.any(), free, recency.oldest)),
            chosen.eq(place & -place),
            # What comes now was read before; of whatever space, for it costs a few reads at most.
            fills.eq(fill.valid & ~known.any() & ~event.valid),
            recency.use.eq(Mux(fills, chosen, wanted & self.use.replicate(self._entries))),
        ]
        for number, row in enumerate(rows):
            here = (event.scope != Scope.PAGE) | (event.vpn[_REGION:] == row.region)
            with m.If(touches(event, row.asid) & here):
                m.d.sync += row.valid.eq(0)
            with m.Elif(fills & chosen[number]):
                m.d.sync += [
                    row.valid.eq(1),
                    row.asid.eq(fill.asid),
                    row.region.eq(fill.vpn[_REGION:]),
                    row.table.eq(fill.table),
                ]
        return m

    @staticmethod
    def _is(row: data.View, asid: Value, vpn: Value) -> Value:
        return row.valid & (row.asid == asid) & (row.region == vpn[_REGION:])
