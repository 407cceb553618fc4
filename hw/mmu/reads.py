"""The reading half of the memory fabric."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.stream import StreamRegister
from hw.mmu import channels
from hw.mmu.front import RequestFront, TranslatorFactory
from hw.records import MemoryStatus, ReadPort

__all__ = ["ReadPath"]


class ReadPath(wiring.Component):
    """Translates the reads of many clients, sends them to AR and gives each its beats.

    With the identity translator a request is on `ar` 2 cycles after it was offered; a beat is
    with its client 1 cycle after `r`. One request and one beat per cycle.

    Members
    -------
    ports : the clients.
    ar, r : AXI4 read channels; the id is the client's number.
    """

    def __init__(
        self,
        config: Config,
        clients: int,
        id_width: int,
        *,
        outstanding: int,
        urgent: int,
        translator: TranslatorFactory,
    ) -> None:
        super().__init__({
            "ports": In(ReadPort(config)).array(clients),
            "ar": Out(stream.Signature(channels.address(config, id_width))),
            "r": In(stream.Signature(channels.read_data(config, id_width))),
        })
        self.config = config
        self.front = RequestFront(
            config,
            clients,
            outstanding=outstanding,
            urgent=urgent,
            write=False,
            translator=translator,
        )
        self.orders = self.front.orders

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.front = self.front
        for port, request in zip(self.ports, self.front.requests, strict=True):
            wiring.connect(m, wiring.flipped(port.request), request)
        self._issue(m)
        self._return(m)
        return m

    def _issue(self, m: Module) -> None:
        """Translated bursts go to AR, or only on the list of what their client is owed."""
        m.submodules.ar_register = register = StreamRegister(self.ar.payload.shape())
        wiring.connect(m, register.o, wiring.flipped(self.ar))
        burst = self.front.o
        low = self.config.offset_bits
        m.d.comb += [
            register.i.valid.eq(burst.valid & ~burst.p.fault),
            register.i.p.id.eq(burst.p.tag.client),
            register.i.p.addr[low:].eq(burst.p.pa[low:]),
            register.i.p.len.eq(burst.p.tag.beats),
            burst.ready.eq(burst.p.fault | register.i.ready),
        ]
        for index, order in enumerate(self.orders):
            m.d.comb += [
                order.push.eq(burst.valid & burst.ready & (burst.p.tag.client == index)),
                order.push_fault.eq(burst.p.fault),
            ]

    def _return(self, m: Module) -> None:
        """Beats go to the client that the id names; it gets the beat of a faulted burst when
        everything older was given to it."""
        m.submodules.r_register = register = StreamRegister(self.r.payload.shape())
        wiring.connect(m, wiring.flipped(self.r), register.i)
        beat = register.o
        status = Mux(beat.p.resp.as_value()[1], MemoryStatus.BUS, MemoryStatus.OK)
        taken = Signal(len(self.orders))
        m.d.comb += beat.ready.eq(taken.any())
        for index, (port, order) in enumerate(zip(self.ports, self.orders, strict=True)):
            mine = beat.p.id == index
            m.d.comb += [
                port.beat.valid.eq(order.fault | (beat.valid & mine)),
                port.beat.p.data.eq(beat.p.data),
                port.beat.p.last.eq(order.fault | beat.p.last),
                port.beat.p.status.eq(Mux(order.fault, MemoryStatus.FAULT, status)),
                taken[index].eq(mine & ~order.fault & port.beat.ready),
                order.pop.eq(port.beat.valid & port.beat.ready & port.beat.p.last),
            ]
