"""Finds address spaces by their page directory base (HOST-3)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import PA_BITS, Config
from signalbox.hw.mmu.asid_table import AsidTable, bind_event
from signalbox.hw.mmu.records import PAGE_BITS

__all__ = ["PdbLookup"]


class PdbLookup(wiring.Component):
    """Finds the address spaces with a page directory base: scans all rows of an ASID table of its
    own, one per cycle, and stops at each match.

    A match is known 2 cycles after the row was looked up.

    Members
    -------
    bind : in, see `AsidTable`; keeps the private copy up to date.
    base : in, 28 bits: page directory base >> 12; stable from `begin` on.
    begin : in, strobe: start from the first row.
    run : in, scan, from the row after the last match on; 0 in the cycle after `found`, and with
        `begin`.
    found : out, row `asid` matches. Valid only while `run`.
    asid : out, `asid_bits` bits: number of that row.
    ended : out, no further row matches. Valid only while `run`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "bind": In(bind_event(config)),
            "base": In(PA_BITS - PAGE_BITS),
            "begin": In(1),
            "run": In(1),
            "found": Out(1),
            "asid": Out(config.asid_bits),
            "ended": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = self._config.asids
        m.submodules.spaces = spaces = AsidTable(self._config, near=True)
        following = Signal(range(count + 1))
        judged = Signal(range(count + 1))
        looked = Signal()
        compared = Signal()
        has_it = Signal()
        on = self.run & ~self.found
        m.d.comb += [
            spaces.bind.eq(self.bind),
            spaces.look.eq(on & (following != count)),
            spaces.asid.eq(following),
            self.found.eq(compared & has_it),
            self.asid.eq(judged),
            self.ended.eq(judged == count),
        ]
        m.d.sync += [
            Cat(looked, compared).eq(Mux(on, Cat(spaces.look, looked), 0)),
            has_it.eq(spaces.row.bound & (spaces.row.base == self.base)),
            judged.eq(judged + compared),
            following.eq(following + spaces.look),
        ]
        with m.If(self.found):
            m.d.sync += following.eq(judged + 1)
        with m.If(self.begin):
            m.d.sync += [judged.eq(0), following.eq(0)]
        return m
