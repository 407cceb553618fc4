"""Tracks the bursts that an invalidation has to wait for (ASID-8, ASID-9)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["OutstandingBursts"]


class OutstandingBursts(wiring.Component):
    """Tracks bursts accepted up to and including the cycle of the last invalidation.

    Bursts of a port end in order, so a count per port is enough. A burst older than an earlier
    invalidation is older than the last one, too.

    Parameters
    ----------
    ports : number of memory ports.
    most : limit of outstanding bursts per port.

    Members
    -------
    taken : in, `ports` bits, strobes: a burst was accepted.
    ended : in, `ports` bits, strobes: a burst has ended.
    event : in, 1 bit, strobe: an invalidation takes effect.
    pending : out, 1 bit, registered: an older burst is outstanding. It is 1 in the two cycles after
        `event`, and falls 3 cycles after the last `ended`.
    """

    def __init__(self, ports: int, most: int) -> None:
        self._ports, self._most = ports, most
        super().__init__({
            "taken": In(ports),
            "ended": In(ports),
            "event": In(1),
            "pending": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(self._ports)
        # The strobes come late in their cycle, so all of them are registered first.
        marked = Signal()
        begun = Signal(self._ports)
        over = Signal(self._ports)
        m.d.sync += [
            marked.eq(self.event),
            begun.eq(self.taken),
            over.eq(self.ended),
            self.pending.eq(self.event | marked | left.any()),
        ]
        for port in range(self._ports):
            under_way, older, now = (
                Signal(range(self._most + 1), name=f"{name}_{port}")
                for name in ("under_way", "older", "now")
            )
            m.d.comb += [
                now.eq(under_way + begun[port] - over[port]),
                left[port].eq(older != 0),
            ]
            m.d.sync += under_way.eq(now)
            with m.If(marked):
                m.d.sync += older.eq(now)
            with m.Elif(older != 0):
                m.d.sync += older.eq(older - over[port])
        return m
