"""What one memory client is still owed, in order."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

__all__ = ["BurstOrder"]


class BurstOrder(wiring.Component):
    """Bursts of one client, from admission to their end, with how the translation went.

    The bus keeps the order of one client's bursts by their id; bursts that faulted never got
    there, and find their place among the others here.

    Parameters
    ----------
    limit : bursts of the client at a time, a power of two from 2 to 32.

    Members
    -------
    room : one more burst may be admitted.
    admit : a burst is admitted in this cycle.
    push, push_fault : the next admitted burst goes on to the bus, or has faulted.
    valid, fault : the oldest burst that was pushed.
    pop : that burst ends in this cycle.
    """

    def __init__(self, limit: int) -> None:
        super().__init__({
            "room": Out(1),
            "admit": In(1),
            "push": In(1),
            "push_fault": In(1),
            "valid": Out(1),
            "fault": Out(1),
            "pop": In(1),
        })
        self.limit = limit
        self.count = Signal(range(limit + 1))
        """Bursts admitted and not ended (state, for proofs)."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = SyncFIFO(width=1, depth=self.limit)
        m.d.sync += self.count.eq(self.count + self.admit - self.pop)
        m.d.comb += [
            self.room.eq(~self.count[-1]),  # the limit is a power of two
            queue.w_en.eq(self.push),  # never full: pushed bursts were admitted
            queue.w_data.eq(self.push_fault),
            self.valid.eq(queue.r_rdy),
            self.fault.eq(queue.r_rdy & queue.r_data),
            queue.r_en.eq(self.pop),
        ]
        return m
