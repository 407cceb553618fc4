"""Arbiters that let several units with occasional accesses share one memory client."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import SteadyRoundRobin
from signalbox.hw.lib.onehot import select
from signalbox.hw.records.memory import ReadPort, WritePort

__all__ = ["SharedRead", "SharedWrite", "share_memory"]


def share_memory(
    m: Module,
    config: Config,
    owner: wiring.Component,
    readers: Sequence[wiring.Component],
    writers: Sequence[wiring.Component],
) -> None:
    """Connect the `read` or `write` ports of units through arbiters to the ports of `owner`, the
    component being elaborated."""
    m.submodules.reads = reads = SharedRead(config, len(readers))
    m.submodules.writes = writes = SharedWrite(config, len(writers))
    for name, shared, units in (("read", reads, readers), ("write", writes, writers)):
        connect(m, shared.port, flipped(getattr(owner, name)))
        for unit, client in zip(units, shared.clients, strict=True):
            connect(m, getattr(unit, name), client)


class _Shared(wiring.Component):
    """Shares a memory client, round robin, with one outstanding burst; the next grant follows the
    response.

    Members
    -------
    clients : in, `count` ports, one per unit.
    port : out, a port of the same kind: the memory client.
    """

    def __init__(self, port: wiring.Signature, count: int) -> None:
        self._count = count
        super().__init__({"clients": In(port).array(count), "port": Out(port)})
        self._whose = Signal(count)
        self._busy = Signal()

    def _turns(self, m: Module, ended: Signal) -> None:
        """Forward one request, then wait for `ended`."""
        m.submodules.turns = turns = SteadyRoundRobin(self._count)
        out, clients = self.port.request, [client.request for client in self.clients]
        words = (client.p.as_value() for client in clients)
        m.d.comb += [
            turns.requests.eq(Cat(client.valid for client in clients)),
            turns.advance.eq(out.ready & ~self._busy),
            out.valid.eq(turns.requests.any() & ~self._busy),
            out.p.eq(data.View(out.p.shape(), select(turns.grant, words))),
        ]
        for number, client in enumerate(clients):
            m.d.comb += client.ready.eq(turns.grant[number] & out.ready & ~self._busy)
        with m.If(out.valid & out.ready):
            m.d.sync += [self._busy.eq(1), self._whose.eq(turns.grant)]
        with m.Elif(ended):
            m.d.sync += self._busy.eq(0)


class SharedRead(_Shared):
    """Arbiter of read ports."""

    def __init__(self, config: Config, count: int) -> None:
        super().__init__(ReadPort(config), count)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, ended = self.port.beat, Signal()
        self._turns(m, ended)
        ready = Cat(client.beat.ready for client in self.clients)
        m.d.comb += [
            beat.ready.eq((ready & self._whose).any()),
            ended.eq(beat.valid & beat.ready & beat.p.last),
        ]
        for number, client in enumerate(self.clients):
            m.d.comb += [
                client.beat.valid.eq(beat.valid & self._whose[number]),
                client.beat.p.eq(beat.p),
            ]
        return m


class SharedWrite(_Shared):
    """Arbiter of write ports."""

    def __init__(self, config: Config, count: int) -> None:
        super().__init__(WritePort(config), count)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, done, ended = self.port.beat, self.port.done, Signal()
        self._turns(m, ended)
        beats = [client.beat for client in self.clients]
        words = [Cat(one.valid, one.p.as_value()) for one in beats]
        offered = Signal(len(words[0]))
        m.d.comb += [
            offered.eq(select(self._whose, words)),
            beat.valid.eq(offered[0]),
            beat.p.eq(data.View(beat.p.shape(), offered[1:])),
            done.ready.eq(1),
            ended.eq(done.valid),
        ]
        for number, client in enumerate(self.clients):
            m.d.comb += [
                client.beat.ready.eq(beat.ready & self._whose[number]),
                client.done.valid.eq(done.valid & self._whose[number]),
                client.done.p.eq(done.p),
            ]
        return m
