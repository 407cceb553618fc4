"""Address spaces of one SM, for the affinity policy (ASID-31)."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["REMEMBERED", "SmAsids"]

REMEMBERED = 2
"""Address spaces remembered per SM."""


class SmAsids(wiring.Component):
    """Keeps the last REMEMBERED distinct address spaces of blocks sent to one SM: those it runs or
    ran last.

    A space still running beside as many others, all sent later, is forgotten; by then its
    translations have mostly been evicted from the SM's TLB.

    Members
    -------
    taken : in, strobe: a block is sent to the SM.
    sent : in, `asid_bits` bits: its address space.
    asked : in, `asid_bits` bits: an address space.
    serves : out, combinational: the SM serves `asked`.
    """

    def __init__(self, config: Config) -> None:
        space = data.StructLayout({"valid": 1, "asid": config.asid_bits})
        self._known = Signal(data.ArrayLayout(space, REMEMBERED), name="known")
        """The address spaces, latest first."""
        super().__init__({
            "taken": In(1),
            "sent": In(config.asid_bits),
            "asked": In(config.asid_bits),
            "serves": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last, other = self._known
        m.d.comb += self.serves.eq(
            Cat(one.valid & (one.asid == self.asked) for one in self._known).any()
        )
        with m.If(self.taken & ~(last.valid & (last.asid == self.sent))):
            m.d.sync += [other.eq(last), last.valid.eq(1), last.asid.eq(self.sent)]
        return m
