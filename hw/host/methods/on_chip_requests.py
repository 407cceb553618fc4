"""Requests of the served channel to the semaphore unit, some of them ahead (COPY-3, COPY-7)."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import WINDOW_BASE, Config
from signalbox.hw.methods import SemOp
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import SemaphorePort, semaphore_request

__all__ = ["OnChipRequests"]

_KEPT = data.StructLayout({"slot": 12, "operation": SemOp, "wide": 1, "payload": 64})
"""Fields of an acquire, kept to request it again."""


class OnChipRequests(wiring.Component):
    """Requests one operation at a time; the response comes three cycles after `ask`.

    A failed acquire is requested again ahead of its service: from its stored request, in the cycle
    in which its channel is selected, two cycles before it runs. The channel claims the response if
    its context arrives in the next cycle and the acquire may be decided then. Otherwise the
    response is dropped, as an acquire changes nothing.

    Members
    -------
    port : out, the semaphore unit.
    channel : in, `channel_bits` bits: number of the served channel.
    request : in, operation of its held method; stable from `ask` until the response.
    acquires : in, the operation is an acquire.
    ask : in, request the operation; not while `asked`; repeated while a response that will be
        dropped is awaited.
    ahead : in, no channel is being served.
    candidate : in, channel likely to be served in the next cycle; meaningful with `ahead`.
    early : in, the context of the served channel arrives, and the channel will run.
    able : in, its acquire may be decided; meaningful with `early`.
    forget : in, strobe: the held method was replaced, or its channel started.
    passes : in, strobe: the acquire is decided, and passes.
    fails : in, strobe: the acquire is decided, and fails.
    asked : out, registered: the served channel has requested an operation, and must accept the
        response.
    watch : out, strobe: an acquire of on-chip semaphore `index` was requested for the channel. With
        a repeated `ask`, only the last one has a meaningful index.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "port": Out(SemaphorePort(config)),
            "channel": In(config.channel_bits),
            "request": In(semaphore_request(config)),
            "acquires": In(1),
            "ask": In(1),
            "ahead": In(1),
            "candidate": In(channel_event(config)),
            "early": In(1),
            "able": In(1),
            "forget": In(1),
            "passes": In(1),
            "fails": In(1),
            "asked": Out(1),
            "watch": Out(channel_event(config, index=config.semaphore_bits)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.port
        # `asks_ahead`: a stored acquire is requested in this cycle. `claims`: the channel loaded in
        # this cycle claims the response.
        asks_ahead = Signal()
        claims = Signal()
        # The response in flight was requested ahead and is unclaimed so far.
        unclaimed = Signal()
        m.d.comb += [
            self.watch.channel.eq(self.channel),
            self.watch.index.eq(port.request.payload.va[4:16]),
            # A claim is just early enough: `Parking` takes updates from two cycles later on; the
            # update of the next operation comes three cycles after this one was accepted.
            self.watch.valid.eq(claims | (self.ask & self.acquires)),
        ]
        with m.If(claims):
            m.d.sync += [unclaimed.eq(0), self.asked.eq(1)]
        with m.FSM(name="on_chip") as asking:
            with m.State("IDLE"):
                m.d.sync += [unclaimed.eq(asks_ahead), self.asked.eq(self.ask)]
                with m.If(self.ask | asks_ahead):
                    m.d.comb += port.request.valid.eq(1)
                    m.next = "ASKED"
                    with m.If(~port.request.ready):
                        m.next = "ASKING"
            with m.State("ASKING"):
                m.d.comb += port.request.valid.eq(1)
                with m.If(port.request.ready):
                    m.next = "ASKED"
            with m.State("ASKED"):
                m.d.comb += port.response.ready.eq(1)
                with m.If(port.response.valid):
                    m.d.sync += self.asked.eq(0)
                    m.next = "IDLE"
        again = self._again(m)
        m.d.comb += asks_ahead.eq(
            self.ahead & self.candidate.valid & again.bit_select(self.candidate.channel, 1)
        )
        self._form(m, asking.ongoing("IDLE"), asks_ahead, claims)
        return m

    def _again(self, m: Module) -> Signal:
        """Per channel: its acquire was requested, and failed."""
        again, here = Signal(self._config.channels, name="again"), Signal(self._config.channels)
        failed = here & (~self.passes & self.asked).replicate(len(here))
        m.d.comb += here.eq(1 << self.channel)
        with m.If(self.passes | self.fails):
            m.d.sync += again.eq((again & ~here) | failed)
        with m.If(self.forget):
            m.d.sync += again.eq(again & ~here)
        return again

    def _form(self, m: Module, idle: Value, asks_ahead: Signal, claims: Signal) -> None:
        """Forms the request on the port, from the held method or the candidate's stored request.
        Also determines whether the channel loaded in this cycle claims the response."""
        request = self.port.request.payload
        m.submodules.asks = asks = Memory(
            shape=_KEPT, depth=1 << self._config.channel_bits, init=[]
        )
        write, read = asks.write_port(), asks.read_port(domain="comb")
        # Registered. `fresh`: a stored acquire was requested in the previous cycle. `foreseen`: the
        # request in progress is a stored one. `whose`: its channel.
        fresh, foreseen = Signal(name="fresh"), Signal(name="foreseen")
        whose = Signal(self._config.channel_bits)
        # One cycle late: the method and its request are stable until the response.
        keeps = Signal(name="keeps")
        m.d.comb += [
            claims.eq(self.early & fresh & (whose == self.channel) & self.able),
            write.addr.eq(self.channel),
            write.en.eq(keeps),
            write.data.slot.eq(self.request.va[4:16]),
            write.data.operation.eq(self.request.operation),
            write.data.wide.eq(self.request.wide),
            write.data.payload.eq(self.request.payload),
            read.addr.eq(Mux(idle, self.candidate.channel, whose)),
            request.eq(self.request),
        ]
        m.d.sync += [
            whose.eq(read.addr),
            fresh.eq(idle & asks_ahead),
            keeps.eq(idle & self.ask),
        ]
        with m.If(idle):
            m.d.sync += foreseen.eq(asks_ahead)
        with m.If(Mux(idle, self.ahead, foreseen)):
            m.d.comb += [
                request.va.eq(WINDOW_BASE | (read.data.slot << 4)),
                request.operation.eq(read.data.operation),
                request.wide.eq(read.data.wide),
                request.timestamp.eq(0),
                request.payload.eq(read.data.payload),
            ]
