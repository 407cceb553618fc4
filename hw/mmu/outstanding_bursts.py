"""Bursts that were translated before an invalidation (ASID-8, ASID-9)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Older"]


class Older(wiring.Component):
    """Whether any burst is under way that a port had taken before the last invalidation.

    Bursts of a port end in order, so what counts is how many. What is taken in the cycle of the
    invalidation counts as older; what is older than an earlier one is older than the last. `some`
    is known 3 cycles late, and 1 in the two cycles after the event.

    Parameters
    ----------
    ports : memory ports. most : bursts that one may have under way.

    Members
    -------
    taken, ended : per port, a burst begins, or has ended.
    event : an invalidation takes effect.
    some : some burst is left.
    """

    def __init__(self, ports: int, most: int) -> None:
        self._ports, self._most = ports, most
        super().__init__({"taken": In(ports), "ended": In(ports), "event": In(1), "some": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(self._ports)
        # Whether one is taken or ends comes late in its cycle: all counts in the next one.
        marked = Signal()
        begun = Signal(self._ports)
        over = Signal(self._ports)
        m.d.sync += [
            marked.eq(self.event),
            begun.eq(self.taken),
            over.eq(self.ended),
            self.some.eq(self.event | marked | left.any()),
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
