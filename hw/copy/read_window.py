"""How far a copy engine reads ahead of what has arrived."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.copy.records import BURST_BEATS, FEWEST_AHEAD, TAKES_BITS, most_ahead

__all__ = ["Window"]

_PATIENCE = 128

_CYCLES = 3
"""What one request takes."""


class Window(wiring.Component):
    """Bounds the beats on their way, so that reads of others find short queues in memory.

    Memory that answers after n cycles is kept busy by n beats on their way; further ones only wait
    there, with everybody behind them. What n is shows itself: every cycle but the first in which
    nothing comes, although a chunk waits for the window alone, widens it by a beat, so that
    requests go out at the speed of the bus. When nothing is on its way the window is narrow again;
    what it has grown to when the first beat comes is what memory needs. Where it is widened later,
    as by beats of others, it shrinks to that again by a beat per `_PATIENCE` beats.

    Members
    -------
    wanted : a chunk could be requested now.
    open : it may be, by what was requested 3 cycles ago and earlier.
    requested : strobe of a number of beats.
    taken : strobe; one of them has come.
    flying : beats on their way; at most `most_ahead`, 5 and one chunk.
    """

    def __init__(self, config: Config) -> None:
        self.most = most_ahead(config)
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
        width = Signal(self.flying.shape(), init=FEWEST_AHEAD)
        needed = Signal.like(width, init=FEWEST_AHEAD)
        requested = Signal(TAKES_BITS)
        waits, waited, before = Signal(), Signal(), Signal()
        widest = Signal()
        wide, rest = Signal(), Signal()
        """Comparisons of the cycle before."""
        first = Signal()
        """Nothing has come since nothing was on its way."""
        beats, due = Signal(range(_PATIENCE)), Signal()
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
            m.d.sync += [width.eq(FEWEST_AHEAD), first.eq(1)]
        with m.Elif(waits & waited & ~widest):
            m.d.sync += width.eq(width + 1)
        with m.Elif(requested.any() & before & ~widest):
            m.d.sync += width.eq(width + _CYCLES)
        with m.Elif(due & wide & (width != FEWEST_AHEAD)):
            m.d.sync += width.eq(width - 1)
        with m.If(first & self.taken):
            m.d.sync += [needed.eq(width), first.eq(0)]
        return m
