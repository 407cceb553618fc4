"""Bypass of the translation for physical addresses."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.bursts import translated_burst
from signalbox.hw.mmu.records import Outcome
from signalbox.hw.records.memory import memory_request

__all__ = ["PhysicalBypass"]


class PhysicalBypass(wiring.Component):
    """Passes requests on as bursts; an access past the end of memory faults. Combinational.

    Members
    -------
    request : in, stream of `memory_request`, of the client.
    room : in, a burst may leave in the next cycle.
    o : out, stream of `translated_burst`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(memory_request(config))),
            "room": In(1),
            "o": Out(stream.Signature(translated_burst(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        request, o = self.request, self.o
        room = Signal()
        m.d.sync += room.eq(self.room)
        outside = request.p.va >= self._config.memory_bytes
        m.d.comb += [
            o.valid.eq(request.valid & room),
            request.ready.eq(o.ready),
            o.p.pa.eq(request.p.va),
            o.p.beats.eq(request.p.beats),
            o.p.outcome.eq(Mux(outside, Outcome.FAULT, Outcome.PAGE)),
        ]
        return m
