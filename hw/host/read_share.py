"""Shares one read port of memory between two units."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import ReadPort

__all__ = ["ReadShare"]


class ReadShare(wiring.Component):
    """Shares a read port of memory between two clients; client 0 has priority. Combinational for
    requests and beats. Bursts of both clients can be outstanding at the same time.

    Client 0 must leave some cycles without a request, or client 1 starves.

    Parameters
    ----------
    depth : number of bursts that can be outstanding at any moment.

    Members
    -------
    clients : in, two read ports.
    port : out, the memory client.
    """

    def __init__(self, config: Config, depth: int) -> None:
        self._depth = depth
        super().__init__({"clients": In(ReadPort(config)).array(2), "port": Out(ReadPort(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Client of each outstanding burst.
        m.submodules.owners = owners = StreamFIFO(1, self._depth + 1)
        self._requests(m, owners.i)
        self._beats(m, owners.o)
        return m

    def _requests(self, m: Module, owner: stream.Interface) -> None:
        first, second = (client.request for client in self.clients)
        request = self.port.request
        chosen = Signal()
        # Registered: the request of client 1 was offered and not accepted, so it stays selected.
        offered = Signal()
        m.d.comb += [
            chosen.eq(offered | ~first.valid),
            request.valid.eq(Mux(chosen, second.valid, first.valid) & owner.ready),
            request.p.eq(data.View(request.p.shape(), Mux(chosen, second.p, first.p))),
            first.ready.eq(request.ready & owner.ready & ~chosen),
            second.ready.eq(request.ready & owner.ready & chosen),
            owner.p.eq(chosen),
            owner.valid.eq(request.valid & request.ready),
        ]
        m.d.sync += offered.eq(request.valid & ~request.ready & chosen)

    def _beats(self, m: Module, owner: stream.Interface) -> None:
        first, second = (client.beat for client in self.clients)
        beat = self.port.beat
        m.d.comb += [
            first.p.eq(beat.p),
            second.p.eq(beat.p),
            first.valid.eq(beat.valid & owner.valid & ~owner.p),
            second.valid.eq(beat.valid & owner.valid & owner.p),
            beat.ready.eq(owner.valid & Mux(owner.p, second.ready, first.ready)),
            owner.ready.eq(beat.valid & beat.ready & beat.p.last),
        ]
