"""Address spaces with cached pieces of 512 MiB pages (ASID-9, HOST-17)."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["WholeRegions"]


class WholeRegions(wiring.Component):
    """Marks the address spaces that may have pieces of 512 MiB pages in the TLBs, with a bit per
    ASID.

    A cached piece does not tell which page it belongs to, and the pieces of a page lie in many sets
    of the second-level TLB. So the invalidation of one page of such a space covers all of it.

    After a reset a bit may be 1 without need: page invalidations then cover more than necessary.

    Members
    -------
    adds : in, strobe: a piece for `asid` enters the TLBs. Not with `clears`.
    clears : in, strobe: all translations of `asid` are invalidated.
    asid : in, `asid_bits` bits: address space of `adds` or `clears`.
    look : in, `asid_bits` bits: address space of the look-up.
    has : out, combinational: the bit of `look`; set by `adds` in the same cycle, too.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "adds": In(1),
            "clears": In(1),
            "asid": In(config.asid_bits),
            "look": In(config.asid_bits),
            "has": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bits = bits = Memory(shape=1, depth=1 << self._config.asid_bits, init=[])
        write, read = bits.write_port(), bits.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.adds | self.clears),
            write.addr.eq(self.asid),
            write.data.eq(self.adds),
            read.addr.eq(self.look),
            self.has.eq(read.data | (self.adds & (self.asid == self.look))),
        ]
        return m
