"""Floor, slices and choice of the channel to serve (COPY-5 … COPY-9). Rules: `hw/README.md`."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.host.oldest_first import STAMP_BITS, OldestFirst
from signalbox.hw.records.channel import channel_event

__all__ = ["PATIENCE", "Scheduler"]

PATIENCE = 127
"""Cycles that a channel with a reserved engine stays longer than it may, to come to its copy:
enough for the settings of a copy that are fetched, at a dword per cycle."""


class Scheduler(wiring.Component):
    """Says whom to serve next, and when the served channel must let go.

    The oldest channel that can proceed is known one cycle (with more than 16 channels, two) after
    it can; the choice is checked against the present again before it is offered.

    Members
    -------
    ready, copying : per channel: its head can proceed; own copies run.
    stamps : arrival of each channel's head command.
    keeping : per channel: it has reserved an engine for its next copy. wanting : it waits for one.
    serving, served : a channel is being served, and which.
    target, target_valid : whom to serve next; `take` when it is done. `target` is known early.
    candidate : who is likely to be the target, known early; the floor's holder is left out.
    slice_valid, slice : the slice of the channel taken in the previous cycle; 0 counts as 1.
    leave : register: the served channel must let go between two methods, for what was so in the
        cycle before. No acquire of it may be decided in this cycle, and no copy unless `stay`.
    stay : register: it has passed an acquire of its next copy and goes on until it comes to that
        copy or to another acquire (COPY-13), for at most `PATIENCE` cycles.
    reserves, launches : the served channel reserves an engine; it starts a copy.
    spent : the served channel has the floor and a running copy, but its slice is over, and a cycle
        ago another could proceed or waited for an engine only: it may not start a further copy
        behind (COPY-6, COPY-8).
    give_up : the served channel yields the rest of its slice.
    floor_valid, floor : who has the floor.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ready": In(config.channels),
            "copying": In(config.channels),
            "keeping": In(config.channels),
            "wanting": In(config.channels),
            "stamps": In(data.ArrayLayout(STAMP_BITS, config.channels)),
            "serving": In(1),
            "served": In(config.channel_bits),
            "target": Out(config.channel_bits),
            "target_valid": Out(1),
            "candidate": Out(channel_event(config)),
            "take": In(1),
            "slice_valid": In(1),
            "slice": In(32),
            "leave": Out(1),
            "stay": Out(1),
            "spent": Out(1),
            "give_up": In(1),
            "reserves": In(1),
            "launches": In(1),
            "floor_valid": Out(1),
            "floor": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.oldest = oldest = OldestFirst(config)
        # Register, one-hot: who has the floor.
        self._owner = owner = Signal(config.channels)
        # Registers: the slice of the holder, that of a guest is over.
        self._over = Signal()
        self._guest_over = Signal()
        self._rivals, self._other = Signal(config.channels), Signal()
        self._has_floor, self._floor_ready, self._floor_copying = Signal(), Signal(), Signal()
        served = (1 << self.served) & self.serving.replicate(config.channels)
        # The choice is older: it may be the channel that has been taken since.
        others = Signal(config.channels)
        m.d.comb += [
            self._rivals.eq(self.ready & ~owner),
            others.eq(self._rivals & ~served),
            oldest.candidates.eq(others),
            oldest.stamps.eq(self.stamps),
            self.candidate.valid.eq(oldest.found),
            self.candidate.channel.eq(oldest.channel),
            self._other.eq((oldest.choice & others).any()),
            self._has_floor.eq(self.floor_valid & (self.served == self.floor)),
            self._floor_ready.eq((self.ready & owner).any()),
            self._floor_copying.eq((self.copying & owner).any()),
        ]
        begins = self._choose(m, oldest)
        # Nobody else wants the floor: its holder goes on with a fresh slice (COPY-8).
        nobody = ~self._rivals.any() & ~self._floor_copying
        ends, guest_ends = self._slices(m, begins, self.serving & self._has_floor & nobody)
        self._let_go(m, ends, guest_ends)
        return m

    def _choose(self, m: Module, oldest: OldestFirst) -> Value:
        """The target, and who has the floor once it is taken; returns whether it begins a slice."""
        keeps, renew, promote, lose = Signal(), Signal(), Signal(), Signal()
        # Register: the holder is the target, if it can; known early. The holder that has just been
        # served most likely cannot.
        prefers = Signal()
        # `promote` needs no look at `rivals`, which come late: `other` is one of them, so a holder
        # whose slice is over is no target.
        m.d.comb += [
            keeps.eq(self._floor_ready & ~(self._over & self._rivals.any())),
            self.target.eq(Mux(prefers, self.floor, oldest.channel)),
            self.target_valid.eq(Mux(prefers, keeps, self._other & ~keeps)),
            renew.eq(keeps & self._over & ~self._floor_copying),
            promote.eq((self._other & ~self._floor_copying) & (self._over | ~self._floor_ready)),
            lose.eq(~self._floor_ready & ~self._floor_copying),
        ]
        m.d.sync += prefers.eq(keeps & ~(self.serving & self._has_floor))
        with m.If(self.take & promote):
            m.d.sync += [
                self.floor_valid.eq(1),
                self.floor.eq(oldest.channel),
                self._owner.eq(oldest.choice),
            ]
        with m.Elif(~self.take & ~self.serving & lose):
            m.d.sync += [self.floor_valid.eq(0), self._owner.eq(0)]
        return promote | renew

    def _let_go(self, m: Module, ends: Value, guest_ends: Value) -> None:
        """What the served channel must or may not do, because others can proceed."""
        rivalled, waited = Signal(), Signal(range(PATIENCE))
        patient, keeps = waited != PATIENCE - 1, self.keeping.bit_select(self.served, 1)
        holder_must = ends & ~self._floor_copying & self._other
        guest_must = (
            (self._floor_ready & ~self._over)
            | (self.floor_valid & self._over & ~self._floor_copying)
            | (guest_ends & self._other)
        )
        spends = self.serving & self._has_floor & self._over
        m.d.sync += [
            rivalled.eq((self._rivals | (self.wanting & ~self._owner)).any()),
            self.leave.eq(self.serving & Mux(self._has_floor, holder_must, guest_must)),
        ]
        m.d.comb += self.spent.eq(spends & self._floor_copying & rivalled)
        m.d.sync += self.stay.eq(((keeps & ~self.launches) | self.reserves) & patient)
        with m.If(~self.serving):
            m.d.sync += waited.eq(0)
        with m.Elif(self.leave & self.stay & patient):
            m.d.sync += waited.eq(waited + 1)

    def _slices(self, m: Module, begins: Value, alone: Value) -> tuple[Value, Value]:
        """Time that is left of both slices. What comes late decides only whether they are over; a
        counter is set one cycle later, and means nothing while its slice is over.

        Returns whether the holder's slice and a guest's are over now or in the next cycle."""
        left = Signal(32)
        guest_left = Signal(32)
        over, guest_over = self._over, self._guest_over
        # The taken channel's slice is the holder's; the holder's slice has begun anew.
        fresh = Signal()
        renewed = Signal()
        # The holder's slice less one cycle, and whether that is no time.
        rest = Signal(32)
        single = Signal()
        length = Signal(32)
        m.d.comb += length.eq(self.slice | (self.slice == 0))
        granted = self.slice_valid & fresh
        m.d.sync += [left.eq(left - 1), guest_left.eq(guest_left - 1), renewed.eq(0)]
        with m.If(left == 1):
            m.d.sync += over.eq(1)
        with m.If(guest_left == 1):
            m.d.sync += guest_over.eq(1)
        with m.If(renewed):
            m.d.sync += [left.eq(rest), over.eq(single)]
        with m.If(self.take):
            # The slice itself comes in the next cycle.
            m.d.sync += [fresh.eq(begins), guest_over.eq(0)]
            with m.If(begins):
                m.d.sync += over.eq(0)
        with m.If(self.slice_valid):
            m.d.sync += [guest_left.eq(length), guest_over.eq(0)]
        with m.If(granted):
            m.d.sync += [
                left.eq(length),
                over.eq(0),
                rest.eq(self.slice - 1),
                single.eq(self.slice[1:] == 0),
            ]
        with m.If(self.give_up):
            with m.If(self._has_floor):
                m.d.sync += over.eq(1)
            with m.Else():
                m.d.sync += guest_over.eq(1)
        with m.If(alone & over & ~self.give_up):
            m.d.sync += [over.eq(0), renewed.eq(1)]
        return over | ((left == 1) & ~renewed & ~granted), guest_over | (
            (guest_left == 1) & ~self.slice_valid
        )
