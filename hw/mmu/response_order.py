"""Response order of one memory client's bursts."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.lib.stream import StreamFIFO

__all__ = ["ResponseOrder", "pending_response"]


def pending_response() -> data.StructLayout:
    """Burst whose response is outstanding. `absent`: not on the bus, because of a `fault`, or else
    because of a sparse page, for which `beats` + 1 beats are due."""
    return data.StructLayout({"absent": 1, "fault": 1, "beats": 8})


class ResponseOrder(wiring.Component):
    """Tracks the bursts of one client, from admission to their last response.

    The bus keeps the order of one client's bursts, as they share an id. Bursts that faulted never
    reach it; this queue keeps their place in the order. A burst appears at the head 2 cycles after
    `push`, before the bus can answer it.

    Parameters
    ----------
    limit : limit of outstanding bursts, a power of two from 2 to 64.

    Members
    -------
    room : out, a burst may be admitted in the next cycle.
    admit : in, strobe: a burst is admitted.
    push : in, strobe: the next admitted burst was issued to the bus, or is `absent`.
    pushed : in, the burst pushed, a `pending_response`.
    valid : out, `head` is valid.
    head : out, oldest burst pushed and not popped, a `pending_response`.
    absent : out, `head` is valid and not on the bus.
    pop : in, strobe: `head` is complete.
    """

    def __init__(self, limit: int) -> None:
        super().__init__({
            "room": Out(1),
            "admit": In(1),
            "push": In(1),
            "pushed": In(pending_response()),
            "valid": Out(1),
            "head": Out(pending_response()),
            "absent": Out(1),
            "pop": In(1),
        })
        self.limit = limit

    def elaborate(self, platform) -> Module:
        m = Module()
        # One more than the limit, as the output register fills a cycle after the memory.
        m.submodules.queue = queue = StreamFIFO(pending_response(), self.limit + 1)
        m.d.comb += [
            queue.i.valid.eq(self.push),  # never full: pushed bursts were admitted
            queue.i.payload.eq(self.pushed),
            self.valid.eq(queue.o.valid),
            self.head.eq(queue.o.payload),
            self.absent.eq(self.valid & self.head.absent),
            queue.o.ready.eq(self.pop),
        ]

        # Counted a cycle late, to keep the arbiter's path short. `room` is conservative by the one
        # burst that may have been admitted but not counted.
        admitted = Signal()
        popped = Signal()
        count = Signal(range(self.limit + 1))
        room = Signal(init=1)
        m.d.sync += [admitted.eq(self.admit), popped.eq(self.pop), room.eq(self.room)]
        m.d.comb += self.room.eq(room)
        with m.If(admitted & ~popped):
            m.d.sync += count.eq(count + 1)
            m.d.comb += self.room.eq(count < self.limit - 2)
        with m.Elif(popped & ~admitted):
            m.d.sync += count.eq(count - 1)
            m.d.comb += self.room.eq(count != self.limit)
        return m
