"""Small register bus between the control port and units with registers."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RegisterPort"]


class RegisterPort(wiring.Signature):
    """A register bus, seen from the control port: one outstanding request.

    Members
    -------
    request : out, stream of reads and writes; `address` counts 32-bit words within the unit.
    response : in, stream of 32-bit words, one for every read and every write.
    """

    def __init__(self, address_bits: int) -> None:
        request = data.StructLayout({"address": address_bits, "write": 1, "data": 32})
        super().__init__({
            "request": Out(stream.Signature(request)),
            "response": In(stream.Signature(data.StructLayout({"data": 32}))),
        })
