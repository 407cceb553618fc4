"""Floor, slices and choice of the channel to serve (COPY-5 … COPY-9). Rules: `hw/README.md`."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.oldest import STAMP_BITS, Oldest
from hw.host.prefetch import channel_event

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
    keeping : per channel: it has reserved an engine for its next copy.
    serving, served : a channel is being served, and which.
    target, target_valid : whom to serve next; `take` when it is done. `target` is known early.
    candidate : who is likely to be the target, known early; the floor's holder is left out.
    slice_valid, slice : the slice of the channel taken in the previous cycle; 0 counts as 1.
    leave : register: the served channel must let go between two methods, for what was so in the
        cycle before. No acquire of it may be decided in this cycle, and no copy unless `stay`.
    stay : it has passed an acquire of its next copy and goes on until it comes to that copy or to
        another acquire (COPY-13), for at most `PATIENCE` cycles.
    spent : the served channel has the floor and a running copy, but its slice is over and another
        can proceed, or could a cycle ago: it may not start a further copy behind (COPY-6, COPY-8).
    give_up : the served channel yields the rest of its slice.
    floor_valid, floor : who has the floor.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ready": In(config.channels),
            "copying": In(config.channels),
            "keeping": In(config.channels),
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
            "floor_valid": Out(1),
            "floor": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.oldest = oldest = Oldest(config)
        # Register, one-hot: who has the floor.
        self._owner = owner = Signal(config.channels)
        # Registers: the slice of the holder, that of a guest is over.
        self._over = over = Signal(init=1)
        self._guest_over = Signal(init=1)
        has_floor, other = Signal(), Signal()
        floor_ready, floor_copying = Signal(), Signal()
        keeps, renew, promote, lose = Signal(), Signal(), Signal(), Signal()
        # Register: the holder is the target, if it can; known early. The holder that has just been
        # served most likely cannot.
        prefers = Signal()
        m.d.sync += prefers.eq(keeps & ~(self.serving & has_floor))
        rivals = Signal(config.channels)

        served = (1 << self.served) & self.serving.replicate(config.channels)
        m.d.comb += [
            rivals.eq(self.ready & ~owner),
            oldest.candidates.eq(rivals & ~served),
            oldest.stamps.eq(self.stamps),
            self.candidate.valid.eq(oldest.found),
            self.candidate.channel.eq(oldest.channel),
            has_floor.eq(self.floor_valid & (self.served == self.floor)),
            floor_ready.eq((self.ready & owner).any()),
            floor_copying.eq((self.copying & owner).any()),
            other.eq((oldest.choice & rivals).any()),
        ]
        # `promote` needs no look at `rivals`, which come late: `other` is one of them.
        m.d.comb += [
            keeps.eq(floor_ready & ~(over & rivals.any())),
            self.target.eq(Mux(prefers, self.floor, oldest.channel)),
            self.target_valid.eq(Mux(prefers, keeps, other & ~keeps)),
            renew.eq(keeps & over & ~floor_copying),
            promote.eq(~prefers & other & ~floor_copying & (over | ~floor_ready)),
            lose.eq(~floor_ready & ~floor_copying),
        ]
        rivalled = Signal()
        m.d.sync += rivalled.eq(rivals.any())
        m.d.comb += self.spent.eq(self.serving & has_floor & over & floor_copying & rivalled)
        with m.If(self.take & promote):
            m.d.sync += [
                self.floor_valid.eq(1),
                self.floor.eq(oldest.channel),
                owner.eq(oldest.choice),
            ]
        with m.Elif(~self.take & ~self.serving & lose):
            m.d.sync += [self.floor_valid.eq(0), owner.eq(0)]
        # Nobody else wants the floor: its holder goes on with a fresh slice (COPY-8).
        alone = self.serving & has_floor & ~rivals.any() & ~floor_copying
        ends, guest_ends = self._slices(m, promote | renew, has_floor, alone)
        wanted, waited = Signal(), Signal(range(PATIENCE + 1))
        m.d.comb += [
            wanted.eq(
                self.serving
                & Mux(
                    has_floor,
                    ends & ~floor_copying & other,
                    (floor_ready & ~over)
                    | (self.floor_valid & over & ~floor_copying)
                    | (guest_ends & other),
                )
            ),
            self.stay.eq(self.keeping.bit_select(self.served, 1) & (waited != PATIENCE)),
        ]
        m.d.sync += self.leave.eq(wanted)
        with m.If(~self.serving):
            m.d.sync += waited.eq(0)
        with m.Elif(self.leave & self.stay):
            m.d.sync += waited.eq(waited + 1)
        return m

    def _slices(
        self, m: Module, begins: Value, has_floor: Value, alone: Value
    ) -> tuple[Value, Value]:
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
        single = Signal(init=1)
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
        with m.If(self.give_up & ~self.slice_valid):
            with m.If(has_floor):
                m.d.sync += over.eq(1)
            with m.Else():
                m.d.sync += guest_over.eq(1)
        with m.If(alone & over & ~self.give_up):
            m.d.sync += [over.eq(0), renewed.eq(1)]
        return over | ((left == 1) & ~renewed & ~granted), guest_over | (
            (guest_left == 1) & ~self.slice_valid
        )
