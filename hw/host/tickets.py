"""Waits of channels for something that is done for them one after another."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.onehot import encode
from signalbox.hw.records.channel import channel_event

__all__ = ["Ticket", "Tickets", "Turns"]


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


class Turns(wiring.Component):
    """Channels that wait take turns. The turn of one that waits alone begins 3 cycles after `ask`;
    `form`, 2 cycles later, is when what a memory keeps at address `channel` has been read.

    Members
    -------
    ask, drop, over, refused : see `Tickets`; a turn may begin for one that has just dropped it.
    hold : per channel, its turn does not begin yet.
    channel : whose turn it is, one-hot `whose` a cycle before; until the next one's.
    form : strobe, in the second cycle of `channel`.
    ends : strobe, at the earliest with `form`: the turn is over. denied : and nothing was done.
    busy : per channel, it waits, or its turn is under way.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "ask": In(channel_event(config)),
            "drop": In(channel_event(config)),
            "hold": In(channels),
            "whose": Out(channels),
            "channel": Out(config.channel_bits),
            "form": Out(1),
            "ends": In(1),
            "denied": In(1),
            "over": Out(channels),
            "refused": Out(channels),
            "busy": Out(channels),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.turns = turns = RoundRobin(self._config.channels)
        m.submodules.tickets = tickets = Tickets(self._config)
        runs = Signal()
        m.d.comb += [
            tickets.ask.eq(self.ask),
            tickets.drop.eq(self.drop),
            tickets.whose.eq(self.whose),
            tickets.ends.eq(self.ends),
            tickets.denied.eq(self.denied),
            self.over.eq(tickets.over),
            self.refused.eq(tickets.refused),
            self.busy.eq(tickets.waiting | Mux(runs, self.whose, 0)),
        ]
        # A cycle late: at worst that of a channel is done that has just dropped it.
        m.d.sync += turns.requests.eq(tickets.waiting & ~self.hold)
        with m.FSM(name="turn"):
            with m.State("PICK"):
                m.d.sync += [self.whose.eq(turns.grant), runs.eq(turns.advance)]
                m.d.comb += turns.advance.eq(turns.requests.any())
                with m.If(turns.advance):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += tickets.begins.eq(1)
                m.d.sync += self.channel.eq(encode(self.whose))
                m.next = "READ"
            with m.State("READ"):
                m.next = "FORM"
            with m.State("FORM"):
                m.d.comb += self.form.eq(1)
                m.next = "RUN"
                self._end(m, runs)
            with m.State("RUN"):
                self._end(m, runs)
        return m

    def _end(self, m: Module, runs: Signal) -> None:
        with m.If(self.ends):
            m.d.sync += runs.eq(0)
            m.next = "PICK"
