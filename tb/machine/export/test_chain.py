"""Combinational blocks in the text for simulators."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.tb.simulation.runner import simulate


class Chain(wiring.Component):
    """Three chained blocks, in this order, each of which first sets a default; and a constant part.

    Written as `always_comb`, they wake each other endlessly in Icarus 11.0.
    """

    source: In(1)
    first: Out(4)
    second: Out(4)
    third: Out(4)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.first[3].eq(1)
        with m.If(self.source):
            m.d.comb += self.first[0].eq(1)
        with m.If(self.first[0]):
            m.d.comb += self.second.eq(1)
        with m.If(self.second[0]):
            m.d.comb += self.third.eq(1)
        return m


@pytest.mark.smoke
def test_chain(simulator: str):
    simulate(
        Chain(),
        "signalbox.tb.machine.export.cocotb_chain",
        simulator=simulator,
        name="export-chain",
    )
