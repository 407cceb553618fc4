"""Read path of the memory fabric."""

from collections.abc import Sequence

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.mmu import axi_streams
from signalbox.hw.mmu.burst_merge import BurstMerge
from signalbox.hw.mmu.bursts import translated_burst
from signalbox.hw.mmu.records import Outcome
from signalbox.hw.records.memory import MemoryStatus, read_beat

__all__ = ["ReadPath"]


class ReadPath(wiring.Component):
    """Issues the translated reads of all clients on AR and routes R back to them.

    A burst is on `ar` 1 cycle after it was offered; a beat reaches its client 1 cycle after `r`.
    One burst and one beat per cycle. Bursts without a page never reach the bus and are answered
    here: a fault with one beat, a burst to a sparse page with zeros for all its beats.

    Members
    -------
    bursts : in, one stream of `translated_burst` per client.
    room : out, per client: a burst may be offered in the next cycle.
    beats : out, one stream of `read_beat` per client.
    ar : out, AXI4 read address channel; the id is the client number.
    r : in, AXI4 read data channel.
    """

    def __init__(
        self, config: Config, outstanding: Sequence[int], id_width: int, *, urgent: int
    ) -> None:
        clients = len(outstanding)
        super().__init__({
            "bursts": In(stream.Signature(translated_burst(config))).array(clients),
            "room": Out(clients),
            "beats": Out(stream.Signature(read_beat(config))).array(clients),
            "ar": Out(stream.Signature(axi_streams.address(config, id_width))),
            "r": In(stream.Signature(axi_streams.read_data(config, id_width))),
        })
        self.config = config
        self.front = BurstMerge(config, outstanding, urgent=urgent)
        self.orders = self.front.orders

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.front = self.front
        m.d.comb += self.room.eq(self.front.room)
        for burst, inner in zip(self.bursts, self.front.bursts, strict=True):
            wiring.connect(m, wiring.flipped(burst), inner)
        self._issue(m)
        self._return(m)
        return m

    def _issue(self, m: Module) -> None:
        """A burst with a page goes to AR, and every burst to its client's `ResponseOrder`. A burst
        without a page also waits for room on AR, to keep the outcome out of the path to `ready`."""
        m.submodules.ar_register = register = StreamRegister(self.ar.payload.shape())
        wiring.connect(m, register.o, wiring.flipped(self.ar))
        burst, absent = self.front.o, Signal()
        low = self.config.offset_bits
        m.d.comb += [
            absent.eq(burst.p.outcome != Outcome.PAGE),
            register.i.valid.eq(burst.valid & ~absent),
            register.i.p.id.eq(encode(burst.p.whose)),
            register.i.p.addr[low:].eq(burst.p.pa[low:]),
            register.i.p.len.eq(burst.p.beats),
            burst.ready.eq(register.i.ready),
        ]
        for index, (own, order) in enumerate(zip(self.bursts, self.orders, strict=True)):
            m.d.comb += [
                order.push.eq(burst.p.whose[index] & burst.ready),
                order.pushed.absent.eq(own.p.outcome != Outcome.PAGE),
                order.pushed.fault.eq(own.p.outcome == Outcome.FAULT),
                order.pushed.beats.eq(own.p.beats),
            ]

    def _return(self, m: Module) -> None:
        """Beats go to the client given by the id. A client gets the beats of a burst without a page
        once all its older bursts are complete."""
        m.submodules.r_register = register = axi_streams.by_client(m, self.r, len(self.orders))
        beat = register.o
        status = Mux(beat.p.resp.as_value()[1], MemoryStatus.BUS, MemoryStatus.OK)
        taken = Signal(len(self.orders))
        m.d.comb += beat.ready.eq(taken.any())
        for index, (given, order) in enumerate(zip(self.beats, self.orders, strict=True)):
            mine, absent, faulted = beat.p.whose[index], order.absent, order.head.fault
            zeros, last = Signal(8, name=f"zeros_{index}"), Signal(name=f"last_{index}")
            m.d.comb += [
                last.eq(Mux(absent, faulted | (zeros == order.head.beats), beat.p.last)),
                given.valid.eq(absent | (beat.valid & mine)),
                given.p.data.eq(Mux(absent, 0, beat.p.data)),
                given.p.last.eq(last),
                given.p.status.eq(status),
                taken[index].eq(mine & ~absent & given.ready),
                order.pop.eq(given.valid & given.ready & last),
            ]
            with m.If(absent):
                m.d.comb += given.p.status.eq(Mux(faulted, MemoryStatus.FAULT, MemoryStatus.OK))
            with m.If(absent & given.ready):
                m.d.sync += zeros.eq(Mux(last, 0, zeros + 1))
