"""Chooses the channel to serve, and ends its slice (COPY-5 … COPY-9). Rules: `hw/README.md`."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.copy_launcher import EngineStatus
from signalbox.hw.host.oldest_first import OldestFirst
from signalbox.hw.host.ports import ArrivalOrder, Served, Turns
from signalbox.hw.host.scheduling.parking import Parked
from signalbox.hw.records.channel import channel_event

__all__ = ["PATIENCE", "ChoicePort", "Floor", "Scheduler", "SlicePort"]

PATIENCE = 127
"""Cycles that a channel with a reserved engine stays past the moment to let go, to come to its
copy: enough for the settings of a copy, once fetched, at a dword per cycle."""


class SlicePort(wiring.Signature):
    """Slice of the served channel, seen from the execution of methods.

    Members
    -------
    candidate : in, a `channel_event`, combinational, early in the cycle: `channel` is likely the
        next target; never the floor's holder.
    spent : in, 1 bit, combinational: the served channel has the floor and a running copy, but its
        slice is over, and a cycle ago another channel could proceed or lacked only an engine: no
        further copy may start behind the running one (COPY-6, COPY-8).
    give_up : out, 1 bit, strobe: the served channel yields the rest of its slice.
    reserves : out, 1 bit, strobe: the served channel reserves an engine.
    launches : out, 1 bit, strobe: the served channel starts a copy.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "candidate": In(channel_event(config)),
            "spent": In(1),
            "give_up": Out(1),
            "reserves": Out(1),
            "launches": Out(1),
        })


class ChoicePort(wiring.Signature):
    """Channel to serve, seen from the method pipeline.

    Members
    -------
    target : in, `channel_bits` bits, combinational, early in the cycle: channel to serve next.
    found : in, 1 bit, combinational: there is a target.
    take : out, 1 bit, strobe: the target is taken.
    taken : out, 1 bit, strobe, one cycle after `take`.
    leave : in, 1 bit, registered: from the state of the previous cycle, the served channel must let
        go between two methods. In this cycle it may decide no acquire, and start no copy unless
        `stay`.
    stay : in, 1 bit, registered: it has passed an acquire of its next copy, and continues until
        that copy or another acquire (COPY-13), for at most `PATIENCE` cycles.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({
            "target": In(config.channel_bits),
            "found": In(1),
            "take": Out(1),
            "taken": Out(1),
            "leave": In(1),
            "stay": In(1),
        })


class Floor(wiring.Signature):
    """The floor, seen from the scheduler.

    Members
    -------
    valid : out, 1 bit, registered: a channel has the floor.
    channel : out, `channel_bits` bits, registered: its number; valid with `valid`.
    """

    def __init__(self, config: Config) -> None:
        super().__init__({"valid": Out(1), "channel": Out(config.channel_bits)})


class Scheduler(wiring.Component):
    """Selects the channel to serve next, and decides when the served channel must let go.

    The oldest channel that can proceed is known one cycle (two with more than 16 channels) after it
    can; the choice is checked against the present state before it is offered.

    Members
    -------
    parked : in, a `Parked`: channels that are `ready`, and those that are `wanting` an engine
        alone.
    turns : in, a `Turns`: channels that have a turn. The served channel must let go in the cycle
        after it has none.
    engines : in, an `EngineStatus`: copies and reservations (`copying`, `keeping`).
    arrivals : in, an `ArrivalOrder`: arrival of each channel's head command.
    served : in, a `Served`: the served channel.
    choice : in, a `ChoicePort`: the method pipeline.
    slice : in, 32 bits: slice of the channel taken, in cycles, with `choice.taken`; 0 counts as 1.
    client : in, a `SlicePort`: the execution of methods.
    floor : out, a `Floor`: the channel that has the floor, from the cycle after `choice.take`.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "parked": In(Parked(config)),
            "turns": In(Turns(config)),
            "engines": In(EngineStatus(config)),
            "arrivals": In(ArrivalOrder(config)),
            "served": In(Served(config)),
            "choice": In(ChoicePort(config)),
            "slice": In(32),
            "client": In(SlicePort(config)),
            "floor": Out(Floor(config)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.oldest = oldest = OldestFirst(config)
        # Registered, one-hot: holder of the floor.
        self._owner = owner = Signal(config.channels, name="owner")
        # Registered: the holder's slice is over; a guest's slice is over.
        self._over = Signal(name="over")
        self._guest_over = Signal(name="guest_over")
        self._ready = Signal(config.channels)
        self._rivals = Signal(config.channels)
        self._other = Signal()
        self._has_floor = Signal()
        self._floor_ready = Signal()
        # The holder has a turn; a copy running (`_copying`); both (`_floor_copying`).
        turn = Signal()
        self._copying = Signal()
        self._floor_copying = Signal()
        served = (1 << self.served.channel) & self.served.active.replicate(config.channels)
        # The choice lags: its channel may have been taken meanwhile.
        taken = self.served.active & oldest.choice.bit_select(self.served.channel, 1)
        m.d.comb += [
            self._ready.eq(self.parked.ready & self.turns.eligible),
            self._rivals.eq(self._ready & ~owner),
            oldest.candidates.eq(self._rivals & ~served),
            oldest.stamps.eq(self.arrivals.stamps),
            self.client.candidate.valid.eq(oldest.found),
            self.client.candidate.channel.eq(oldest.channel),
            self._other.eq((oldest.choice & self._rivals).any() & ~taken),
            self._has_floor.eq(self.floor.valid & (self.served.channel == self.floor.channel)),
            turn.eq((self.turns.eligible & owner).any()),
            self._floor_ready.eq(turn & (self.parked.ready & owner).any()),
            self._copying.eq((self.engines.copying & owner).any()),
            self._floor_copying.eq(turn & self._copying),
        ]
        begins = self._choose(m, oldest)
        # No other channel wants the floor: its holder continues with a fresh slice (COPY-8).
        nobody = ~self._rivals.any() & ~self._floor_copying
        ends, guest_ends = self._slices(m, begins, self.served.active & self._has_floor & nobody)
        self._let_go(m, ends, guest_ends)
        return m

    def _choose(self, m: Module, oldest: OldestFirst) -> Value:
        """The target, and the holder of the floor once it is taken; returns whether a slice begins
        with `choice.take`."""
        keeps = Signal()
        # Registered, for timing: the holder is the target if it can proceed. Right after its own
        # service it most likely cannot.
        prefers = Signal()
        m.d.comb += [
            keeps.eq(self._floor_ready & ~(self._over & self._rivals.any())),
            self.choice.target.eq(Mux(prefers, self.floor.channel, oldest.channel)),
            self.choice.found.eq(Mux(prefers, keeps, self._other & ~keeps)),
        ]
        m.d.sync += prefers.eq(keeps & ~(self.served.active & self._has_floor))
        # Only a target that was found is taken. So it is the holder exactly if `prefers`, and
        # another channel only if the holder cannot proceed or its slice is over.
        with m.If(self.choice.take & ~prefers & ~self._floor_copying):
            m.d.sync += [
                self.floor.valid.eq(1),
                self.floor.channel.eq(oldest.channel),
                self._owner.eq(oldest.choice),
            ]
        with m.Elif(~self.served.active & ~self._floor_ready & ~self._floor_copying):
            m.d.sync += [self.floor.valid.eq(0), self._owner.eq(0)]
        return ~self._floor_copying & (~prefers | self._over)

    def _let_go(self, m: Module, ends: Value, guest_ends: Value) -> None:
        """When the served channel must let go, and how long a reservation lets it stay."""
        rivalled = Signal()
        waited = Signal(range(PATIENCE))
        patient = waited != PATIENCE - 1
        keeps = self.engines.keeping.bit_select(self.served.channel, 1)
        # `yields`: its slice is over, and another channel waits. `returns`: a guest makes way for
        # the holder, or for the next one. `expelled`: it has no turn.
        yields = Mux(self._has_floor, ends & ~self._floor_copying, guest_ends) & self._other
        returns = ~self._has_floor & Mux(
            self._over, self.floor.valid & ~self._floor_copying, self._floor_ready
        )
        expelled = ~self.turns.eligible.bit_select(self.served.channel, 1)
        spends = self.served.active & self._has_floor & self._over
        m.d.sync += [
            rivalled.eq(
                (self._rivals | (self.parked.wanting & self.turns.eligible & ~self._owner)).any()
            ),
            self.choice.leave.eq(self.served.active & (yields | returns | expelled)),
        ]
        m.d.comb += self.client.spent.eq(spends & self._copying & rivalled)
        m.d.sync += self.choice.stay.eq(
            ((keeps & ~self.client.launches) | self.client.reserves) & patient
        )
        with m.If(~self.served.active):
            m.d.sync += waited.eq(0)
        with m.Elif(self.choice.leave & self.choice.stay & patient):
            m.d.sync += waited.eq(waited + 1)

    def _slices(self, m: Module, begins: Value, alone: Value) -> tuple[Value, Value]:
        """Time left of both slices. Late signals only decide whether they are over; a counter is
        set one cycle later, and is meaningless while its slice is over.

        Returns whether the holder's and a guest's slice are over in this cycle or the next.
        """
        left = Signal(32)
        guest_left = Signal(32)
        # Registered, for timing: the counter is 1.
        last = Signal()
        guest_last = Signal()
        over, guest_over = self._over, self._guest_over
        # `fresh`: the channel taken begins a slice as the holder. `renewed`: the holder's slice was
        # renewed in the previous cycle.
        fresh = Signal()
        renewed = Signal()
        # `rest`: the holder's slice less one cycle. `single`, `double`: it is one or two cycles
        # long.
        rest = Signal(32)
        single = Signal()
        double = Signal()
        length = Signal(32)
        short = self.slice[1:] == 0
        m.d.comb += length.eq(self.slice | (self.slice == 0))
        granted = self.choice.taken & fresh
        m.d.sync += [
            left.eq(left - 1),
            last.eq(left == 2),
            guest_left.eq(guest_left - 1),
            guest_last.eq(guest_left == 2),
            renewed.eq(0),
        ]
        with m.If(last):
            m.d.sync += over.eq(1)
        with m.If(guest_last):
            m.d.sync += guest_over.eq(1)
        with m.If(renewed):
            m.d.sync += [left.eq(rest), last.eq(double), over.eq(single)]
        with m.If(self.choice.take):
            # The slice itself comes in the next cycle.
            m.d.sync += [fresh.eq(begins), guest_over.eq(0)]
            with m.If(begins):
                m.d.sync += over.eq(0)
        with m.If(self.choice.taken):
            m.d.sync += [guest_left.eq(length), guest_last.eq(short), guest_over.eq(0)]
        with m.If(granted):
            m.d.sync += [
                left.eq(length),
                last.eq(short),
                over.eq(0),
                rest.eq(self.slice - 1),
                single.eq(short),
                double.eq(self.slice == 2),
            ]
        with m.If(self.client.give_up):
            with m.If(self._has_floor):
                m.d.sync += over.eq(1)
            with m.Else():
                m.d.sync += guest_over.eq(1)
        with m.If(alone & over & ~self.client.give_up):
            m.d.sync += [over.eq(0), renewed.eq(1)]
        ends = over | (last & ~renewed & ~granted)
        return ends, guest_over | (guest_last & ~self.choice.taken)
