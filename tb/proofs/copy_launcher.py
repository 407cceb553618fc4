"""Proofs of engines and their reservations (COPY-11, COPY-13)."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value

from signalbox.hw.host.copy_launcher import MOST_COPIES, CopyLauncher
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.tb.proofs.formal import (
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)
from signalbox.tb.proofs.host import CONFIG, any_of, concerns, drive

__all__ = ["PROOFS", "lasting"]


def lasting(m: Module, requests: Any, status: Any) -> list[Value]:
    """Properties per channel. If an engine could take the channel's copy in the previous cycle, one
    still can; if there was room behind its running copy, there still is. Exceptions: a copy was
    started, or another channel has made a reservation.

    `LauncherProof` proves these properties, assuming the host's earlier requests. `AcquireProof`
    assumes them, and proves the assumptions of `LauncherProof` on the current requests.
    """
    launch, reserve = requests.launch, requests.reserve
    could, room = Signal(CONFIG.channels), Signal(CONFIG.channels)
    m.d.sync += room.eq(status.queue & status.copying & ~launch.valid.replicate(CONFIG.channels))
    found = []
    for channel in range(CONFIG.channels):
        taken = launch.valid | (reserve.valid & (reserve.channel != channel))
        m.d.sync += could[channel].eq(status.able[channel] & ~taken)
        found.append(
            (~could[channel] | status.able[channel])
            & (~(room[channel] & status.copying[channel]) | status.queue[channel])
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

        # Model of an engine: a queue of copies, all of one channel; the last may not have been
        # handed over yet.
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
            with m.If(dut.events.started[e]):
                m.d.sync += whose[e].eq(dut.requests.launch.channel)
                free = port.idle & ~queued[e]
                own = (whose[e] == dut.requests.launch.channel) & ~queued[e]
                m.d.comb += Assert(Mux(dut.requests.launch.behind, own, free))
            ends.append(ends_now)
        m.d.comb += [
            Assert((dut.events.started & (dut.events.started - 1)) == 0),
            Assert(dut.events.started.any() == dut.requests.launch.valid),
            Assert(dut.events.finished == Cat(ends)),
            Assert(dut.reports.ended.valid == any_of(ends)),
            Assert(~(ends[0] & ends[1])),
            Assert(
                dut.outstanding.all_idle == ~any_of(taken[e].any() | queued[e] for e in engines)
            ),
        ]
        for channel, lasts in enumerate(lasting(m, dut.requests, dut.status)):
            m.d.comb += Assert(lasts)
            mine = [(taken[e] + queued[e] != 0) & (whose[e] == channel) for e in engines]
            ended = [ends[e] & (whose[e] == channel) for e in engines]
            count = Signal(4, name=f"count_{channel}")
            m.d.comb += [
                Assert(concerns(dut.reports.ended, channel) == any_of(ended)),
                Assert(~(mine[0] & mine[1])),
                Assert(dut.outstanding.counts[channel] == count),
                Assert(dut.status.copying[channel] == any_of(mine)),
            ]
            m.d.sync += count.eq(count + concerns(dut.requests.launch, channel) - any_of(ended))
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
            m.d.comb += Assert(dut.status.able[channel] == any_of(can))
            self._reservation(m, dut, channel, holds, idle)

    def _host(self, m: Module, dut: CopyLauncher) -> None:
        """Behaviour of `Execute` and `MethodPipeline`: one channel is served. It reserves an
        engine while none of its copies run, starts a copy if an engine is reported able, and starts
        further copies behind it only if there is room (`OrderProof`, `AcquireProof`)."""
        served = anything(m, CONFIG.channel_bits, "served")
        launch, reserve = dut.requests.launch, dut.requests.reserve
        self._working(m, dut)
        drive(m, launch, "launch", "valid", "behind", "interrupt")
        drive(m, reserve, "reserve", "valid")
        drive(m, dut.methods.released, "released", "valid")
        m.d.comb += [
            launch.channel.eq(served),
            launch.command.channel.eq(served),
            reserve.channel.eq(served),
            dut.methods.released.channel.eq(served),
            Assume(~(launch.valid & reserve.valid)),
        ]
        able, copying = (
            bits.bit_select(served, 1) for bits in (dut.status.able, dut.status.copying)
        )
        with m.If(reserve.valid):
            m.d.comb += Assume(~copying)
        with m.If(launch.valid):
            queue = dut.status.queue.bit_select(served, 1)
            m.d.comb += Assume(Mux(launch.behind, copying & queue, able & ~copying))

    def _working(self, m: Module, dut: CopyLauncher) -> None:
        """Any channels may be working."""
        drive(m, dut.state, "state", "reserving")

    def _reservation(
        self, m: Module, dut: CopyLauncher, channel: int, holds: list, idle: list
    ) -> None:
        has, engine = Signal(name=f"has_{channel}"), Signal(2, name=f"engine_{channel}")
        m.d.comb += [
            Assert(any_of(holds) == has),
            Assert(dut.status.keeping[channel] == has),
            Assert(~(holds[0] & holds[1])),
            Assert(~has | ~dut.status.copying[channel]),
        ]
        launched, reserves = (
            concerns(dut.requests.launch, channel),
            concerns(dut.requests.reserve, channel),
        )
        lost = (
            launched
            | concerns(dut.methods.released, channel)
            | (~dut.state.reserving[channel] & ~reserves)
        )
        with m.If(reserves & ~has):
            m.d.sync += has.eq(dut.status.able[channel])
        with m.Elif(lost):
            m.d.sync += has.eq(0)
        # Reserved in the previous cycle, or held as before.
        kept = Signal(name=f"kept_{channel}")
        m.d.sync += [kept.eq(has & ~lost), engine.eq(Cat(holds))]
        with m.If(kept):
            m.d.comb += Assert(Cat(holds) == engine)
        with m.If(has):
            m.d.comb += Assert(dut.status.able[channel])
            for e, held in enumerate(holds):
                with m.If(held):
                    m.d.comb += [
                        Assert(idle[e]),
                        Assert(~dut.events.started[e] | launched),
                        Assert(~launched | dut.events.started[e]),
                    ]
        others = concerns(dut.requests.launch, 1 - channel)
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
        launch, reserve = dut.requests.launch, dut.requests.reserve
        guard, unguard = parking.acquires.guard, parking.acquires.unguard
        passes = anything(m, 1, "passes")
        for channel, group in enumerate(self._groups):
            mine, holds = reserve.channel == channel, (group & ~parking.on_chip.zero) == 0
            passed, failed = Signal(name=f"passed_{channel}"), Signal(name=f"failed_{channel}")
            passing, launched = passes & mine, concerns(launch, channel)
            overtaken = Signal(name=f"overtaken_{channel}")
            held, ends = Signal(name=f"held_{channel}"), Signal(name=f"ends_{channel}")
            # Behaviour of `Execute` and `MethodPipeline` (`AcquireProof`).
            with m.If(passing):
                m.d.comb += [
                    Assume(reserve.valid & concerns(guard, channel) & ~dut.methods.released.valid),
                    Assume(
                        dut.status.able[channel]
                        & holds
                        & parking.on_chip.zero.bit_select(guard.counter, 1)
                    ),
                ]
            with m.If(launched):
                m.d.comb += Assume(holds & concerns(unguard, channel) & unguard.all)
            for event in (guard, unguard):
                m.d.comb += Assume(~concerns(event, channel) | mine)

            lost = launched | concerns(dut.methods.released, channel) | ~self._lives[channel]
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
                m.d.comb += [Assert(held), Assert(dut.status.keeping[channel])]
            m.d.comb += [
                Assert(parking.parked.holding[channel] == held),
                Assert(~ends | ~dut.status.keeping[channel]),
                Cover(passed & overtaken & launched),
            ]

    def _working(self, m: Module, dut: CopyLauncher) -> None:
        """Working channels, as connected by the host."""
        self._dut, self._parking = dut, Parking(CONFIG)
        inside = Inside(self._parking)
        self._groups = [inside.signal(f"group_{c}") for c in range(CONFIG.channels)]
        m.submodules.parking = parking = self._parking
        self._lives = anything(m, CONFIG.channels, "lives")
        drive(m, parking.on_chip, "on_chip", "zero")
        drive(m, parking.acquires, "acquires", "guard", "unguard")
        m.d.comb += [
            Assume(parking.acquires.guard.counter < CONFIG.counters),
            dut.state.reserving.eq(self._lives & parking.parked.holding),
        ]


PROOFS = (LauncherProof(), ReservationProof())
