"""Proofs of the host: parked channels, floor, choice, engines, headers, order of methods."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Elaboratable, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data

from signalbox.hw.config import WINDOW_BASE, Config
from signalbox.hw.errors import Cause
from signalbox.hw.host.copy_launcher import MOST_COPIES, CopyLauncher
from signalbox.hw.host.fetch.prefetch_buffer import PrefetchBuffer
from signalbox.hw.host.methods.control_decoder import Action, verdict
from signalbox.hw.host.methods.decoder import Decoder, HeaderCheck, kind_of, traits_of
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.methods.pipeline import MethodPipeline, channel_edit
from signalbox.hw.host.oldest_first import STAMP_BITS, OldestFirst
from signalbox.hw.host.records import GroupMode, GroupState, ObjectKind, has_copies, head_beat
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.methods import Header, HostMethod, SecOp, SemOp
from signalbox.hw.records.channel import channel_event
from signalbox.hw.registers import Wait
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
    arbitrary,
)

__all__ = ["PROOFS"]

CONFIG = Config(
    channels=2,
    copy_engines=2,
    semaphores=8,
    counters=2,
    data_width=64,
    asids=1,
    prefetch_beats=8,
)


def drive(m: Module, record: Any, name: str, *fields: str) -> None:
    """Make the given fields of an input arbitrary, or the whole input if none are given. Other
    fields stay 0."""
    for field in fields:
        arbitrary(m, getattr(record, field), f"{name}_{field}")
    if not fields:
        arbitrary(m, record, name)


def concerns(event: Any, channel: Any) -> Value:
    """Whether the event is for `channel`."""
    return event.valid & (event.channel == channel)


def _any(bits: Any) -> Value:
    return reduce(or_, bits)


class ParkingProof(Proof):
    name = "host.parking"
    shows = (
        "a channel that waits for an on-chip semaphore is ready when that semaphore was updated "
        "since the cycle after `watch`, from then until it is served, and no other makes it ready; "
        "`held` says that "
        "all semaphores of the served channel's group are 0, and who waits for its group and an "
        "engine is ready when both were there in the cycle before; who waits for anything else is "
        "ready when it is there; `wanting` says who lacks an engine only"
    )
    induction = 2
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = Parking(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        states = ("alive", "occupied", "zero", "copying", "tasks", "engine", "queue", "retry")
        for name in (*states, "fenced", "over", "referring"):
            drive(m, getattr(dut, name), name)
        for name in ("park", "unpark", "watch", "update", "guard", "unguard", "clear"):
            drive(m, getattr(dut, name), name)
        m.d.comb += [
            Assume(dut.park.wait.as_value() <= Wait.COMPUTE.value),
            Assume((dut.guard.counter < CONFIG.counters) | ~dut.guard.valid),
        ]
        whose, serving = Signal(CONFIG.channel_bits), Signal()
        served, serves = dut.unpark.channel, dut.park.valid
        m.d.sync += [whose.eq(served), serving.eq(serves)]
        m.d.comb += [
            Assume(~serves | (dut.park.channel == served)),
            Assume(dut.unpark.valid == (serves & ~serving)),
            Assume(dut.unpark.valid | ~serves | (served == whose)),
        ]
        for event in (dut.guard, dut.unguard):
            here = serves & ~dut.unpark.valid & (event.channel == served)
            m.d.comb += Assume(~event.valid | here)
        unguard = Signal(dut.unguard.shape(), name="spec_unguard")
        watch = Signal(dut.watch.shape(), name="spec_watch")
        m.d.sync += [unguard.eq(dut.unguard), watch.eq(dut.watch)]
        m.d.comb += [
            Assert(inside.signal("unguarded") == unguard.as_value()),
            Assert(inside.signal("watching") == watch.as_value()),
        ]
        for channel in range(CONFIG.channels):
            self._wait(m, dut, inside, watch, channel)
            self._group(m, dut, inside, unguard, channel)

    def _wait(self, m: Module, dut: Parking, inside: Inside, watch, channel: int) -> None:
        wait = Signal(Wait, name=f"spec_wait_{channel}")
        watched = Signal(CONFIG.semaphore_bits, name=f"spec_watched_{channel}")
        updated = Signal(name=f"spec_updated_{channel}")
        with m.If(concerns(dut.park, channel)):
            m.d.sync += wait.eq(dut.park.wait)
        named = dut.update.valid & (dut.update.index == watched)
        hit = named & ~concerns(watch, channel)
        with m.If(concerns(watch, channel)):
            m.d.sync += [watched.eq(watch.index), updated.eq(0)]
        with m.Elif(hit):
            m.d.sync += updated.eq(1)

        ready, on_chip = dut.ready[channel], wait == Wait.ONCHIP
        m.d.comb += [
            Assert(dut.waits[channel] == wait),
            Assert(~ready | dut.alive[channel]),
            Assert(inside.signal(f"index_{channel}") == watched),
            Assert(inside.signal(f"maybe_{channel}") == updated),
        ]
        with m.If(on_chip & dut.alive[channel]):
            m.d.comb += Assert(ready == (updated | named | dut.retry[channel]))
        self._states(m, dut, wait, channel)
        m.d.comb += Cover(on_chip & updated & ready & ~dut.retry[channel])

    def _states(self, m: Module, dut: Parking, wait: Value, channel: int) -> None:
        """Waits that are over while a condition holds."""
        over = {
            Wait.NONE: dut.occupied,
            Wait.COPIES: ~dut.copying,
            Wait.TASKS: ~dut.tasks,
            Wait.RETRY: dut.retry,
            Wait.FENCE: dut.fenced,
            Wait.ENGINE_ONLY: dut.engine | dut.retry,
            Wait.QUEUE: dut.queue | ~dut.copying,
            Wait.ALL_IDLE: dut.over,
            Wait.TRANSLATION: dut.over,
            Wait.COMPUTE: dut.over,
            Wait.WRITEBACK: ~dut.referring,
            Wait.TURN: Const(-1, CONFIG.channels),
        }
        for one, bits in over.items():
            with m.If((wait == one) & dut.alive[channel]):
                m.d.comb += Assert(dut.ready[channel] == bits[channel])

    def _group(self, m: Module, dut: Parking, inside: Inside, unguard, channel: int) -> None:
        """The group is a set: `guard` adds (with precedence); `clear`, and one cycle later
        `unguard`, remove."""
        group = Signal(CONFIG.counters, name=f"spec_group_{channel}")
        kept, added = Signal.like(group), Signal.like(group)
        one = 1 << unguard.counter
        with m.If(concerns(dut.clear, channel)):
            m.d.comb += kept.eq(0)
        with m.Elif(concerns(unguard, channel)):
            m.d.comb += kept.eq(Mux(unguard.all, 0, group & ~one))
        with m.Else():
            m.d.comb += kept.eq(group)
        with m.If(concerns(dut.guard, channel)):
            m.d.comb += added.eq(1 << dut.guard.counter)
        m.d.sync += group.eq(kept | added)
        holds = ~_any(group[i] & ~dut.zero[i] for i in range(CONFIG.counters))
        held, joined = Signal(name=f"spec_held_{channel}"), Signal(name=f"spec_joined_{channel}")
        m.d.sync += [held.eq(holds), joined.eq(concerns(dut.guard, channel))]
        m.d.comb += [
            Assert(inside.signal(f"group_{channel}") == group),
            Assert(dut.holding[channel] == held),
            Assert(inside.signal(f"joined_{channel}") == joined),
        ]
        with m.If(dut.park.valid & ~dut.unpark.valid & (dut.unpark.channel == channel)):
            m.d.comb += [
                Assert(inside.signal("served") == group),
                Assert(dut.held == holds),
                Cover(group.all() & dut.held),
            ]
        with m.If(dut.alive[channel] & (dut.waits[channel] == Wait.ENGINE)):
            both = dut.engine[channel] & held & ~joined
            m.d.comb += Assert(dut.ready[channel] == (both | dut.retry[channel]))
        with m.If(dut.alive[channel] & (dut.waits[channel] == Wait.ENGINE_TIMED)):
            fails = ~held & ~joined
            m.d.comb += Assert(dut.ready[channel] == (dut.engine[channel] | fails))
        lacks = Signal(name=f"spec_lacks_{channel}")
        with m.Switch(dut.waits[channel]):
            with m.Case(Wait.ENGINE):
                m.d.comb += lacks.eq(held & ~joined)
            with m.Case(Wait.ENGINE_ONLY, Wait.ENGINE_TIMED):
                m.d.comb += lacks.eq(1)
        m.d.comb += Assert(dut.wanting[channel] == (lacks & dut.alive[channel]))


def lasting(m: Module, launch: Any, reserve: Any, told: Any) -> list[Value]:
    """Properties per channel: an engine that could take its copy in the previous cycle still can,
    and there is still room behind its running copy, unless a copy was started or another channel
    has made a reservation. `told` has `able`, `queue` and `copying`.

    `LauncherProof` proves it, assuming the host's earlier requests. `AcquireProof` assumes it, and
    proves the assumptions of `LauncherProof` on the current requests.
    """
    could, room = Signal(CONFIG.channels), Signal(CONFIG.channels)
    m.d.sync += room.eq(told.queue & told.copying & ~launch.valid.replicate(CONFIG.channels))
    found = []
    for channel in range(CONFIG.channels):
        taken = launch.valid | (reserve.valid & (reserve.channel != channel))
        m.d.sync += could[channel].eq(told.able[channel] & ~taken)
        found.append(
            (~could[channel] | told.able[channel])
            & (~(room[channel] & told.copying[channel]) | told.queue[channel])
        )
    return found


class LauncherProof(Proof):
    name = "host.launcher"
    shows = (
        "a launch starts one engine, which is idle or runs copies of the same channel; between "
        "reservation and launch, release or a cycle in which the channel does not work its one "
        "engine takes no other copy; `able` tells whether an engine can take a copy; it and "
        "`queue` end only with a launch or another's reservation; counts are launches minus ends"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = CopyLauncher(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        engines = range(CONFIG.copy_engines)
        self._host(m, dut)
        queued = Cat(port.command.valid for port in dut.engine)
        owner, home = inside.signal("owner"), inside.signal("home")
        reserved = inside.signal("reserved")

        # Model of an engine: a queue of copies, all of one channel; one may not have been handed
        # over.
        taken = [Signal(5, name=f"taken_{e}") for e in engines]
        whose = [Signal(CONFIG.channel_bits, name=f"whose_{e}") for e in engines]
        ends = []
        for e in engines:
            port = dut.engine[e]
            gets, ends_now = port.command.valid & port.command.ready, Signal(name=f"ends_{e}")
            m.d.comb += [
                port.command.ready.eq(anything(m, 1, f"ready_{e}")),
                port.done.valid.eq(anything(m, 1, f"done_{e}") & (taken[e] != 0)),
                port.done.payload.channel.eq(whose[e]),
                port.idle.eq(taken[e] == 0),
                ends_now.eq(port.done.valid & port.done.ready),
                Assert(taken[e] + queued[e] <= MOST_COPIES),
            ]
            m.d.sync += taken[e].eq(taken[e] + gets - ends_now)
            with m.If(port.command.valid):
                m.d.comb += Assert(port.command.payload.channel == whose[e])
            with m.If(dut.started[e]):
                m.d.sync += whose[e].eq(dut.launch.channel)
                free = port.idle & ~queued[e]
                own = (whose[e] == dut.launch.channel) & ~queued[e]
                m.d.comb += Assert(Mux(dut.launch.behind, own, free))
            ends.append(ends_now)
        m.d.comb += [
            Assert((dut.started & (dut.started - 1)) == 0),
            Assert(dut.started.any() == dut.launch.valid),
            Assert(dut.finished == Cat(ends)),
            Assert(dut.ended.valid == _any(ends)),
            Assert(~(ends[0] & ends[1])),
            Assert(dut.all_idle == ~_any(taken[e].any() | queued[e] for e in engines)),
        ]
        for channel, lasts in enumerate(lasting(m, dut.launch, dut.reserve, dut)):
            m.d.comb += Assert(lasts)
            mine = [(taken[e] + queued[e] != 0) & (whose[e] == channel) for e in engines]
            ended = [ends[e] & (whose[e] == channel) for e in engines]
            count = Signal(4, name=f"count_{channel}")
            m.d.comb += [
                Assert(concerns(dut.ended, channel) == _any(ended)),
                Assert(~(mine[0] & mine[1])),
                Assert(dut.counts[channel] == count),
                Assert(dut.copying[channel] == _any(mine)),
            ]
            m.d.sync += count.eq(count + concerns(dut.launch, channel) - _any(ended))
            for e in engines:
                with m.If(mine[e]):
                    m.d.comb += [
                        Assert(count == taken[e] + queued[e]),
                        Assert(home.word_select(channel, 1) == e),
                    ]
            holds = [reserved[e] & (owner.word_select(e, 1) == channel) for e in engines]
            foreign = [reserved[e] & (owner.word_select(e, 1) != channel) for e in engines]
            idle = [(taken[e] == 0) & ~queued[e] for e in engines]
            can = [idle[e] & ~foreign[e] for e in engines]
            m.d.comb += Assert(dut.able[channel] == _any(can))
            self._reservation(m, dut, channel, holds, idle)

    def _host(self, m: Module, dut: CopyLauncher) -> None:
        """Behaviour of `Execute` and `MethodPipeline`: one channel is served. It reserves an
        engine while none of its copies run, starts a copy if an engine is reported able, and starts
        further copies behind it only if there is room (`OrderProof`, `AcquireProof`)."""
        served = anything(m, CONFIG.channel_bits, "served")
        launch, reserve = dut.launch, dut.reserve
        self._working(m, dut)
        drive(m, launch, "launch", "valid", "behind", "interrupt")
        drive(m, reserve, "reserve", "valid")
        drive(m, dut.release, "release", "valid")
        m.d.comb += [
            launch.channel.eq(served),
            launch.command.channel.eq(served),
            reserve.channel.eq(served),
            dut.release.channel.eq(served),
            Assume(~(launch.valid & reserve.valid)),
        ]
        able, copying = (bits.bit_select(served, 1) for bits in (dut.able, dut.copying))
        with m.If(reserve.valid):
            m.d.comb += Assume(~copying)
        with m.If(launch.valid):
            queue = dut.queue.bit_select(served, 1)
            m.d.comb += Assume(Mux(launch.behind, copying & queue, able & ~copying))

    def _working(self, m: Module, dut: CopyLauncher) -> None:
        """Any channels may be working."""
        drive(m, dut.working, "working")

    def _reservation(
        self, m: Module, dut: CopyLauncher, channel: int, holds: list, idle: list
    ) -> None:
        has, engine = Signal(name=f"has_{channel}"), Signal(2, name=f"engine_{channel}")
        m.d.comb += [
            Assert(_any(holds) == has),
            Assert(dut.keeping[channel] == has),
            Assert(~(holds[0] & holds[1])),
            Assert(~has | ~dut.copying[channel]),
        ]
        launched, reserves = concerns(dut.launch, channel), concerns(dut.reserve, channel)
        lost = launched | concerns(dut.release, channel) | (~dut.working[channel] & ~reserves)
        with m.If(reserves & ~has):
            m.d.sync += has.eq(dut.able[channel])
        with m.Elif(lost):
            m.d.sync += has.eq(0)
        # Reserved in the previous cycle, or held as before.
        kept = Signal(name=f"kept_{channel}")
        m.d.sync += [kept.eq(has & ~lost), engine.eq(Cat(holds))]
        with m.If(kept):
            m.d.comb += Assert(Cat(holds) == engine)
        with m.If(has):
            m.d.comb += Assert(dut.able[channel])
            for e, held in enumerate(holds):
                with m.If(held):
                    m.d.comb += [
                        Assert(idle[e]),
                        Assert(~dut.started[e] | launched),
                        Assert(~launched | dut.started[e]),
                    ]
        others = concerns(dut.launch, 1 - channel)
        m.d.comb += Cover(has & others)


class ReservationProof(LauncherProof):
    name = "host.reservation"
    shows = (
        "COPY-13 with two engines: from the passing of a channel's last acquire of a counting "
        "semaphore to the start of its copy no other copy starts on its engine, while its group "
        "holds and it is not blocked, halted or empty; two cycles after the group has ceased to "
        "hold the engine is anybody's"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        super().build(m, wrap)
        dut, parking = self._dut, self._parking
        launch, reserve, guard, unguard = dut.launch, dut.reserve, parking.guard, parking.unguard
        passes = anything(m, 1, "passes")
        for channel, group in enumerate(self._groups):
            mine, holds = reserve.channel == channel, (group & ~parking.zero) == 0
            passed, failed = Signal(name=f"passed_{channel}"), Signal(name=f"failed_{channel}")
            passing, launched = passes & mine, concerns(launch, channel)
            overtaken = Signal(name=f"overtaken_{channel}")
            held, ends = Signal(name=f"held_{channel}"), Signal(name=f"ends_{channel}")
            # Behaviour of `Execute` and `MethodPipeline` (`AcquireProof`).
            with m.If(passing):
                m.d.comb += [
                    Assume(reserve.valid & concerns(guard, channel) & ~dut.release.valid),
                    Assume(dut.able[channel] & holds & parking.zero.bit_select(guard.counter, 1)),
                ]
            with m.If(launched):
                m.d.comb += Assume(holds & concerns(unguard, channel) & unguard.all)
            for event in (guard, unguard):
                m.d.comb += Assume(~concerns(event, channel) | mine)

            lost = launched | concerns(dut.release, channel) | ~self._lives[channel]
            with m.If(passing):
                m.d.sync += [passed.eq(1), failed.eq(0), overtaken.eq(0)]
            with m.Else():
                m.d.sync += [
                    passed.eq(passed & ~lost),
                    failed.eq(failed | ~holds),
                    overtaken.eq(overtaken | (failed & launch.valid)),
                ]
            m.d.sync += [held.eq(holds), ends.eq(~held & ~concerns(reserve, channel))]
            with m.If(passed & ~failed):
                m.d.comb += [Assert(held), Assert(dut.keeping[channel])]
            m.d.comb += [
                Assert(parking.holding[channel] == held),
                Assert(~ends | ~dut.keeping[channel]),
                Cover(passed & overtaken & launched),
            ]

    def _working(self, m: Module, dut: CopyLauncher) -> None:
        """Working channels, as connected by the host."""
        self._dut, self._parking = dut, Parking(CONFIG)
        inside = Inside(self._parking)
        self._groups = [inside.signal(f"group_{c}") for c in range(CONFIG.channels)]
        m.submodules.parking = parking = self._parking
        self._lives = anything(m, CONFIG.channels, "lives")
        for name in ("zero", "guard", "unguard"):
            drive(m, getattr(parking, name), name)
        m.d.comb += [
            Assume(parking.guard.counter < CONFIG.counters),
            dut.working.eq(self._lives & parking.holding),
        ]


class OldestProof(Proof):
    name = "host.oldest"
    shows = (
        "of four channels the choice is a candidate of the cycle before, and no candidate then had "
        "an older stamp; equal stamps: the lower channel (stamps of 5 bits)"
    )
    induction = 1
    cover = 3
    STAMP_BITS = 5

    def build(self, m: Module, wrap: Wrap) -> None:
        config = Config(channels=4)
        dut = OldestFirst(config, self.STAMP_BITS)
        m.submodules.dut = wrap(dut)
        drive(m, dut.candidates, "candidates")
        # Stamps lie within half of the range, from `first` on.
        first = anything(m, self.STAMP_BITS, "first")
        age = [
            anything(m, self.STAMP_BITS - 1, f"age_{channel}") for channel in range(config.channels)
        ]
        candidates = Signal(config.channels)
        ages = Signal(data.ArrayLayout(unsigned(self.STAMP_BITS - 1), config.channels))
        m.d.sync += candidates.eq(dut.candidates)
        for channel in range(config.channels):
            m.d.comb += dut.stamps[channel].eq(first + age[channel])
            m.d.sync += ages[channel].eq(age[channel])

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
                    if other != channel:
                        m.d.comb += Assert(~candidates[other] | before)


class _Slice:
    """Specification of a slice.

    Members
    -------
    started : whether a slice has begun at all.
    elapsed, length : cycles since it began, from 1 to 15; its length.
    ends : it is over in this or the next cycle; meaningless while a slice begins.
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

    def check(self, m: Module, begins: Value, over: Value, left: Value, waits: Value) -> None:
        """Check that the design agrees. `waits` : `left` is not set yet."""
        with m.If(begins):
            m.d.comb += Assert(~over)
        with m.Elif(self.started):
            m.d.comb += [
                Assert((self.length != 0) & (self.length < 8) & (self.elapsed != 0)),
                Assert(over == ((self.elapsed > self.length) | self._yielded)),
                Assert(over | waits | (left == self.length + 1 - self.elapsed)),
            ]


class SchedulerProof(Proof):
    name = "host.scheduler"
    shows = (
        "the target can proceed; a holder that can is the target until its slice is over, and goes "
        "on while nobody else can; it keeps the floor while its copy runs, then it leaves for "
        "another that can proceed; a guest leaves when the holder can proceed within its slice, "
        "when that is over and no copy runs, or for another when its own is; slices, also renewed "
        "ones and those of guests, last exactly as long as they were set; there is a target "
        "whenever another can proceed, a cycle later where the holder was likelier"
    )
    induction = 3
    cover = 8

    def build(self, m: Module, wrap: Wrap) -> None:
        config = Config(channels=3)
        dut = Scheduler(config)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        for name in (
            "ready",
            "copying",
            "keeping",
            "wanting",
            "serving",
            "served",
            "take",
            "give_up",
            "reserves",
            "launches",
        ):
            drive(m, getattr(dut, name), name)
        first = anything(m, STAMP_BITS, "first")
        for channel in range(config.channels):  # stamps lie within half of the range
            age = anything(m, STAMP_BITS - 1, f"age_{channel}")
            m.d.comb += dut.stamps[channel].eq(first + age)
        took, target, serves, served = Signal(), Signal(2), Signal(), Signal(2)
        over = inside.signal("_over")
        m.d.comb += [
            Assert(inside.signal("_owner") == (1 << dut.floor) * dut.floor_valid),
        ]
        floor = (dut.floor_valid, dut.floor)
        ready = self._of(dut.ready, *floor)
        copying = self._of(dut.copying, *floor)
        holder_served = dut.serving & dut.floor_valid & (dut.served == dut.floor)
        m.d.sync += [
            took.eq(dut.take),
            target.eq(dut.target),
            serves.eq(dut.serving),
            served.eq(dut.served),
        ]
        m.d.comb += [
            Assume(dut.served < config.channels),
            Assume(~(serves & dut.serving) | (dut.served == served)),
            Assume(~dut.take | (dut.target_valid & ~dut.serving)),
            Assume(~took | (dut.serving & (dut.served == target))),
            Assume(~dut.give_up | (dut.serving & ~took)),
            dut.slice_valid.eq(took),
            dut.slice.eq(anything(m, 3, "slice")),
            Assert(~dut.floor_valid | (dut.floor < config.channels)),
        ]
        other = self._other(m, dut)
        # The holder of the floor continues while it can, until its slice is over and another
        # channel can proceed. It is offered if this held in the previous cycle and the holder was
        # not being served.
        rivals = (dut.ready & ~inside.signal("_owner")).any()
        goes_on, went_on = Signal(), Signal()
        m.d.comb += goes_on.eq(ready & ~(over & rivals))
        m.d.sync += went_on.eq(goes_on & ~holder_served)
        with m.If(dut.target_valid):
            m.d.comb += Assert(self._of(dut.ready, 1, dut.target))
            m.d.comb += Assert((dut.floor_valid & (dut.target == dut.floor)) == goes_on)
        with m.If(goes_on & went_on):
            m.d.comb += Assert(dut.target_valid)
        with m.If(~goes_on & ~went_on & other):
            m.d.comb += Assert(dut.target_valid)
        m.d.comb += [
            Cover(holder_served & dut.leave),
            Cover(dut.take & copying & (dut.target != dut.floor)),
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
        busy = (1 << dut.floor) * dut.floor_valid | ((1 << dut.served) * dut.serving)[:3]
        m.d.comb += now.eq(dut.ready & ~busy)
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
        """The holder's slice, new for a new holder or after the end of its slice, and renewed while
        it is alone; and a guest's slice, new at each service.

        Returns whether they are over in this or the next cycle, and whether there ever was one.
        """
        over, restarted = inside.signal("_over"), inside.signal("renewed")
        begins, target = Signal(), Signal(2)
        m.d.sync += [
            begins.eq(~dut.floor_valid | (dut.floor != dut.target) | (over & ~copying)),
            target.eq(dut.target),
        ]
        fresh = took & begins & dut.floor_valid & (dut.floor == target)
        with m.If(took):
            m.d.comb += Assert(inside.signal("fresh") == fresh)
        anew = holder_served & ~rivals & ~copying & over & ~dut.give_up
        was_anew = Signal()
        m.d.sync += was_anew.eq(anew)
        m.d.comb += Assert(restarted == was_anew)

        holder = _Slice(m, "holder", fresh, anew, dut.give_up & holder_served, dut.slice)
        guest = _Slice(m, "guest", took, Const(0), dut.give_up & ~holder_served, dut.slice)
        single, rest = inside.signal("single"), inside.signal("rest")
        with m.If(holder.started):
            m.d.comb += [
                Assert(single == (holder.length == 1)),
                Assert(single | (rest == holder.length - 1)),
                Assert(~restarted | (holder.elapsed == 1)),
            ]
        holder.check(m, fresh, over, inside.signal("left"), restarted)
        guest.check(m, took, inside.signal("_guest_over"), inside.signal("guest_left"), Const(0))
        m.d.comb += [
            Assert(~dut.floor_valid | fresh | holder.started),
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
        proceed."""
        holder_ends, guest_ends, started = ends
        others = (dut.ready & ~((1 << dut.served) | (1 << dut.floor) * dut.floor_valid)[:3]).any()
        free = dut.floor_valid & over & ~copying
        anyway = ~holder_served & ((ready & ~over) | free)
        maybe = Mux(holder_served, holder_ends & ~copying, guest_ends)
        must, may, went_on = Signal(), Signal(), Signal()
        m.d.sync += [
            went_on.eq(dut.serving & started),
            must.eq(dut.serving & (anyway | (maybe & other))),
            # `leave` has no meaning during a context change.
            may.eq(dut.serving & (anyway | (maybe & others) | ~went_on)),
        ]
        m.d.comb += [Assert(~must | dut.leave), Assert(~dut.leave | may)]
        m.d.comb += Cover(dut.leave & ~holder_served & guest_ends & ~free & ~ready)

    def _moves(self, m: Module, dut: Scheduler, ready: Value, copying: Value) -> None:
        """The floor moves to a target that is taken, or is lost by a holder that is not served and
        cannot proceed; never while a copy of the holder runs."""
        had, whose, target = Signal(), Signal(2), Signal(2)
        kept, took, lost = Signal(), Signal(), Signal()
        m.d.sync += [
            had.eq(dut.floor_valid),
            whose.eq(dut.floor),
            target.eq(dut.target),
            kept.eq(copying),
            took.eq(dut.take),
            lost.eq(~dut.serving & ~ready),
        ]
        with m.If(had & ~dut.floor_valid):
            m.d.comb += Assert(lost & ~kept)
        with m.If(dut.floor_valid & (~had | (dut.floor != whose))):
            m.d.comb += Assert(took & (dut.floor == target) & ~kept)


def described(step: Any, copies: Any = 1) -> Value:
    """The predecoded properties of a method without a header error are correct. `copies`: its
    subchannel has a copy object, or has not been checked yet."""
    refused = Value.cast(step.method.cause) != 0
    kind = [
        step.kind[name] == (is_it & ~refused & (copies if name in ("copy", "launch") else 1))
        for name, is_it in kind_of(step.method.address).items()
    ]
    legacy = step.method.address == HostMethod.SEMAPHORED >> 2
    traits = traits_of(step.method.data, legacy)
    ours = Mux(
        step.kind.semaphore,
        Cat(step.traits[name] == traits[name] for name in ("known", "acquires", "plain")).all(),
        1,
    )
    return Cat(*kind, ours, ~step.kind.launch | (step.traits.modelled == traits["modelled"])).all()


class _Decoding(Elaboratable):
    """Decoder and open group, as in the pipeline."""

    def __init__(self) -> None:
        self.decoder = Decoder()
        self.group = Signal(GroupState)
        self.step = Signal()
        self.segment_ends = Signal()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = self.decoder
        m.submodules.refusals = refusals = HeaderCheck()
        m.d.comb += [
            self.decoder.group.eq(self.group),
            refusals.dword.eq(self.decoder.dword),
            self.decoder.refusal.eq(refusals.refusal),
        ]
        with m.If(self.step):
            m.d.sync += self.group.eq(self.decoder.next_group)
            with m.If(self.segment_ends):
                m.d.sync += self.group.skip.eq(0)
        return m


class DecoderProof(Proof):
    name = "host.decoder"
    shows = (
        "every header form makes the methods of spec 1.2, with its number of data dwords and their "
        "addresses; illegal headers, and no others, are refused; END_PB_SEGMENT skips the rest"
    )
    induction = 2
    cover = 6

    def build(self, m: Module, wrap: Wrap) -> None:
        decoding = _Decoding()
        m.submodules.dut = wrap(decoding)
        dut, group = decoding.decoder, decoding.group
        step, rest = anything(m, 1, "step"), anything(m, 1, "segment_ends")
        dword = anything(m, 32, "dword")
        m.d.comb += [dut.dword.eq(dword), decoding.step.eq(step), decoding.segment_ends.eq(rest)]

        # The open group: form, first address, count, and number of data dwords so far.
        form, first, subchannel = Signal(3), Signal(12), Signal(3)
        count, position = Signal(13), Signal(13)
        skip = Signal()
        sec_op, length, address = dword[29:], dword[16:29], dword[:12]
        opens = (sec_op == 1) | (sec_op == 3) | (sec_op == 5)
        inside = position != count
        header = ~skip & ~inside & (dword != 0)
        cause = self._cause(m, dword)
        m.d.comb += Assert(position <= count)
        with m.If(step):
            with m.If(header & (cause == 0)):
                with m.If(opens):
                    m.d.sync += [form.eq(sec_op), first.eq(address), subchannel.eq(dword[13:16])]
                    m.d.sync += [count.eq(length), position.eq(0)]
                with m.Elif(sec_op == 7):
                    m.d.sync += skip.eq(1)
            with m.Elif(inside & ~skip):
                m.d.sync += position.eq(position + 1)
            with m.If(rest):
                m.d.sync += skip.eq(0)

        expected = Signal(12)
        with m.Switch(form):
            with m.Case(1):
                m.d.comb += expected.eq(first + position)
            with m.Case(3):
                m.d.comb += expected.eq(first)
            with m.Case(5):
                m.d.comb += expected.eq(first + (position != 0))
        method = dut.step.method
        m.d.comb += [
            Assert(group.skip == skip),
            Assert(~(skip & inside)),
            Assert(group.open == inside),
            Assert(~inside | (group.count == count - position)),
            Assert(method.valid == (~skip & (inside | (header & ((cause != 0) | (sec_op == 4)))))),
            Cover(inside & (position == 2) & (form == 1)),
            Cover(inside & (position == 2) & (form == 5)),
        ]
        with m.If(inside):
            modes = {1: GroupMode.INC, 3: GroupMode.NON_INC, 5: GroupMode.ONE_INC}
            for number, mode in modes.items():
                later = (form == 5) & (position != 0)
                with m.If((form == number) & ~later):
                    m.d.comb += Assert(group.mode == mode)
                with m.If(later):
                    m.d.comb += Assert(group.mode == GroupMode.NON_INC)
            m.d.comb += [
                Assert((form == 1) | (form == 3) | (form == 5)),
                Assert(group.subchannel == subchannel),
                Assert(group.address == expected),
            ]
            # The last address of a group is valid, as its header was not refused.
            m.d.comb += Assert((form != 1) | (first + count <= 1 << 12))
        with m.If(method.valid):
            m.d.comb += Assert(Value.cast(method.cause) == Mux(header, cause, 0))
            m.d.comb += Assert(described(dut.step))
            with m.If(inside):
                m.d.comb += [
                    Assert(method.address == expected),
                    Assert(method.subchannel == subchannel),
                    Assert(method.data == dword),
                ]
            with m.Elif(cause == 0):
                m.d.comb += [
                    Assert(method.address == address),
                    Assert(method.subchannel == dword[13:16]),
                    Assert(method.data == length),
                ]
            with m.Else():
                m.d.comb += Assert(method.data == dword)

    def _cause(self, m: Module, dword: Value) -> Signal:
        """The cause for refusing a dword in the position of a header; 0 if it is legal."""
        cause = Signal(5, name="spec_cause")
        sec_op, length, address = dword[29:], dword[16:29], dword[:12]
        tert, device_0, reserved = dword[16:18], dword[4], dword[12]
        with m.If(sec_op == 0):
            with m.If(tert == 0):
                m.d.comb += cause.eq(Cause.HEADER_OBSOLETE)
            with m.Elif((tert != 3) & ~device_0):
                m.d.comb += cause.eq(Cause.HEADER_RESERVED)
        with m.Elif(sec_op == 2):
            m.d.comb += cause.eq(Cause.HEADER_OBSOLETE)
        with m.Elif((sec_op == 6) | (reserved & (sec_op != 7))):
            m.d.comb += cause.eq(Cause.HEADER_RESERVED)
        with m.Elif((sec_op == 1) & (length != 0) & (address + length - 1 > 0xFFF)):
            m.d.comb += cause.eq(Cause.HEADER_RANGE)
        with m.Elif((sec_op == 5) & (length > 1) & (address + 1 > 0xFFF)):
            m.d.comb += cause.eq(Cause.HEADER_RANGE)
        return cause


class PrefetchProof(Proof):
    name = "host.prefetch"
    shows = (
        "while its filler keeps to the space, every channel's beats come out once each, unchanged "
        "and in order; `occupied` tells whether there are any"
    )
    induction = 2
    cover = 12

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = PrefetchBuffer(CONFIG)
        inside = Inside(dut)
        m.submodules.dut = wrap(dut)
        depth, width = CONFIG.prefetch_beats, CONFIG.data_width
        ram = inside.submodule("ram")
        behind = ram.read_ports[0].data
        look = ram.read_port(domain="comb")
        channel = Signal(CONFIG.channel_bits)
        m.d.comb += channel.eq(AnyConst(CONFIG.channel_bits))
        for name in ("select", "serving", "take"):
            drive(m, getattr(dut, name), name)
        drive(m, dut.clear, "clear")
        drive(m, dut.fill, "fill", "valid", "channel")
        m.d.comb += dut.fill.beat.data.eq(anything(m, width, "beat"))

        selected = Signal(CONFIG.channel_bits)
        m.d.sync += selected.eq(dut.select)
        m.d.comb += [
            Assume(~dut.serving | (dut.select == selected)),
            Assume(~dut.take | (dut.head_valid & dut.serving)),
        ]
        level = Signal(range(depth + 1))
        fills, clears = concerns(dut.fill, channel), concerns(dut.clear, channel)
        takes = dut.take & (dut.select == channel)
        m.d.sync += level.eq(Mux(clears, 0, level + fills - takes))
        m.d.comb += [Assume(~fills | (level < depth)), Assert(level <= depth)]

        # Any one beat of the channel, and the number of beats before it.
        follow, word = Signal(), Signal(width)
        before = Signal(range(depth))
        starts = anything(m, 1, "follow") & fills & ~follow
        with m.If(clears):
            m.d.sync += follow.eq(0)
        with m.Elif(starts):
            m.d.sync += [follow.eq(1), word.eq(dut.fill.beat.data), before.eq(level - takes)]
        with m.Elif(takes):
            m.d.sync += [before.eq(before - 1), follow.eq(follow & (before != 0))]

        pointer = (depth - 1).bit_length()
        head = inside.signal("heads").word_select(channel, pointer)
        tail = inside.signal("tails").word_select(channel, pointer)
        count = inside.signal("counts").word_select(channel, depth.bit_length())
        filling = data.View(channel_event(CONFIG, row=head_beat(CONFIG)), inside.signal("filling"))
        enters = concerns(filling, channel)
        next_valid, ours = inside.signal("next_valid"), selected == channel
        ahead, unread = inside.signal("ahead"), inside.signal("unread")
        read = dut.head_valid + next_valid
        m.d.comb += [
            look.addr.eq(Cat((head + before)[:pointer], channel)),
            Assert(count + enters == level),
            Assert((tail - head)[:pointer] == count[:pointer]),
            Assert(dut.occupied.bit_select(channel, 1) == (level != 0)),
            Cover(follow & takes & (before == 0) & (level == depth)),
        ]
        with m.If(ours):
            m.d.comb += [
                Assert(~ahead | (next_valid & (unread != 0))),
                Assert(level + ahead == read + unread + enters),
                Assert((inside.signal("place") + ahead)[:pointer] == (head + read)[:pointer]),
            ]
        with m.If(follow):
            m.d.comb += Assert(before < level)
            with m.If(enters & (before == count)):
                m.d.comb += Assert(filling.row.beat.data == word)
            with m.Else():
                m.d.comb += Assert(look.data.beat.data == word)
            with m.If(ours & dut.head_valid & (before == 0)):
                m.d.comb += Assert(dut.head.beat.data == word)
            with m.If(ours & next_valid & (before == dut.head_valid)):
                m.d.comb += Assert(behind.beat.data == word)


def surround(m: Module, execute: Execute) -> Value:
    """Leave the surroundings of `Execute` unconstrained, except that only a launch makes copies
    run. Returns the channels whose copies could run in the previous cycle."""
    names = ("able", "queue", "held", "ended", "spent", "all_idle", "over", "refused", "zero")
    for name in (*names, "setting", "result", "cycles", "units", "copying", "candidate"):
        drive(m, getattr(execute, name), name)
    drive(m, execute.semaphore.request, "request", "ready")
    drive(m, execute.semaphore.response, "response", "valid", "payload")
    m.d.comb += execute.counting.eq(AnyConst(len(execute.counting)))
    before, launched = Signal(CONFIG.channels), Signal(CONFIG.channels)
    m.d.sync += [
        before.eq(execute.copying),
        launched.eq(Cat(concerns(execute.launch, c) for c in range(CONFIG.channels))),
    ]
    m.d.comb += Assume((execute.copying & ~before & ~launched) == 0)
    return before | launched


class OrderProof(Proof):
    name = "host.order"
    shows = (
        "methods of a channel execute in the order of its dwords, each once, wherever it is left "
        "and served again; what must wait for its own copies executes while none runs"
    )
    induction = 1
    cover = 9

    TRIGGERS = (
        HostMethod.NON_STALL_INTERRUPT,
        HostMethod.FB_FLUSH,
        HostMethod.MEM_OP_D,
        HostMethod.SET_REFERENCE,
        HostMethod.WFI,
        HostMethod.CLEAR_FAULTED,
        HostMethod.SEM_EXECUTE,
        HostMethod.SEMAPHORED,
    )

    def build(self, m: Module, wrap: Wrap) -> None:
        execute = Execute(CONFIG)
        dut = MethodPipeline(CONFIG, execute)
        execution = Inside(execute)
        inside = Inside(dut)
        ram = inside.submodule("contexts")
        load = ram.read_ports[0]
        looks, asks = (
            [memory.read_port(domain="comb") for _ in range(CONFIG.channels)]
            for memory in (ram, execution.submodule("asks"))
        )
        for ports in (looks, asks):
            m.d.comb += [look.addr.eq(channel) for channel, look in enumerate(ports)]
        m.submodules.dut = wrap(dut)
        for name in ("alive", "occupied", "target", "target_valid", "leave", "stay", "head_valid"):
            drive(m, getattr(dut, name), name)
        # An edit ends a wait; its other effects are not part of the order of dwords.
        drive(m, dut.edit, "edit", "valid")
        m.d.comb += dut.edit.payload.channel.eq(anything(m, CONFIG.channel_bits, "edited"))
        past_copying = surround(m, execute)
        base = self._dwords(m, dut)
        executed = Signal.like(base)
        done = dut.method
        m.d.comb += Assert(~done.valid | (done.channel == dut.served))
        for channel in range(CONFIG.channels):
            with m.If(concerns(done, channel)):
                m.d.comb += [
                    Assert(Value.cast(done.method.cause) == 0),
                    Assert(done.method.data == executed[channel]),
                ]
                m.d.sync += executed[channel].eq(executed[channel] + 1)
        m.d.comb += Cover(Cat(executed[c] != 0 for c in range(CONFIG.channels)).all())
        self._asks = [look.data for look in asks]
        self._contexts(m, dut, inside, base, executed, load.data, [look.data for look in looks])
        run = inside.machine("service").ongoing("RUN")
        self._triggers(m, dut, execute, run)
        self._foreseen(m, execute, execution)
        # Results from the previous cycle are about the same method.
        is_copying, looked = execute._is["copying"], execution.signal("looked")
        found = data.View(verdict, execution.signal("found"))
        after_copies = _any(execute.step.method.address == name >> 2 for name in self.TRIGGERS)
        at_once = _any(found.action == one for one in (Action.NOTHING, Action.BIND))
        m.d.comb += [
            Assert(~run | (is_copying == past_copying.bit_select(dut.served, 1))),
            Assert(~(run & looked) | ~(after_copies & at_once)),
            Assert(~execute.asked | ~is_copying),
            Assert(~(execute.park & execute.busy)),
            Assert(~(dut._halting & execute.asked)),
            Assert(dut._running == run),
        ]
        m.d.comb += Assert(~execute.halt.valid | ~is_copying)

    def _dwords(self, m: Module, dut: MethodPipeline) -> Any:
        """The prefetch buffer: immediate methods, with their position in the channel as data.
        Returns the position of the first dword in each channel's head beat."""
        base = Signal(data.ArrayLayout(unsigned(13), CONFIG.channels))
        selected = Signal(CONFIG.channel_bits)
        low, high = (Signal(CONFIG.channels, name=name) for name in ("low", "high"))
        m.d.comb += [low.eq(AnyConst(2)), high.eq(AnyConst(2)), Assume((low & ~high) == 0)]
        m.d.sync += selected.eq(dut.select)
        head = dut.head.beat
        drive(m, head, "head", "first", "end", "get")
        first, last = low.bit_select(selected, 1), high.bit_select(selected, 1)
        m.d.comb += [head.low.eq(first), head.high.eq(last), dut.head.single.eq(first == last)]
        for number in range(CONFIG.beat_dwords):
            header = data.View(Header, Signal(32, name=f"header_{number}"))
            m.d.comb += [
                header.sec_op.eq(SecOp.IMMD_DATA_METHOD),
                header.count.eq(base[selected] + number - first),
                header.subchannel.eq(anything(m, 3, f"subchannel_{number}")),
                header.address.eq(anything(m, 12, f"address_{number}")),
                head.data.word_select(number, 32).eq(header),
            ]
        for channel in range(CONFIG.channels):
            with m.If(dut.take & (dut.select == channel)):
                m.d.sync += base[channel].eq(base[channel] + 1 + high[channel] - low[channel])
        self.selected = selected
        self.ends = [(low[channel], high[channel]) for channel in range(CONFIG.channels)]
        return base

    def _contexts(
        self,
        m: Module,
        dut: MethodPipeline,
        inside: Inside,
        base: Any,
        executed: Any,
        loaded: Any,
        kept: list,
    ) -> None:
        """Invariant: the context of each channel, wherever it is stored, matches the methods that
        it has executed."""
        dirty, stays = inside.signal("dirty"), inside.signal("_kept")
        work = (dut._flow, dut.execute.state)
        edited = data.View(channel_edit(CONFIG), inside.signal("edited"))
        service = inside.machine("service")
        select, load, run = (service.ongoing(name) for name in ("SELECT", "LOAD", "RUN"))
        m.d.comb += [
            Assert(select | load | run),
            Assert(dut.serving == ~select),
            Assert(~load | ~dirty),
            Assert(~run | dirty),
            Assert(~edited.reset & ~edited.replace),
            Assert(~dut.serving | (self.selected == dut.served)),
        ]
        for channel in range(CONFIG.channels):
            ours = dut.served == channel
            again, copying = dut.execute._again[channel], dut.execute.copying[channel]
            ask = self._asks[channel]

            def fits(
                flow: Any,
                state: Any,
                channel: int = channel,
                asks: Any = ~again | ~copying,
                again: Any = again,
                ask: Any = ask,
            ) -> Value:
                return (
                    self._in_order(
                        flow, state, base[channel], executed[channel], *self.ends[channel]
                    )
                    & self._sound(state, dut.execute)
                    & asks
                    & (~again | self._asked_before(flow.step, state, ask))
                )

            with m.If(ours & (dirty | (load & stays))):
                m.d.comb += Assert(fits(*work))
            with m.If(~(ours & dirty)):
                m.d.comb += Assert(fits(kept[channel].flow, kept[channel].state))
            with m.If(ours & load & ~stays):
                m.d.comb += Assert(fits(loaded.flow, loaded.state))

    @staticmethod
    def _in_order(
        flow: Any, state: Any, base: Value, executed: Value, low: Value, high: Value
    ) -> Value:
        """The decoded methods follow the executed ones and precede those that have not been
        taken."""
        step, later = flow.step, flow.later
        taken = Mux(flow.begun, flow.place - low, 0)

        def legal(one: Any, number: Value, copies: Any = 1) -> Value:
            right = (Value.cast(one.method.cause) == 0) & (one.method.data == number)
            return ~one.method.valid | (right & described(one, copies))

        return (
            ~flow.group.open
            & ~flow.group.skip
            & legal(step, executed, has_copies(state.objects, step.method.subchannel))
            & legal(later, (executed + step.method.valid)[:13])
            & ((base + taken)[:13] == (executed + step.method.valid + later.method.valid)[:13])
            & (~flow.begun | ((flow.place > low) & (flow.place <= high)))
            & (~flow.begun | (flow.final == (flow.place == high)))
        )

    @staticmethod
    def _sound(state: Any, execute: Execute) -> Value:
        """The predecoded properties of the settings are correct."""
        place = state.semaphore
        copies = _any(state.objects[i] == ObjectKind.COPY for i in range(8))
        low = place.va[16:32] == (WINDOW_BASE >> 16) & 0xFFFF
        counter = low & (place.va[4:16] < execute.counting) & (place.va[2:4] == 0)
        return (
            (place.low == low)
            & (place.high == (place.va[32:] == WINDOW_BASE >> 32))
            & (place.counter == counter)
            & (place.nonzero == place.payload[:32].any())
            & (place.va[:2] == 0)
            & (state.copies == copies)
        )

    @staticmethod
    def _asked_before(step: Any, state: Any, ask: Any) -> Value:
        """The held method is an on-chip acquire that matches the request `ask`."""
        place = state.semaphore
        counting = place.counter & ~place.nonzero & step.traits.plain & state.copies
        return (step.method.valid & step.kind.semaphore & step.traits.acquires) & (
            (place.low & place.high & ~counting & OrderProof._exists(step.method))
            & OrderProof._kept(state, ask)
        )

    @staticmethod
    def _kept(state: Any, ask: Any) -> Value:
        """`ask` is the acquire that SEM_EXECUTE would now request."""
        place = state.semaphore
        same = (ask.slot == place.va[4:16]) & (ask.payload[:32] == place.payload[:32])
        return same & OrderProof._only_reads(ask.operation)

    @staticmethod
    def _only_reads(operation: Any) -> Value:
        code = Value.cast(operation)
        return (code != SemOp.RELEASE) & (code != SemOp.REDUCTION)

    def _foreseen(self, m: Module, execute: Execute, execution: Inside) -> None:
        """A request made ahead changes nothing, and only in the next cycle it may become a request
        of the served channel."""
        idle, request = execute._asking.ongoing("IDLE"), execute.semaphore.request
        unclaimed, fresh = execute._unclaimed, execution.signal("fresh")
        foreseen, whose = execution.signal("foreseen"), execution.signal("whose")
        asks = data.ArrayLayout(self._asks[0].shape(), CONFIG.channels)
        kept = Signal(asks)
        acquires, keeps = execute.asked & execute.step.traits.acquires, execution.signal("keeps")
        m.d.comb += [
            Assert(~acquires | keeps | self._kept(execute.state, kept[execute.channel])),
            Assert(~keeps | execute.asked),
            kept.as_value().eq(Cat(ask.as_value() for ask in self._asks)),
            Assert(idle | ~unclaimed | (foreseen & self._only_reads(kept[whose].operation))),
            Assert(~fresh | (unclaimed & ~idle & execute._again.bit_select(whose, 1))),
        ]
        with m.If(request.valid & (execute._ahead | (unclaimed & ~idle))):
            m.d.comb += Assert(self._only_reads(request.payload.operation))

    @staticmethod
    def _exists(method: Any) -> Value:
        legacy = method.address == HostMethod.SEMAPHORED >> 2
        known = _any(method.data[:5] == 1 << bit for bit in range(5))
        return Mux(legacy, known, method.data[:3] <= SemOp.REDUCTION)

    def _triggers(self, m: Module, dut: MethodPipeline, execute: Execute, run: Value) -> None:
        copying = execute.copying.bit_select(dut.served, 1)
        done = dut.method
        with m.If(done.valid):
            for name in self.TRIGGERS:
                m.d.comb += Assert((done.method.address != name >> 2) | ~copying)
        with m.If(execute.launch.valid):
            m.d.comb += [Assert(execute.launch.behind == copying), Assert(~execute.quit)]
        # The answer to an on-chip operation goes to the method that requested it.
        method, place = execute.step.method, execute.state.semaphore
        asks = (method.address == HostMethod.SEM_EXECUTE >> 2) | (
            method.address == HostMethod.SEMAPHORED >> 2
        )
        asking = execute._asking
        asked = ~asking.ongoing("IDLE") & ~execute._unclaimed
        m.d.comb += Assert(execute.asked == asked)
        m.d.comb += Assert(_any(asking.ongoing(name) for name in ("IDLE", "ASKING", "ASKED")))
        with m.If(execute.asked):
            m.d.comb += [
                Assert(run & ~copying & method.valid & asks),
                Assert((place.va[16:] == WINDOW_BASE >> 16) & execute._known),
                Assert(~execute._copy_counter),
            ]
        for event in (execute.begin, execute.reserve, execute.invalidate):
            m.d.comb += Assert(~event.valid | ~copying)
        idle = execute._asking.ongoing("IDLE")
        ahead = execute._ahead | (execute._unclaimed & ~idle)
        m.d.comb += Assert(~execute.semaphore.request.valid | ~copying | ahead)


def of_one_kind(flow: Any) -> Value:
    """Each of the two decoded methods is of at most one kind."""
    kinds = [Value.cast(step.kind) for step in (flow.step, flow.later)]
    return Cat((kind & (kind - 1)) == 0 for kind in kinds).all()


class AcquireProof(Proof):
    name = "host.acquire"
    shows = (
        "an acquire of a counting semaphore is decided only while the channel need not let go; it "
        "passes, and reserves an engine, only when its whole group holds in that very cycle and an "
        "engine can take the copy; a copy starts only so, too, or behind a running one where there "
        "is room; other acquires on chip are asked only so, but for the group"
    )
    induction = 1
    cover = 8
    breaks = ("freeze",)  # a design that forgets everything at once stays consistent

    def build(self, m: Module, wrap: Wrap) -> None:
        execute = Execute(CONFIG)
        dut = MethodPipeline(CONFIG, execute)
        Inside(execute)  # elaborates it, so that its registers exist
        inside = Inside(dut)
        contexts = inside.submodule("contexts")
        looks = [contexts.read_port(domain="comb") for _ in range(CONFIG.channels)]
        m.d.comb += [look.addr.eq(channel) for channel, look in enumerate(looks)]
        m.submodules.dut = wrap(dut)
        for name in ("alive", "occupied", "target", "target_valid", "leave", "stay", "head_valid"):
            drive(m, getattr(dut, name), name)
        drive(m, dut.head, "head")
        drive(m, dut.edit, "edit", "valid", "payload")
        surround(m, execute)
        m.d.comb += [Assume(one) for one in lasting(m, execute.launch, execute.reserve, execute)]
        service = inside.machine("service")
        select, load, run = (service.ongoing(name) for name in ("SELECT", "LOAD", "RUN"))
        served, launch, reserve = dut.served, execute.launch, execute.reserve
        able, queue, copying = (
            bits.bit_select(served, 1) for bits in (execute.able, execute.queue, execute.copying)
        )
        self._known(m, dut, execute, run)
        flows = [dut._flow, *(look.data.flow for look in looks)]
        m.d.comb += [Assert(of_one_kind(flow)) for flow in flows]
        m.d.comb += Assert(~load | of_one_kind(contexts.read_ports[0].data.flow))

        guard, acquire = execute.guard, execute.acquire
        group = acquire.valid & acquire.passed & guard.valid
        asks = execute._asks & execute._acquires
        slot = guard.counter[: (CONFIG.counters - 1).bit_length()]
        with m.If(launch.valid):
            m.d.comb += [
                Assert(execute.held & ~execute.quit & execute.unguard.valid & execute.unguard.all),
                Assert(Mux(launch.behind, copying & queue, able & ~copying)),
            ]
        with m.If(group):
            m.d.comb += [
                Assert(execute.held & execute.zero.bit_select(slot, 1)),
                Assert(reserve.valid & able & ~copying),
            ]
        m.d.comb += [
            Assert(~guard.valid | (~execute.leave & execute._copy_counter)),
            Assert(~reserve.valid | execute.asked | able),
            Assert(~asks | ~execute.leave),
            Assert(~(asks & execute._engine_first) | able),
            Assert(~select | ~(launch.valid | reserve.valid | guard.valid)),
            Assert(~reserve.valid | ~(launch.valid | dut.release.valid)),
            Cover(launch.valid),
        ]

    def _known(self, m: Module, dut: MethodPipeline, execute: Execute, run: Value) -> None:
        """Invariant: the knowledge about the served channel is from the previous cycle, and nothing
        is executed in the cycle after a launch."""
        before = {name: Signal(CONFIG.channels) for name in ("able", "queue", "copying")}
        served, launched = Signal(CONFIG.channel_bits), Signal()
        m.d.sync += [
            *(bits.eq(getattr(execute, name)) for name, bits in before.items()),
            served.eq(dut.served),
            launched.eq(execute.launch.valid),
        ]
        m.d.comb += Assert(~(launched & run) | ~dut._flow.step.method.valid)
        with m.If(run):
            bit = {name: bits.bit_select(served, 1) for name, bits in before.items()}
            m.d.comb += [
                Assert(served == dut.served),
                Assert(execute._is["able"] == bit["able"]),
                Assert(execute._is["queue"] == (bit["queue"] & ~launched)),
                Assert(execute._is["copying"] == (bit["copying"] | launched)),
            ]
        m.d.comb += Assert(run == dut._running)


PROOFS = (
    AcquireProof(),
    DecoderProof(),
    LauncherProof(),
    OldestProof(),
    OrderProof(),
    ParkingProof(),
    PrefetchProof(),
    ReservationProof(),
    SchedulerProof(),
)
