"""Tickets: waits of channels for a turn at a shared unit, or for the next epoch.

These turns are unrelated to those of TSGs (`scheduling/tsg_rotation`).
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.lib.onehot import encode
from signalbox.hw.records.channel import channel_event

__all__ = ["Ticket", "TicketArbiter", "Tickets"]


class Ticket(enum.Enum, shape=2):
    """State of a channel's wait."""

    NONE = 0
    WAITS = 1
    """Its turn, or the next epoch, has not begun."""
    INSIDE = 2
    OVER = 3


class Tickets(wiring.Component):
    """One wait per channel. A turn in progress is completed even if the channel drops its wait; a
    new wait of that channel is for a new turn.

    Members
    -------
    ask : in, strobe: the channel waits; ignored while it waits or its wait is complete.
    drop : in, strobe: ends the wait, completed or not; has precedence over `ask`.
    owner : in, per channel: holder of the turn.
    begins : in, strobe: the turn begins.
    ends : in, strobe: the turn ends.
    denied : in, with `ends`: nothing was done.
    waiting : out, per channel, its turn has not begun.
    inside : out, per channel, its turn has begun.
    over : out, per channel, its wait is complete, until `drop`.
    refused : out, per channel, with `over`: nothing was done.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        channels = config.channels
        super().__init__({
            "ask": In(channel_event(config)),
            "drop": In(channel_event(config)),
            "owner": In(channels),
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
            ticket, refused, mine = tickets[number], self.refused[number], self.owner[number]
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


class TicketArbiter(wiring.Component):
    """Turns of waiting channels, one after another, in an order that `choice` decides.

    Latency for a channel that waits alone: `begins` 1 + `steps` cycles after `ask`, `form` 5 cycles
    after `ask`. In the cycle of `form`, a RAM read at address `channel` has its data.

    Parameters
    ----------
    steps : cycles from `waiting` to `choice`, 1 or 2.

    Members
    -------
    ask : in, strobe, as of `Tickets`.
    drop : in, strobe, as of `Tickets`; a turn may begin for a channel that has just dropped it.
    over : out, per channel, as of `Tickets`.
    refused : out, per channel, as of `Tickets`.
    waiting : out, per channel, its turn has not begun.
    choice : in, per channel, one-hot: channel that shall have the next turn, or 0; ignored unless
        the channel waited in the previous cycle.
    begins : out, strobe, combinational: the turn of `choice` begins.
    owner : out, per channel, one-hot, registered: holder of the turn, from the cycle after `begins`
        to the next turn.
    channel : out, `channel_bits` bits: its number; with `owner` if `steps` is 2, one cycle later if
        it is 1.
    form : out, strobe, in the second cycle of `channel`.
    ends : in, strobe, with `form` at the earliest: the turn ends.
    denied : in, with `ends`: nothing was done.
    busy : out, per channel, waits or has the turn.
    """

    def __init__(self, config: Config, steps: int = 1) -> None:
        self._config, self._steps = config, steps
        channels = config.channels
        super().__init__({
            "ask": In(channel_event(config)),
            "drop": In(channel_event(config)),
            "waiting": Out(channels),
            "choice": In(channels),
            "begins": Out(1),
            "owner": Out(channels),
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
        m.submodules.tickets = tickets = Tickets(self._config)
        runs = Signal()
        waited = Signal(self._config.channels)
        m.d.comb += [
            tickets.ask.eq(self.ask),
            tickets.drop.eq(self.drop),
            tickets.owner.eq(self.owner),
            tickets.ends.eq(self.ends),
            tickets.denied.eq(self.denied),
            self.waiting.eq(tickets.waiting),
            self.over.eq(tickets.over),
            self.refused.eq(tickets.refused),
            self.busy.eq(tickets.waiting | Mux(runs, self.owner, 0)),
        ]
        # One cycle late: at worst, a turn begins for a channel that has just dropped its wait.
        m.d.sync += waited.eq(tickets.waiting)
        with m.FSM(name="turn"):
            with m.State("PICK"):
                m.d.sync += [self.owner.eq(self.choice), runs.eq(self.begins)]
                m.d.comb += self.begins.eq((self.choice & waited).any())
                if self._steps > 1:
                    m.d.sync += self.channel.eq(encode(self.choice))
                with m.If(self.begins):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += tickets.begins.eq(1)
                m.next = "FORM"
                if self._steps == 1:
                    m.d.sync += self.channel.eq(encode(self.owner))
                    m.next = "READ"
            if self._steps == 1:
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
