"""AXI4 with its standard signal names."""

from amaranth.lib import enum
from amaranth.lib.wiring import In, Out, Signature

from signalbox.hw.bus.axi4lite import Response

__all__ = ["Axi4", "Burst", "Response"]


class Burst(enum.Enum, shape=2):
    """AxBURST (AMBA AXI, A3.4.1)."""

    FIXED = 0
    INCR = 1
    WRAP = 2


class Axi4(Signature):
    """AXI4, from the manager's side, without the optional REGION and USER signals.

    Members have the specification's names in lower case, so a port `axi` is exported as
    `axi__awvalid` and so on. Every channel follows the rules of `amaranth.lib.stream`.

    Parameters
    ----------
    addr_width : width of a byte address in bits.
    data_width : width of a beat in bits, a power of two from 8 to 1,024.
    id_width : width of a transaction id in bits, at least 1.
    """

    def __init__(self, *, addr_width: int, data_width: int, id_width: int) -> None:
        super().__init__({
            **_address("aw", addr_width, id_width),
            "wvalid": Out(1),
            "wready": In(1),
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "bvalid": In(1),
            "bready": Out(1),
            "bid": In(id_width),
            "bresp": In(Response),
            **_address("ar", addr_width, id_width),
            "rvalid": In(1),
            "rready": Out(1),
            "rid": In(id_width),
            "rdata": In(data_width),
            "rresp": In(Response),
            "rlast": In(1),
        })


def _address(prefix: str, addr_width: int, id_width: int) -> dict:
    """Members of one address channel."""
    return {
        f"{prefix}valid": Out(1),
        f"{prefix}ready": In(1),
        f"{prefix}id": Out(id_width),
        f"{prefix}addr": Out(addr_width),
        f"{prefix}len": Out(8),
        f"{prefix}size": Out(3),
        f"{prefix}burst": Out(Burst),
        f"{prefix}lock": Out(1),
        f"{prefix}cache": Out(4),
        f"{prefix}prot": Out(3),
        f"{prefix}qos": Out(4),
    }
