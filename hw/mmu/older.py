"""Bursts that were translated before an invalidation (ASID-8, ASID-9)."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Older"]


class Older(wiring.Component):
    """Whether any burst is under way that a port had taken before the last invalidation.

    Bursts of a port end in order, so what counts is how many. What is taken in the cycle of the
    invalidation counts as older. `some` is known 1 cycle late, and 1 in the cycle after `event`.

    Parameters
    ----------
    ports : memory ports. most : bursts that one may have under way.

    Members
    -------
    taken, ended : per port, a burst begins, or has ended.
    event : an invalidation takes effect; none while `some`.
    some : some burst is left.
    """

    def __init__(self, ports: int, most: int) -> None:
        self._ports, self._most = ports, most
        super().__init__({"taken": In(ports), "ended": In(ports), "event": In(1), "some": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counters = data.ArrayLayout(range(self._most + 1), self._ports)
        under_way, older, event = Signal(counters), Signal(counters), Signal()
        left = Signal(self._ports)
        m.d.sync += [event.eq(self.event), self.some.eq(self.event | event | left.any())]
        for port, (all_, old) in enumerate(zip(under_way, older, strict=True)):
            now = Signal(range(self._most + 1), name=f"now_{port}")
            m.d.comb += [
                now.eq(all_ + self.taken[port] - self.ended[port]),
                left[port].eq(old != 0),
            ]
            m.d.sync += all_.eq(now)
            with m.If(self.event):
                m.d.sync += old.eq(now)
            with m.Elif(old != 0):
                m.d.sync += old.eq(old - self.ended[port])
        return m
