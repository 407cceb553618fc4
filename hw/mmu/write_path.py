"""Write path of the memory fabric."""

from collections.abc import Sequence

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode
from signalbox.hw.lib.stream import StreamRegister
from signalbox.hw.mmu import axi_streams
from signalbox.hw.mmu.burst_merge import BurstMerge
from signalbox.hw.mmu.bursts import translated_burst
from signalbox.hw.mmu.records import Outcome
from signalbox.hw.records.memory import MemoryStatus, write_beat

__all__ = ["WritePath"]


class WritePath(wiring.Component):
    """Issues the translated writes of all clients on AW and W, and routes B back to them.

    A burst is on `aw` 1 cycle after it was offered, its first beat on `w` 1 cycle later; `done`
    follows `b` after 1 cycle. One burst and one beat per cycle. A burst without a page never
    reaches the bus, but occupies W while its beats are dropped.

    Members
    -------
    bursts : in, one stream of `translated_burst` per client.
    room : out, per client: a burst may be offered in the next cycle.
    beats : in, one stream of `write_beat` per client.
    done : out, one stream of responses per client, each with a `MemoryStatus`.
    aw : out, AXI4 write address channel; the id is the client number.
    w : out, AXI4 write data channel.
    b : in, AXI4 write response channel.
    """

    def __init__(
        self, config: Config, outstanding: Sequence[int], id_width: int, *, urgent: int
    ) -> None:
        clients = len(outstanding)
        done = data.StructLayout({"status": MemoryStatus})
        super().__init__({
            "bursts": In(stream.Signature(translated_burst(config))).array(clients),
            "room": Out(clients),
            "beats": In(stream.Signature(write_beat(config))).array(clients),
            "done": Out(stream.Signature(done)).array(clients),
            "aw": Out(stream.Signature(axi_streams.address(config, id_width))),
            "w": Out(stream.Signature(axi_streams.write_data(config))),
            "b": In(stream.Signature(axi_streams.write_response(id_width))),
        })
        self.config = config
        self.front = BurstMerge(config, outstanding, urgent=urgent)
        self.orders = self.front.orders
        turn = data.StructLayout({
            "whose": clients,
            "outcome": Outcome,
        })
        self.turns = StreamRegister(turn)
        """Bursts with their beats due on W, in the order of AW."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.front = self.front
        m.d.comb += self.room.eq(self.front.room)
        for burst, inner in zip(self.bursts, self.front.bursts, strict=True):
            wiring.connect(m, wiring.flipped(burst), inner)
        self._issue(m)
        self._move(m)
        self._return(m)
        return m

    def _issue(self, m: Module) -> None:
        """A burst goes to AW and to the W order at once. A burst without a page goes only to the W
        order, but also waits for room on AW."""
        m.submodules.aw_register = register = StreamRegister(self.aw.payload.shape())
        m.submodules.turns = turns = self.turns
        wiring.connect(m, register.o, wiring.flipped(self.aw))
        burst, absent = self.front.o, Signal()
        low = self.config.offset_bits
        m.d.comb += [
            absent.eq(burst.p.outcome != Outcome.PAGE),
            burst.ready.eq(register.i.ready & turns.i.ready),
            register.i.valid.eq(burst.valid & ~absent & turns.i.ready),
            register.i.p.id.eq(encode(burst.p.whose)),
            register.i.p.addr[low:].eq(burst.p.pa[low:]),
            register.i.p.len.eq(burst.p.beats),
            turns.i.valid.eq(burst.valid & register.i.ready),
            turns.i.p.whose.eq(burst.p.whose),
            turns.i.p.outcome.eq(burst.p.outcome),
        ]

    def _move(self, m: Module) -> None:
        """Moves the beats of the current burst to W, or drops them if it has no page.

        A burst enters its client's `ResponseOrder` only with its last beat, so a fault is signalled
        after the beats were consumed.
        """
        m.submodules.w_register = register = StreamRegister(self.w.payload.shape())
        wiring.connect(m, register.o, wiring.flipped(self.w))
        turn = self.turns.o
        absent = turn.p.outcome != Outcome.PAGE
        beat = Signal(write_beat(self.config))
        valid = Signal()
        move = Signal()
        offered, any_valid = Value.cast(0), Value.cast(0)
        for index, (given, order) in enumerate(zip(self.beats, self.orders, strict=True)):
            mine = Signal(name=f"turn_{index}")
            payload = Value.cast(given.payload)
            offered |= payload & mine.replicate(len(payload))
            any_valid |= mine & given.valid
            m.d.comb += [
                mine.eq(turn.valid & turn.p.whose[index]),
                given.ready.eq(mine & move),
                order.push.eq(mine & move & given.valid & given.p.last),
                order.pushed.absent.eq(absent),
                order.pushed.fault.eq(turn.p.outcome == Outcome.FAULT),
            ]
        m.d.comb += [
            valid.eq(any_valid),
            Value.cast(beat).eq(offered),
            move.eq(absent | register.i.ready),
            turn.ready.eq(move & valid & beat.last),
            register.i.valid.eq(valid & ~absent),
            register.i.p.data.eq(beat.data),
            register.i.p.strb.eq(beat.strobe),
            register.i.p.last.eq(beat.last),
        ]

    def _return(self, m: Module) -> None:
        """Responses go to the client given by the id. A client gets the response to a burst without
        a page once all its older bursts are complete. A write to a sparse page is dropped and
        succeeds."""
        m.submodules.b_register = register = axi_streams.by_client(m, self.b, len(self.orders))
        outcome = register.o
        status = Mux(outcome.p.resp.as_value()[1], MemoryStatus.BUS, MemoryStatus.OK)
        taken = Signal(len(self.orders))
        m.d.comb += outcome.ready.eq(taken.any())
        for index, (done, order) in enumerate(zip(self.done, self.orders, strict=True)):
            mine, faulted = outcome.p.whose[index], order.head.fault
            m.d.comb += [
                done.valid.eq(order.absent | (outcome.valid & mine)),
                done.p.status.eq(status),
                taken[index].eq(mine & ~order.absent & done.ready),
                order.pop.eq(done.valid & done.ready),
            ]
            with m.If(order.absent):
                m.d.comb += done.p.status.eq(Mux(faulted, MemoryStatus.FAULT, MemoryStatus.OK))
