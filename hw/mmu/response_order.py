"""What one memory client is still owed, in order."""

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

__all__ = ["BurstOrder", "owed"]


def owed() -> data.StructLayout:
    """Whether a burst is `absent` from the bus, because of a `fault` or else of a sparse page, of
    which `beats` + 1 beats are owed."""
    return data.StructLayout({"absent": 1, "fault": 1, "beats": 8})


class BurstOrder(wiring.Component):
    """Bursts of one client, from admission to their end, with how the translation went.

    The bus keeps the order of one client's bursts by their id; bursts that faulted never got
    there, and find their place among the others here. A burst that was pushed shows 2 cycles
    later, which is before the bus can have answered it.

    Parameters
    ----------
    limit : bursts of the client at a time, a power of two from 2 to 64.

    Members
    -------
    room : one more burst may be admitted in the next cycle.
    admit : a burst is admitted in this cycle.
    push, pushed : the next admitted burst goes on to the bus, or stays away from it.
    valid, head : the oldest burst that was pushed.
    absent : it is not on the bus.
    pop : that burst ends in this cycle.
    """

    def __init__(self, limit: int) -> None:
        super().__init__({
            "room": Out(1),
            "admit": In(1),
            "push": In(1),
            "pushed": In(owed()),
            "valid": Out(1),
            "head": Out(owed()),
            "absent": Out(1),
            "pop": In(1),
        })
        self.limit = limit

    def elaborate(self, platform) -> Module:
        m = Module()
        # One more than the limit: the register at the output fills a cycle after the memory.
        m.submodules.queue = queue = SyncFIFOBuffered(width=owed().size, depth=self.limit + 1)
        m.d.comb += [
            queue.w_en.eq(self.push),  # never full: pushed bursts were admitted
            queue.w_data.eq(self.pushed),
            self.valid.eq(queue.r_rdy),
            self.head.eq(queue.r_data),
            self.absent.eq(self.valid & self.head.absent),
            queue.r_en.eq(self.pop),
        ]

        # Counted a cycle late, to keep the arbiter's path short. `room` leaves space for the one
        # burst that may be admitted before it is counted.
        admitted, popped = Signal(), Signal()
        count, room = Signal(range(self.limit + 1)), Signal(init=1)
        m.d.sync += [admitted.eq(self.admit), popped.eq(self.pop), room.eq(self.room)]
        m.d.comb += self.room.eq(room)
        with m.If(admitted & ~popped):
            m.d.sync += count.eq(count + 1)
            m.d.comb += self.room.eq(count < self.limit - 2)
        with m.Elif(popped & ~admitted):
            m.d.sync += count.eq(count - 1)
            m.d.comb += self.room.eq(count != self.limit)
        return m
