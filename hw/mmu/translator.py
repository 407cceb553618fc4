"""The translation seam, and what stands there when there are no page tables."""

from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import VA_BITS, Config

__all__ = ["IdentityTranslator", "TranslatePort", "translate_request", "translate_response"]


def translate_request(config: Config, tag: data.Layout) -> data.StructLayout:
    """One look-up: may `asid` access `va` (`write`: by a write)? `physical`: `va` is a physical
    address and only the bounds are checked. `tag` comes back with the answer."""
    return data.StructLayout({
        "tag": tag,
        "asid": config.asid_bits,
        "va": VA_BITS,
        "write": 1,
        "physical": 1,
    })


def translate_response(config: Config, tag: data.Layout) -> data.StructLayout:
    """Answer to one look-up; with `fault`, `pa` is meaningless."""
    return data.StructLayout({"tag": tag, "pa": config.address_width, "fault": 1})


class TranslatePort(wiring.Signature):
    """A translator, seen from the one who asks.

    Every request gets one response. Responses keep the order of requests with the same
    `tag.client`; between clients the order is free, so that a miss of one client need not hold
    up the others. Requests come from flip-flops.

    Parameters
    ----------
    tag : layout of what the response repeats; has a member `client`.
    """

    def __init__(self, config: Config, tag: data.Layout) -> None:
        super().__init__({
            "request": Out(stream.Signature(translate_request(config, tag))),
            "response": In(stream.Signature(translate_response(config, tag))),
        })


class IdentityTranslator(wiring.Component):
    """Physical = virtual; what lies past `config.memory_bytes` faults.

    Combinational: one request per cycle, answered in the same cycle. Since memory is whole pages
    and a burst stays inside one, the first byte decides for the burst.
    """

    def __init__(self, config: Config, tag: data.Layout) -> None:
        super().__init__({"port": In(TranslatePort(config, tag))})
        self.config = config

    def elaborate(self, platform) -> Module:
        m = Module()
        request, response = self.port.request, self.port.response
        low = (self.config.memory_bytes & -self.config.memory_bytes).bit_length() - 1
        units = self.config.memory_bytes >> low  # 1 when memory is a power of two: no comparator
        above = request.p.va >> low
        m.d.comb += [
            response.valid.eq(request.valid),
            request.ready.eq(response.ready),
            response.p.tag.eq(request.p.tag),
            response.p.pa.eq(request.p.va),
            response.p.fault.eq(above.any() if units == 1 else above >= units),
        ]
        return m
