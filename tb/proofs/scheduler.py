"""Proofs of floor, slices and choice of the next channel (COPY-5 … COPY-9, HOST-7)."""

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.host.oldest_first import STAMP_BITS, OldestFirst
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)
from signalbox.tb.proofs.host import drive

__all__ = ["PROOFS"]


class OldestProof(Proof):
    name = "host.oldest"
    shows = (
        "of four channels the choice is a candidate of the cycle before, and no candidate then had "
        "an older stamp; equal stamps: the lower channel (stamps of 5 bits)"
    )
    induction = 1
    cover = 3
    STAMP_BITS = 5
    LEVEL_BITS = 0

    def build(self, m: Module, wrap: Wrap) -> None:
        config = Config(channels=4)
        dut = OldestFirst(config, self.STAMP_BITS, level_bits=self.LEVEL_BITS)
        m.submodules.dut = wrap(dut)
        drive(m, dut.candidates, "candidates")
        # Stamps lie within half of the range, from `first` on.
        first = anything(m, self.STAMP_BITS, "first")
        age = [
            anything(m, self.STAMP_BITS - 1, f"age_{channel}") for channel in range(config.channels)
        ]
        candidates = Signal(config.channels)
        ages = Signal(data.ArrayLayout(unsigned(self.STAMP_BITS - 1), config.channels))
        levels = [Signal(2, name=f"level_{channel}") for channel in range(config.channels)]
        m.d.sync += candidates.eq(dut.candidates)
        for channel in range(config.channels):
            m.d.comb += dut.stamps[channel].eq(first + age[channel])
            m.d.sync += ages[channel].eq(age[channel])
            if self.LEVEL_BITS:
                m.d.comb += dut.levels[channel].eq(anything(m, 2, f"given_level_{channel}"))
                m.d.sync += levels[channel].eq(dut.levels[channel])

        m.d.comb += [Assert(dut.found == candidates.any()), Cover(candidates.all())]
        for channel in range(config.channels):
            with m.If(dut.found & (dut.channel == channel)):
                m.d.comb += Assert(candidates[channel])
                for other in range(config.channels):
                    before = Mux(
                        channel < other,
                        ages[channel] <= ages[other],
                        ages[channel] < ages[other],
                    )
                    higher = levels[channel] > levels[other]
                    same = levels[channel] == levels[other]
                    if other != channel:
                        m.d.comb += Assert(~candidates[other] | higher | (same & before))


class OldestOfLevelProof(OldestProof):
    name = "host.oldest_of_level"
    shows = (
        "of four channels with levels of 2 bits the choice is of the highest level among the "
        "candidates of the cycle before, and among these as without levels"
    )
    LEVEL_BITS = 2


class _Slice:
    """Specification of a slice.

    Members
    -------
    started : whether a slice has begun at all.
    elapsed, length : cycles since it began, from 1 to 15; its length.
    ends : the slice is over in this or the next cycle; meaningless while a slice begins.
    """

    def __init__(
        self, m: Module, name: str, begins: Value, anew: Value, yields: Value, length: Value
    ) -> None:
        self.started = Signal(name=f"spec_{name}_started")
        self.elapsed = Signal(4, name=f"spec_{name}_elapsed")
        self.length = Signal(4, name=f"spec_{name}_length")
        self._yielded = yielded = Signal(name=f"spec_{name}_yielded")
        m.d.sync += [
            self.elapsed.eq(Mux(begins | anew, 1, self.elapsed + ~self.elapsed.all())),
            yielded.eq((yielded | yields) & ~(begins | anew)),
        ]
        with m.If(begins):
            m.d.sync += [self.started.eq(1), self.length.eq(Mux(length == 0, 1, length))]
        self.ends = self.started & ((self.elapsed >= self.length) | yielded)

    def check(
        self, m: Module, begins: Value, over: Value, left: Value, last: Value, waits: Value
    ) -> None:
        """Check that the design agrees. `waits` : `left` and `last` are not set yet."""
        with m.If(begins):
            m.d.comb += Assert(~over)
        with m.Elif(self.started):
            m.d.comb += [
                Assert((self.length != 0) & (self.length < 8) & (self.elapsed != 0)),
                Assert(over == ((self.elapsed > self.length) | self._yielded)),
                Assert(over | waits | (left == self.length + 1 - self.elapsed)),
                Assert(over | waits | (last == (left == 1))),
            ]


class SchedulerProof(Proof):
    name = "host.scheduler"
    shows = (
        "the target can proceed; a holder that can is the target until its slice is over, and goes "
        "on while nobody else can; it keeps the floor while its copy runs, then it leaves for "
        "another that can proceed; a guest leaves when the holder can proceed within its slice, "
        "when that is over and no copy runs, or for another when its own is; slices, also renewed "
        "ones and those of guests, last exactly as long as they were set; there is a target "
        "whenever another can proceed, a cycle later where the holder was likelier; only channels "
        "with a turn count as able to proceed or as holders with a copy, and a served channel "
        "without one leaves"
    )
    induction = 3
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        config = Config(channels=3)
        dut = Scheduler(config)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        drive(m, dut.parked, "parked", "ready", "wanting")
        drive(m, dut.turns, "turns", "eligible")
        drive(m, dut.served, "served", "active", "channel")
        drive(m, dut.choice, "choice", "take")
        drive(m, dut.engines, "engines", "copying", "keeping")
        drive(m, dut.client, "client", "give_up", "reserves", "launches")
        first = anything(m, STAMP_BITS, "first")
        for channel in range(config.channels):  # stamps lie within half of the range
            age = anything(m, STAMP_BITS - 1, f"age_{channel}")
            m.d.comb += dut.arrivals.stamps[channel].eq(first + age)
        took, target, serves, served = Signal(), Signal(2), Signal(), Signal(2)
        over = inside.signal("over")
        m.d.comb += Assert(inside.signal("owner") == (1 << dut.floor.channel) * dut.floor.valid)
        floor = (dut.floor.valid, dut.floor.channel)
        able = dut.parked.ready & dut.turns.eligible
        ready = self._of(able, *floor)
        copying = self._of(dut.engines.copying & dut.turns.eligible, *floor)
        holder_served = (
            dut.served.active & dut.floor.valid & (dut.served.channel == dut.floor.channel)
        )
        m.d.sync += [
            took.eq(dut.choice.take),
            target.eq(dut.choice.target),
            serves.eq(dut.served.active),
            served.eq(dut.served.channel),
        ]
        m.d.comb += [
            Assume(dut.served.channel < config.channels),
            Assume(~(serves & dut.served.active) | (dut.served.channel == served)),
            Assume(~dut.choice.take | (dut.choice.found & ~dut.served.active)),
            Assume(~took | (dut.served.active & (dut.served.channel == target))),
            Assume(~dut.client.give_up | (dut.served.active & ~took)),
            dut.choice.taken.eq(took),
            dut.slice.eq(anything(m, 3, "slice")),
            Assert(~dut.floor.valid | (dut.floor.channel < config.channels)),
        ]
        other = self._other(m, dut)
        # The holder of the floor continues while it can, until its slice is over and another
        # channel can proceed. It is offered if this held in the previous cycle and the holder was
        # not being served.
        rivals = (able & ~inside.signal("owner")).any()
        goes_on, went_on = Signal(), Signal()
        m.d.comb += goes_on.eq(ready & ~(over & rivals))
        m.d.sync += went_on.eq(goes_on & ~holder_served)
        with m.If(dut.choice.found):
            m.d.comb += Assert(self._of(able, 1, dut.choice.target))
            m.d.comb += Assert(
                (dut.floor.valid & (dut.choice.target == dut.floor.channel)) == goes_on
            )
        with m.If(goes_on & went_on):
            m.d.comb += Assert(dut.choice.found)
        with m.If(~goes_on & ~went_on & other):
            m.d.comb += Assert(dut.choice.found)
        m.d.comb += [
            Cover(holder_served & dut.choice.leave),
            Cover(dut.choice.take & copying & (dut.choice.target != dut.floor.channel)),
        ]
        ends = self._slices(m, dut, inside, took, holder_served, copying, rivals)
        self._leaves(m, dut, over, other, ends, holder_served, ready, copying)
        self._moves(m, dut, ready, copying)

    @staticmethod
    def _of(bits: Value, valid: Any, channel: Value) -> Value:
        return valid & bits.bit_select(channel, 1)

    def _other(self, m: Module, dut: Scheduler) -> Value:
        """Whether channels other than the holder and the served one could proceed in the previous
        cycle, and all of them still can."""
        before, now = Signal(3), Signal(3)
        busy = (1 << dut.floor.channel) * dut.floor.valid | (
            (1 << dut.served.channel) * dut.served.active
        )[:3]
        m.d.comb += now.eq(dut.parked.ready & dut.turns.eligible & ~busy)
        m.d.sync += before.eq(now)
        return before.any() & ((before & ~now) == 0)

    def _slices(
        self,
        m: Module,
        dut: Scheduler,
        inside: Inside,
        took: Value,
        holder_served: Value,
        copying: Value,
        rivals: Value,
    ) -> tuple[Value, Value, Value]:
        """The holder's slice begins with a new holder or after its own end, and is renewed while
        the holder is alone. A guest's slice begins with each service.

        Returns whether each slice is over in this or the next cycle, and whether any slice has ever
        begun.
        """
        over, restarted = inside.signal("over"), inside.signal("renewed")
        begins, target = Signal(), Signal(2)
        m.d.sync += [
            begins.eq(
                ~dut.floor.valid | (dut.floor.channel != dut.choice.target) | (over & ~copying)
            ),
            target.eq(dut.choice.target),
        ]
        fresh = took & begins & dut.floor.valid & (dut.floor.channel == target)
        with m.If(took):
            m.d.comb += Assert(inside.signal("fresh") == fresh)
        anew = holder_served & ~rivals & ~copying & over & ~dut.client.give_up
        was_anew = Signal()
        m.d.sync += was_anew.eq(anew)
        m.d.comb += Assert(restarted == was_anew)

        holder = _Slice(m, "holder", fresh, anew, dut.client.give_up & holder_served, dut.slice)
        guest = _Slice(m, "guest", took, Const(0), dut.client.give_up & ~holder_served, dut.slice)
        single, double = inside.signal("single"), inside.signal("double")
        rest = inside.signal("rest")
        with m.If(holder.started):
            m.d.comb += [
                Assert(single == (holder.length == 1)),
                Assert(double == (holder.length == 2)),
                Assert(single | (rest == holder.length - 1)),
                Assert(~restarted | (holder.elapsed == 1)),
            ]
        left, last = inside.signal("left"), inside.signal("last")
        holder.check(m, fresh, over, left, last, restarted)
        left, last = inside.signal("guest_left"), inside.signal("guest_last")
        guest.check(m, took, inside.signal("guest_over"), left, last, Const(0))
        m.d.comb += [
            Assert(~dut.floor.valid | fresh | holder.started),
            Cover(was_anew & (holder.length > 2)),
        ]
        return ~fresh & holder.ends & ~restarted, ~took & guest.ends, guest.started | took

    def _leaves(
        self,
        m: Module,
        dut: Scheduler,
        over: Value,
        other: Value,
        ends: tuple[Value, Value, Value],
        holder_served: Value,
        ready: Value,
        copying: Value,
    ) -> None:
        """Leaving depends on the previous cycle. The holder leaves if its slice is over, none of
        its copies run, and another channel can proceed. A guest leaves if the holder can proceed
        within its slice, if the floor is free, or if its own slice is over and another channel can
        proceed. Either also leaves when it has no turn."""
        holder_ends, guest_ends, started = ends
        busy = ((1 << dut.served.channel) | (1 << dut.floor.channel) * dut.floor.valid)[:3]
        others = (dut.parked.ready & dut.turns.eligible & ~busy).any()
        expelled = ~self._of(dut.turns.eligible, 1, dut.served.channel)
        free = dut.floor.valid & over & ~copying
        anyway = ~holder_served & ((ready & ~over) | free)
        maybe = Mux(holder_served, holder_ends & ~copying, guest_ends)
        must, may, went_on = Signal(), Signal(), Signal()
        m.d.sync += [
            went_on.eq(dut.served.active & started),
            must.eq(dut.served.active & (anyway | (maybe & other) | expelled)),
            # `leave` has no meaning during a context change.
            may.eq(dut.served.active & (anyway | (maybe & others) | expelled | ~went_on)),
        ]
        m.d.comb += [Assert(~must | dut.choice.leave), Assert(~dut.choice.leave | may)]
        m.d.comb += Cover(dut.choice.leave & ~holder_served & guest_ends & ~free & ~ready)

    def _moves(self, m: Module, dut: Scheduler, ready: Value, copying: Value) -> None:
        """The floor moves to a target that is taken, or is lost by a holder that is not served and
        cannot proceed; never while a copy of the holder runs."""
        had, whose, target = Signal(), Signal(2), Signal(2)
        kept, took, lost = Signal(), Signal(), Signal()
        m.d.sync += [
            had.eq(dut.floor.valid),
            whose.eq(dut.floor.channel),
            target.eq(dut.choice.target),
            kept.eq(copying),
            took.eq(dut.choice.take),
            lost.eq(~dut.served.active & ~ready),
        ]
        with m.If(had & ~dut.floor.valid):
            m.d.comb += Assert(lost & ~kept)
        with m.If(dut.floor.valid & (~had | (dut.floor.channel != whose))):
            m.d.comb += Assert(took & (dut.floor.channel == target) & ~kept)


PROOFS = (OldestProof(), OldestOfLevelProof(), SchedulerProof())
