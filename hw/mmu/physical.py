"""Bursts that need no translation."""

from amaranth.hdl import Module, Mux
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.mmu.bursts import translated
from hw.mmu.lookups import Outcome
from hw.records import memory_request

__all__ = ["Physical"]


class Physical(wiring.Component):
    """Requests whose addresses are physical; those past the end of memory fault. Combinational.

    Members
    -------
    request : of the client. o : bursts.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(memory_request(config))),
            "o": Out(stream.Signature(translated(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, o = self.request, self.o
        outside = request.p.va >= self._config.memory_bytes
        m.d.comb += [
            o.valid.eq(request.valid),
            request.ready.eq(o.ready),
            o.p.pa.eq(request.p.va),
            o.p.beats.eq(request.p.beats),
            o.p.outcome.eq(Mux(outside, Outcome.FAULT, Outcome.PAGE)),
        ]
        return m
