"""Floor, slices and choice of the channel to serve (COPY-5 … COPY-9). Rules: `hw/README.md`."""

from amaranth.hdl import Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.config import Config
from hw.host.oldest import STAMP_BITS, Oldest

__all__ = ["Scheduler"]

FOREVER = (1 << 32) - 1
"""Cycles of a slice whose length is not yet known."""


class Scheduler(wiring.Component):
    """Says whom to serve next, and when the served channel must let go.

    The oldest channel that can proceed is known one cycle (with more than 16 channels, two) after
    it can; the choice is checked against the present again before it is offered.

    Members
    -------
    ready, copying : per channel: its head can proceed; own copies run.
    stamps : arrival of each channel's head command.
    serving, served : a channel is being served, and which.
    target, target_valid : whom to serve next; `take` when it is done.
    slice_valid, slice : the slice of the channel taken in the previous cycle.
    leave : the served channel must let go between two methods. No acquire and no copy of it may
        be decided in this cycle.
    spent : the served channel has the floor and a running copy, but its slice is over: it may not
        start a further copy behind (COPY-6).
    give_up : the served channel yields the rest of its slice.
    floor_valid, floor : who has the floor.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ready": In(config.channels),
            "copying": In(config.channels),
            "stamps": In(data.ArrayLayout(STAMP_BITS, config.channels)),
            "serving": In(1),
            "served": In(config.channel_bits),
            "target": Out(config.channel_bits),
            "target_valid": Out(1),
            "take": In(1),
            "slice_valid": In(1),
            "slice": In(32),
            "leave": Out(1),
            "spent": Out(1),
            "give_up": In(1),
            "floor_valid": Out(1),
            "floor": Out(config.channel_bits),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.oldest = oldest = Oldest(self._config)
        left = Signal(32)
        guest_left = Signal(32)
        fresh = Signal()
        span = Signal(32)
        # Registers: the counter is 0.
        over = Signal(init=1)
        guest_over = Signal(init=1)
        has_floor, other = Signal(), Signal()
        floor_ready, floor_copying = Signal(), Signal()
        renew, promote, lose = Signal(), Signal(), Signal()
        rivals = Signal(self._config.channels)
        # Register, one-hot: who has the floor.
        owner = Signal(self._config.channels)

        served = (1 << self.served) & self.serving.replicate(self._config.channels)
        m.d.comb += [
            rivals.eq(self.ready & ~owner),
            oldest.candidates.eq(rivals & ~served),
        ]
        m.d.comb += [
            oldest.stamps.eq(self.stamps),
            has_floor.eq(owner.bit_select(self.served, 1)),
            floor_ready.eq(self.floor_valid & self.ready.bit_select(self.floor, 1)),
            floor_copying.eq(self.floor_valid & self.copying.bit_select(self.floor, 1)),
            other.eq(oldest.found & rivals.bit_select(oldest.channel, 1)),
        ]
        with m.If(floor_copying & (over | ~floor_ready)):
            m.d.comb += [self.target.eq(oldest.channel), self.target_valid.eq(other)]
        with m.Elif(floor_ready & ~(over & rivals.any())):
            m.d.comb += [self.target.eq(self.floor), self.target_valid.eq(1), renew.eq(over)]
        with m.Else():
            m.d.comb += [self.target.eq(oldest.channel), self.target_valid.eq(other)]
            m.d.comb += [promote.eq(other), lose.eq(~floor_ready)]

        with m.If(self.serving):
            m.d.comb += [
                self.spent.eq(has_floor & over & floor_copying),
                self.leave.eq(
                    Mux(
                        has_floor,
                        over & ~floor_copying & other,
                        (floor_ready & ~over)
                        | (self.floor_valid & over & ~floor_copying)
                        | (guest_over & other),
                    )
                ),
            ]
        counters = (left, over), (guest_left, guest_over)
        self._slices(m, *counters, fresh, renew, promote, has_floor)
        with m.If(self.take & promote):
            m.d.sync += [
                self.floor_valid.eq(1),
                self.floor.eq(oldest.channel),
                owner.eq(1 << oldest.channel),
            ]
        with m.Elif(~self.take & ~self.serving & lose):
            m.d.sync += [self.floor_valid.eq(0), owner.eq(0)]
        # Nobody else wants the floor: its holder goes on with a fresh slice (COPY-8).
        alone = ~rivals.any() & ~floor_copying & ~self.give_up
        with m.If(self.serving & has_floor & over & alone):
            self._set(m, counters[0], span)
        with m.If(self.slice_valid & fresh):
            m.d.sync += span.eq(self.slice)
        return m

    @staticmethod
    def _set(m: Module, counter: tuple[Signal, Signal], value: ValueLike) -> None:
        left, over = counter
        m.d.sync += [left.eq(value), over.eq(Value.cast(value) == 0)]

    def _slices(self, m, holder, guest, fresh, renew, promote, has_floor) -> None:
        for left, over in (holder, guest):
            with m.If(~over):
                m.d.sync += [left.eq(left - 1), over.eq(left == 1)]
        with m.If(self.take):
            # Until the slice itself is known, one cycle later, it is not over.
            m.d.sync += fresh.eq(promote | renew)
            self._set(m, guest, FOREVER)
            with m.If(promote | renew):
                self._set(m, holder, FOREVER)
        with m.If(self.slice_valid):
            self._set(m, guest, self.slice)
            with m.If(fresh):
                self._set(m, holder, self.slice)
        with m.Elif(self.give_up):
            with m.If(has_floor):
                self._set(m, holder, 0)
            with m.Else():
                self._set(m, guest, 0)
