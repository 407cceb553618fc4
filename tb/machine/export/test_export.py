"""Form of the exported text."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw import export


class Parts(wiring.Component):
    """Assigns its output in parts."""

    a: In(3)
    b: In(2)
    o: Out(6)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.o[3:5].eq(self.b), self.o[:3].eq(self.a)]
        return m


def test_nets_are_assigned_as_a_whole():
    """A net is assigned once, as Icarus would assemble it bit by bit at each change of a part."""
    lines = [line.split() for line in export.verilog(Parts()).splitlines()]
    assert [line[3:] for line in lines if line[:2] == ["assign", "o"]] == [
        ["{", "1'h0,", "b,", "a", "};"]
    ]
    assert not [line for line in lines if line[:1] == ["assign"] and line[1].startswith("o[")]
