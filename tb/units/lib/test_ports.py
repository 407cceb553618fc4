"""Ports of a component, as exported."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.amaranth_private import PortDirection
from signalbox.hw.lib.flat_ports import ports

INPUT, OUTPUT = PortDirection.Input, PortDirection.Output
PAIR = data.StructLayout({"left": 3, "right": 2})


class Ends(wiring.Component):
    """Members of every kind; two are constant by their type."""

    taken: In(stream.Signature(8, always_ready=True))
    given: Out(stream.Signature(PAIR, always_valid=True))
    several: In(2).array(2)


def test_ports() -> None:
    """Ports are all members except constant ones, with joined names, width and direction."""
    found = {name: (len(value), way) for name, (value, way) in ports(Ends()).items()}
    assert found == {
        "taken__payload": (8, INPUT),
        "taken__valid": (1, INPUT),
        "given__payload": (5, OUTPUT),
        "given__ready": (1, INPUT),
        "several__0": (2, INPUT),
        "several__1": (2, INPUT),
    }
