"""Signals of both buses, as in their specifications."""

import pytest
from amaranth.hdl import Shape
from amaranth.lib import wiring

from signalbox.hw.bus.axi4 import Axi4
from signalbox.hw.bus.axi4lite import Axi4Lite

ANSWERS = {"awready", "wready", "arready"}
"""Signals to the manager, besides all of B and R except their `ready`."""


def to_manager(name: str) -> bool:
    return name in ANSWERS or (name[0] in "br" and not name.endswith("ready"))


def check(bus: wiring.Signature, widths: dict[str, int]) -> None:
    found = {name: Shape.cast(member.shape).width for name, member in bus.members.items()}
    assert found == widths
    for name, member in bus.members.items():
        assert member.flow == (wiring.In if to_manager(name) else wiring.Out), name


@pytest.mark.parametrize("beat", [64, 128, 256])
def test_axi4(beat: int) -> None:
    """Widths are those of IHI 0022: a strobe per byte, sizes and lengths of AXI4."""
    address = {"valid": 1, "ready": 1, "id": 5, "addr": 40, "len": 8, "size": 3, "burst": 2}
    address |= {"lock": 1, "cache": 4, "prot": 3, "qos": 4}
    check(
        Axi4(addr_width=40, data_width=beat, id_width=5),
        {
            **{f"{way}{name}": width for way in ("aw", "ar") for name, width in address.items()},
            **{"wvalid": 1, "wready": 1, "wdata": beat, "wstrb": beat // 8, "wlast": 1},
            **{"bvalid": 1, "bready": 1, "bid": 5, "bresp": 2},
            **{"rvalid": 1, "rready": 1, "rid": 5, "rdata": beat, "rresp": 2, "rlast": 1},
        },
    )


def test_axi4_lite() -> None:
    """Widths are those of IHI 0022 for 32-bit data, without bursts and ids."""
    address = {"valid": 1, "ready": 1, "addr": 16, "prot": 3}
    check(
        Axi4Lite(16),
        {
            **{f"{way}{name}": width for way in ("aw", "ar") for name, width in address.items()},
            **{"wvalid": 1, "wready": 1, "wdata": 32, "wstrb": 4},
            **{"bvalid": 1, "bready": 1, "bresp": 2},
            **{"rvalid": 1, "rready": 1, "rdata": 32, "rresp": 2},
        },
    )
