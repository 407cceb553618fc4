"""The writing half of the memory fabric."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.lib.stream import StreamRegister
from hw.mmu import channels
from hw.mmu.front import RequestFront, TranslatorFactory
from hw.records import MemoryStatus, WritePort, write_beat

__all__ = ["WritePath"]


class WritePath(wiring.Component):
    """Translates the writes of many clients, sends them to AW and W, and tells each the outcome.

    With the identity translator a request is on `aw` 2 cycles after it was offered and its first
    beat on `w` 1 cycle later; `done` follows `b` after 1 cycle. One request and one beat per cycle.
    A faulted burst occupies W for as many cycles as it has beats, which are dropped.

    Members
    -------
    ports : the clients.
    aw, w, b : AXI4 write channels; the id is the client's number.
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
            "ports": In(WritePort(config)).array(clients),
            "aw": Out(stream.Signature(channels.address(config, id_width))),
            "w": Out(stream.Signature(channels.write_data(config))),
            "b": In(stream.Signature(channels.write_response(id_width))),
        })
        self.config = config
        self.front = RequestFront(
            config,
            clients,
            outstanding=outstanding,
            urgent=urgent,
            write=True,
            translator=translator,
        )
        self.orders = self.front.orders
        turn = data.StructLayout({"client": self.front.tag["client"].shape, "fault": 1})
        self.turns = StreamRegister(turn)
        """Whose beats are next, in the order of AW."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.front = self.front
        for port, request in zip(self.ports, self.front.requests, strict=True):
            wiring.connect(m, wiring.flipped(port.request), request)
        self._issue(m)
        self._move(m)
        self._return(m)
        return m

    def _issue(self, m: Module) -> None:
        """A translated burst goes to AW and gets its turn on W together; a faulted one gets only
        the turn."""
        m.submodules.aw_register = register = StreamRegister(self.aw.payload.shape())
        m.submodules.turns = turns = self.turns
        wiring.connect(m, register.o, wiring.flipped(self.aw))
        burst = self.front.o
        low = self.config.offset_bits
        m.d.comb += [
            burst.ready.eq((burst.p.fault | register.i.ready) & turns.i.ready),
            register.i.valid.eq(burst.valid & ~burst.p.fault & turns.i.ready),
            register.i.p.id.eq(burst.p.tag.client),
            register.i.p.addr[low:].eq(burst.p.pa[low:]),
            register.i.p.len.eq(burst.p.tag.beats),
            turns.i.valid.eq(burst.valid & (burst.p.fault | register.i.ready)),
            turns.i.p.client.eq(burst.p.tag.client),
            turns.i.p.fault.eq(burst.p.fault),
        ]

    def _move(self, m: Module) -> None:
        """The beats of the client whose turn it is go to W, or nowhere when its burst faulted.

        Only with the last beat is the burst put on the list of what the client is owed: a fault
        is reported when the beats are gone.
        """
        m.submodules.w_register = register = StreamRegister(self.w.payload.shape())
        wiring.connect(m, register.o, wiring.flipped(self.w))
        turn = self.turns.o
        fault = turn.p.fault
        beat = Signal(write_beat(self.config))
        valid, move = Signal(), Signal()
        offered, any_valid = Value.cast(0), Value.cast(0)
        for index, (port, order) in enumerate(zip(self.ports, self.orders, strict=True)):
            mine = Signal(name=f"turn_{index}")
            payload = Value.cast(port.beat.payload)
            offered |= payload & mine.replicate(len(payload))
            any_valid |= mine & port.beat.valid
            m.d.comb += [
                mine.eq(turn.valid & (turn.p.client == index)),
                port.beat.ready.eq(mine & move),
                order.push.eq(mine & move & port.beat.valid & port.beat.p.last),
                order.push_fault.eq(fault),
            ]
        m.d.comb += [
            valid.eq(any_valid),
            Value.cast(beat).eq(offered),
            move.eq(fault | register.i.ready),
            turn.ready.eq(move & valid & beat.last),
            register.i.valid.eq(valid & ~fault),
            register.i.p.data.eq(beat.data),
            register.i.p.strb.eq(beat.strobe),
            register.i.p.last.eq(beat.last),
        ]

    def _return(self, m: Module) -> None:
        """Outcomes go to the client that the id names; it hears of a faulted burst when it was
        told of everything older."""
        m.submodules.b_register = register = StreamRegister(self.b.payload.shape())
        wiring.connect(m, wiring.flipped(self.b), register.i)
        outcome = register.o
        status = Mux(outcome.p.resp.as_value()[1], MemoryStatus.BUS, MemoryStatus.OK)
        taken = Signal(len(self.orders))
        m.d.comb += outcome.ready.eq(taken.any())
        for index, (port, order) in enumerate(zip(self.ports, self.orders, strict=True)):
            mine = outcome.p.id == index
            m.d.comb += [
                port.done.valid.eq(order.fault | (outcome.valid & mine)),
                port.done.p.status.eq(Mux(order.fault, MemoryStatus.FAULT, status)),
                taken[index].eq(mine & ~order.fault & port.done.ready),
                order.pop.eq(port.done.valid & port.done.ready),
            ]
