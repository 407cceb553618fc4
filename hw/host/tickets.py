"""Waits of channels for something that is done for them one after another."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.prefetch import channel_event

__all__ = ["Ticket", "Tickets"]


class Ticket(enum.Enum, shape=2):
    """Where a channel is in its wait."""

    NONE = 0
    WAITS = 1
    """For its turn, the next epoch say, to begin."""
    INSIDE = 2
    OVER = 3


class Tickets(wiring.Component):
    """One wait per channel. A turn that has begun is carried through although its channel has
    dropped it; that channel's next one waits until then, and is not over with it.

    Members
    -------
    ask : the channel waits; nothing new for one that waits already, or whose wait is over.
    drop : it waits no longer, and its wait is not over; goes before `ask`.
    whose : one-hot, whose turn it is. begins, ends : strobes, its turn does. denied : with `ends`,
        nothing was done.
    waiting : per channel, its turn has not begun. inside : it has.
    over : per channel, its wait is over, until `drop`. refused : and nothing was done.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "ask": In(channel_event(config)),
            "drop": In(channel_event(config)),
            "whose": In(channels),
            "begins": In(1),
            "ends": In(1),
            "denied": In(1),
            "waiting": Out(channels),
            "inside": Out(channels),
            "over": Out(channels),
            "refused": Out(channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        tickets = Signal(data.ArrayLayout(Ticket, self._config.channels))
        for number in range(self._config.channels):
            ticket, refused, mine = tickets[number], self.refused[number], self.whose[number]
            m.d.comb += [
                self.waiting[number].eq(ticket == Ticket.WAITS),
                self.inside[number].eq(ticket == Ticket.INSIDE),
                self.over[number].eq(ticket == Ticket.OVER),
            ]
            asks = self.ask.valid & (self.ask.channel == number)
            with m.If(self.drop.valid & (self.drop.channel == number)):
                m.d.sync += [ticket.eq(Ticket.NONE), refused.eq(0)]
            with m.Elif(asks & (ticket == Ticket.NONE)):
                m.d.sync += ticket.eq(Ticket.WAITS)
            with m.Elif(self.begins & mine & (ticket == Ticket.WAITS)):
                m.d.sync += ticket.eq(Ticket.INSIDE)
            with m.Elif(self.ends & mine & (ticket == Ticket.INSIDE)):
                m.d.sync += [ticket.eq(Ticket.OVER), refused.eq(self.denied)]
        return m
