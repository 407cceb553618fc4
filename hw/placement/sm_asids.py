"""Which address spaces an SM serves (ASID-31)."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config

__all__ = ["REMEMBERED", "SmSpaces"]

REMEMBERED = 2
"""Address spaces that are remembered of each SM."""


class SmSpaces(wiring.Component):
    """The last different address spaces of which one SM got blocks: those that it runs or last ran.

    One that runs on it beside as many others, whose blocks were sent later, is not remembered; then
    its translations are hardly in the SM's TLB any more.

    Members
    -------
    taken, sent : a block of space `sent` is sent to the SM.
    asked, serves : whether the SM serves space `asked`; combinational.

    Attributes
    ----------
    known : the spaces, the last one first (state, for proofs).
    """

    def __init__(self, config: Config) -> None:
        space = data.StructLayout({"valid": 1, "asid": config.asid_bits})
        self.known = Signal(data.ArrayLayout(space, REMEMBERED))
        super().__init__({
            "taken": In(1),
            "sent": In(config.asid_bits),
            "asked": In(config.asid_bits),
            "serves": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        last, other = self.known
        m.d.comb += self.serves.eq(
            Cat(one.valid & (one.asid == self.asked) for one in self.known).any()
        )
        with m.If(self.taken & ~(last.valid & (last.asid == self.sent))):
            m.d.sync += [other.eq(last), last.valid.eq(1), last.asid.eq(self.sent)]
        return m
