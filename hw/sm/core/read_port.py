"""Arbiter for the core's read port."""

from amaranth.hdl import Cat, Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import encode, select
from signalbox.hw.lib.stream import StreamFIFO, StreamRegister
from signalbox.hw.records.memory import read_beat
from signalbox.hw.sm.core.records import bits
from signalbox.hw.sm.port import core_request

__all__ = ["OUTSTANDING", "ReadArbiter"]

OUTSTANDING = 32
"""Outstanding bursts."""


class ReadArbiter(wiring.Component):
    """Shares the core's read port, round robin; beats return in order to the requesting client,
    without back-pressure, so a client requests only beats it has room for.

    Members
    -------
    ask : in, per client: stream of `core_request`.
    beats : out, per client: strobe, a `read_beat`.
    request : out, stream of `core_request`, to memory.
    beat : in, stream of `read_beat`, from memory.
    """

    def __init__(self, config: Config, clients: int) -> None:
        self._config, self._clients = config, clients
        given = data.StructLayout({"valid": 1, "beat": read_beat(config)})
        super().__init__({
            "ask": In(stream.Signature(core_request(config))).array(clients),
            "beats": Out(given).array(clients),
            "request": Out(stream.Signature(core_request(config))),
            "beat": In(stream.Signature(read_beat(config))),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = core_request(self._config)
        m.submodules.turns = turns = SteadyRoundRobin(self._clients)
        m.submodules.out = out = StreamRegister(shape)
        width = bits(self._clients)
        m.submodules.order = order = StreamFIFO(width, OUTSTANDING)
        connect(m, out.o, flipped(self.request))
        sends = out.i.valid & out.i.ready
        m.d.comb += [
            turns.requests.eq(Cat(ask.valid for ask in self.ask)),
            turns.advance.eq(sends),
            out.i.valid.eq(turns.grant.any() & order.i.ready),
            out.i.payload.as_value().eq(
                select(turns.grant, [ask.payload.as_value() for ask in self.ask])
            ),
            order.i.valid.eq(sends),
            order.i.payload.eq(encode(turns.grant)),
            self.beat.ready.eq(order.o.valid),
            order.o.ready.eq(self.beat.valid & self.beat.p.last),
        ]
        for n, (ask, given) in enumerate(zip(self.ask, self.beats, strict=True)):
            mine = Mux(order.o.valid, order.o.payload == n, 0)
            m.d.comb += [
                ask.ready.eq(sends & turns.grant[n]),
                given.valid.eq(self.beat.valid & mine),
                given.beat.eq(self.beat.payload),
            ]
        return m
