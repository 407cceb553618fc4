"""Bursts that need no translation."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.mmu.bursts import translated
from signalbox.hw.mmu.records import Outcome
from signalbox.hw.records.memory import memory_request

__all__ = ["Physical"]


class Physical(wiring.Component):
    """Requests whose addresses are physical; those past the end of memory fault. Combinational.

    Members
    -------
    request : of the client. o : bursts, in cycles behind one with `room`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "request": In(stream.Signature(memory_request(config))),
            "room": In(1),
            "o": Out(stream.Signature(translated(config))),
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
