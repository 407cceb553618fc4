"""A small register bus between the control port and units that have registers."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RegisterPort"]


class RegisterPort(wiring.Signature):
    """A small register bus, seen from the control port: one request at a time, `address` counts
    32-bit words inside the block; every request, write or read, is answered with one response."""

    def __init__(self, address_bits: int) -> None:
        request = data.StructLayout({"address": address_bits, "write": 1, "data": 32})
        super().__init__({
            "request": Out(stream.Signature(request)),
            "response": In(stream.Signature(data.StructLayout({"data": 32}))),
        })
