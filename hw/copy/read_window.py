"""Adaptive limit of a copy engine's read-ahead."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy.records import BURST_BEATS, MIN_READ_AHEAD, TAKES_BITS, max_read_ahead

__all__ = ["ReadWindow"]

_PATIENCE = 128

_CYCLES = 3
"""Cycles per request."""


class ReadWindow(wiring.Component):
    """Limits outstanding read beats, to keep memory queues short for other clients.

    Memory with a latency of n cycles is kept busy by n outstanding beats; more only queue up and
    delay all requests behind them. The window learns n. While a chunk waits only for the window,
    every cycle without data, except the first, widens it by one beat, and the request after the
    wait widens it by `_CYCLES` beats; so requests are issued at bus speed. With nothing
    outstanding, the window returns to its minimum. Its size at the arrival of the first beat is the
    size that memory needs. If it grows later, for instance because of other clients' beats, it
    shrinks back to that size by one beat per `_PATIENCE` beats.

    Members
    -------
    wanted : in, a chunk is ready to be requested.
    open : out, the chunk may be requested; reflects only requests made at least 3 cycles ago.
    requested : in, `TAKES_BITS` bits: number of beats requested in this cycle, or 0.
    taken : in, strobe: a requested beat has arrived.
    flying : out, 2 cycles after a request, 1 after an arrival: number of outstanding beats; at most
        `max_read_ahead` + 5 + one chunk.
    """

    def __init__(self, config: Config) -> None:
        self.most = max_read_ahead(config)
        bits = (self.most + BURST_BEATS).bit_length()
        super().__init__({
            "wanted": In(1),
            "open": Out(1),
            "requested": In(TAKES_BITS),
            "taken": In(1),
            "flying": Out(bits),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        width = Signal(self.flying.shape(), init=MIN_READ_AHEAD)
        needed = Signal.like(width, init=MIN_READ_AHEAD)
        requested = Signal(TAKES_BITS)
        waits = Signal()
        waited = Signal()
        before = Signal()
        widest = Signal()
        wide = Signal()
        rest = Signal()
        """`widest`, `wide`, `rest`: comparisons of the previous cycle."""
        first = Signal()
        """No beat has arrived since the window was reset."""
        beats = Signal(range(_PATIENCE))
        due = Signal()
        m.d.comb += waits.eq(self.wanted & ~self.open & ~self.taken)
        m.d.sync += [
            requested.eq(self.requested),
            self.flying.eq(self.flying + requested - self.taken),
            self.open.eq(self.flying < width),
            waited.eq(waits),
            before.eq(waited),
            widest.eq(width >= self.most),
            wide.eq(width > needed),
            rest.eq(self.flying == 0),
            beats.eq(beats + self.taken),
            due.eq(beats.all() & self.taken),
        ]
        with m.If(rest):
            m.d.sync += [width.eq(MIN_READ_AHEAD), first.eq(1)]
        with m.Elif(waits & waited & ~widest):
            m.d.sync += width.eq(width + 1)
        with m.Elif(requested.any() & before & ~widest):
            m.d.sync += width.eq(width + _CYCLES)
        with m.Elif(due & wide & (width != MIN_READ_AHEAD)):
            m.d.sync += width.eq(width - 1)
        with m.If(first & self.taken):
            m.d.sync += [needed.eq(width), first.eq(0)]
        return m
