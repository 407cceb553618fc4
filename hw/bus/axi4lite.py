"""AXI4-Lite with 32-bit data and its standard signal names."""

from amaranth.lib import enum
from amaranth.lib.wiring import In, Out, Signature

__all__ = ["Axi4Lite", "Response"]


class Response(enum.Enum, shape=2):
    """BRESP and RRESP (AMBA AXI, A3.4.4)."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


class Axi4Lite(Signature):
    """AXI4-Lite with 32-bit data, from the manager's side.

    Members have the specification's names in lower case, so a port `ctl` is exported as
    `ctl__awvalid` and so on. Every channel follows the rules of `amaranth.lib.stream`.

    Parameters
    ----------
    addr_width : width of a byte address in bits.
    """

    def __init__(self, addr_width: int) -> None:
        super().__init__({
            "awvalid": Out(1),
            "awready": In(1),
            "awaddr": Out(addr_width),
            "awprot": Out(3),
            "wvalid": Out(1),
            "wready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "bvalid": In(1),
            "bready": Out(1),
            "bresp": In(Response),
            "arvalid": Out(1),
            "arready": In(1),
            "araddr": Out(addr_width),
            "arprot": Out(3),
            "rvalid": In(1),
            "rready": Out(1),
            "rdata": In(32),
            "rresp": In(Response),
        })
