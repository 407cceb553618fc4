"""The scheduler alone (COPY-5 … COPY-9, COPY-13, HOST-7): every cycle against its model; guests,
slices, patience and turns individually."""

import os
from dataclasses import replace
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.tb.models.scheduler import PATIENCE, STAMPS, Inputs, Outputs, SchedulerModel
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

KNOWN = 1 if CHANNELS <= 16 else 2
"""Cycles until the oldest channel that can proceed is known."""

LONG = 1 << 30
"""A slice that never ends."""

SLICES = (0, 1, 2, 3, 10, 50)

SEVERAL = {**LIMIT, "skip": CHANNELS < 4}


class SchedulerTestbench(Testbench):
    """Drives the scheduler as the pipeline does, and compares every cycle with the model.

    Members
    -------
    ready, eligible, copying, keeping, wanting : sets of channels, effective from the next `step`.
    stamps, slices : of every channel.
    served : the channel served in the next `step`, or None.
    first : the served channel executes nothing in the next `step`: its service begins, or its
        context is changed.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Scheduler, CONFIG))
        self.model = SchedulerModel(CHANNELS)
        self.ready: set[int] = set()
        self.eligible = {*range(CHANNELS)}
        self.copying: set[int] = set()
        self.keeping: set[int] = set()
        self.wanting: set[int] = set()
        self.stamps = [*range(CHANNELS)]
        self.slices = [LONG] * CHANNELS
        self.served: int | None = None
        self.first, self._sliced = False, False

    def _inputs(self, **strobes: bool) -> Inputs:
        return Inputs(
            frozenset(self.ready),
            frozenset(self.copying),
            frozenset(self.keeping),
            frozenset(self.wanting),
            tuple(self.stamps),
            self.served,
            frozenset(self.eligible),
            slice=self.slices[self.served] if self.served is not None and self._sliced else None,
            **strobes,
        )

    def _drive(self, now: Inputs) -> None:
        """Drive all inputs. Payload without its strobe is random."""
        numbers = self.random
        self.drive(
            parked__ready=mask(now.ready),
            turns__eligible=mask(self.eligible),
            engines__copying=mask(now.copying),
            engines__keeping=mask(now.keeping),
            parked__wanting=mask(now.wanting),
            arrivals__stamps=now.stamps,
            served__active=now.served is not None,
            served__channel=numbers.randrange(CHANNELS) if now.served is None else now.served,
            choice__take=now.take,
            choice__taken=now.slice is not None,
            slice=numbers.getrandbits(32) if now.slice is None else now.slice,
            client__give_up=now.give_up,
            client__reserves=now.reserves,
            client__launches=now.launches,
        )

    def _shown(self) -> Outputs:
        candidate = self.get("client__candidate")
        return Outputs(
            self.get("choice__target") if self.get("choice__found") else None,
            candidate["channel"] if candidate["valid"] else None,
            bool(self.get("choice__leave")),
            bool(self.get("choice__stay")),
            bool(self.get("client__spent")),
            self.get("floor__channel") if self.get("floor__valid") else None,
        )

    async def step(
        self, *, take: bool = False, stop: bool = False, edit: int | None = None, **strobes: bool
    ) -> Outputs:
        """One cycle.

        Parameters
        ----------
        take : serve the target, if there is one and no channel is being served.
        stop : the service ends with this cycle.
        edit : channel whose context is changed in the next cycle, without a service.
        """
        now = self._inputs(**strobes)
        expected = self.model.show(now)
        take &= self.served is None and expected.target is not None
        now = replace(now, take=take)
        self._drive(now)
        await super().step()
        shown = self._shown()
        if expected.stay is None:
            shown = replace(shown, stay=None)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        self.model.step(now)
        if take or edit is not None:
            self.served = expected.target if take else edit
        elif stop or (self.first and not self._sliced):
            self.served = None
        self.first, self._sliced = take or edit is not None, take
        return shown

    async def watch(self, cycles: int) -> list[Outputs]:
        """The outputs of `cycles` cycles without events."""
        return [await self.step() for _ in range(cycles)]

    async def serve(self, channel: int, **strobes: bool) -> Outputs:
        """Leave the served channel and serve `channel`, which must be next. Returns the outputs of
        its first cycle."""
        if self.served is not None:
            await self.step(stop=True, **strobes)
        for _ in range(4 * KNOWN):
            shown = await self.step(take=True)
            if shown.target is not None:
                assert shown.target == channel
                return await self.step()
        raise AssertionError(f"channel {channel} is not served")

    async def holder(self, *others: int) -> None:
        """Let channel 0 have the floor, with a new slice, and be served; it and `others` can
        proceed."""
        self.served, self.ready, self.copying = None, set(), set()
        await self.steps(KNOWN)  # until no channel is chosen
        self.ready = {0, *others}
        await self.serve(0)

    async def guest(self, *others: int) -> None:
        """Let channel 0 have the floor and a copy in flight, and be unable to proceed; channel 1 is
        its guest, and it and `others` can proceed."""
        await self.holder()
        self.copying, self.ready = {0}, {1, *others}
        await self.serve(1)

    async def leaves(self, cycles: int) -> int | None:
        """Number of cycles before `leave`; None if it is not raised within `cycles` cycles."""
        shown = [one.leave for one in await self.watch(cycles)]
        return shown.index(True) if any(shown) else None


@cocotb.test(**SEVERAL)
async def guests_go_when_the_holder_is_back(dut):
    """Rule 4: a guest continues until the holder can proceed within the holder's slice; then it
    leaves in the next cycle, and the holder is the target."""
    tb = await SchedulerTestbench(dut).start()
    for copying in ({0}, set[int]()):
        await tb.guest(2)
        assert await tb.leaves(50) is None
        tb.copying = copying
        tb.ready.add(0)
        assert await tb.leaves(3) == 1
        await tb.serve(0)


@cocotb.test(**SEVERAL)
async def guests_go_when_the_floor_is_free(dut):
    """Rule 5: a guest continues after the end of the holder's slice until the holder's copy has
    ended; then it leaves in the next cycle, even if no other channel can take the floor, which it
    then takes itself. It does not leave while the slice lasts."""
    tb = await SchedulerTestbench(dut).start()
    tb.slices[0] = 30
    await tb.guest()
    assert await tb.leaves(60) is None
    tb.copying = set()
    assert await tb.leaves(3) == 1
    await tb.serve(1)
    assert (await tb.step()).floor == 1

    tb.slices[0] = 60
    await tb.guest()
    tb.copying = set()
    left = await tb.leaves(100)
    assert left is not None and 40 < left < 60


@cocotb.test(**SEVERAL)
async def guests_have_slices(dut):
    """Rule 5: a guest's slice lasts for the set time, and longer while no other channel can
    proceed; each service has a new slice."""
    tb = await SchedulerTestbench(dut).start()
    for length in SLICES:
        tb.slices[1] = length
        for _ in range(2):
            await tb.guest(2)
            assert await tb.leaves(length + 50) == max(KNOWN, length)
            tb.stamps[1] = tb.stamps[2] + 1
            await tb.serve(2)
            tb.stamps[1] = 1
        await tb.guest()
        assert await tb.leaves(length + 50) is None
        tb.ready.add(2)
        assert await tb.leaves(5) == KNOWN + 1


@cocotb.test(**SEVERAL)
async def guests_yield_their_own_slice(dut):
    """A guest that yields loses its own slice and not the holder's, and vice versa."""
    tb = await SchedulerTestbench(dut).start()
    await tb.guest(2)
    await tb.steps(4)
    await tb.step(give_up=True)
    assert await tb.leaves(5) == 1
    tb.ready.add(0)
    await tb.serve(0)
    assert await tb.leaves(20) is None

    await tb.step(give_up=True)
    tb.ready.discard(0)
    await tb.serve(1)
    assert await tb.leaves(20) is None
    tb.ready.add(0)
    assert await tb.leaves(20) is None


@cocotb.test(**SEVERAL)
async def slices_of_the_holder(dut):
    """COPY-5, COPY-8: the holder's slice lasts for the set time; while no other channel can proceed
    it is followed, one cycle later, by another of the same length."""
    tb = await SchedulerTestbench(dut).start()
    for length in (*SLICES, LONG):
        tb.slices[0] = length
        await tb.holder(1)
        last = max(KNOWN, length)
        assert await tb.leaves(min(last, 100) + 20) == (last if last < LONG else None)

    tb.slices[0] = 20
    for alone in (0, 1, 5):
        await tb.holder()
        await tb.steps(21 * alone + 10)
        tb.ready.add(1)
        assert await tb.leaves(30) == 10


@cocotb.test(**SEVERAL)
async def slices_leave_nothing_behind(dut):
    """COPY-5: a service that ends by itself at any time of its slice does not shorten the next
    channel's slice, with the floor or as a guest."""
    tb = await SchedulerTestbench(dut).start()
    tb.slices[:4] = [10, 10, 20, 20]
    for before in range(14):
        await tb.holder()
        await tb.steps(before)
        tb.ready = {2, 3}
        await tb.serve(2)
        assert await tb.leaves(30) == 20

        tb.slices[0] = LONG
        await tb.guest()
        await tb.steps(before)
        tb.ready = {2, 3}
        await tb.serve(2)
        assert await tb.leaves(30) == 20
        tb.slices[0] = 10


@cocotb.test(**SEVERAL)
async def patience(dut):
    """Rule 4: a channel with a reserved engine stays longer, for at most 127 cycles after it had to
    leave, regardless of the time served before; no other channel stays."""
    tb = await SchedulerTestbench(dut).start()
    for before in (0, 10, 300):
        for keeping in (set[int](), {1}):
            await tb.guest()
            tb.keeping = keeping
            await tb.steps(before)
            tb.ready.add(0)
            shown = await tb.watch(PATIENCE + 20)
            stays = [one.leave and one.stay for one in shown]
            assert stays.count(True) == (PATIENCE if keeping else 0)
            assert not any(stays[PATIENCE + 1 :])
            tb.keeping = set()


@cocotb.test(**SEVERAL)
async def turns(dut):
    """HOST-7: the served channel must leave in the cycle after it has lost its turn, with or
    without another channel that can proceed. Only channels that have a turn are served."""
    tb = await SchedulerTestbench(dut).start()
    everyone = {*range(CHANNELS)}
    for begin in (tb.holder, tb.guest):
        for others in ((), (2,)):
            await begin(*others)
            assert await tb.leaves(50) is None
            tb.eligible = everyone - {tb.served}
            shown = await tb.watch(3)
            assert [one.leave for one in shown] == [False, True, True]
            tb.eligible = {3}
            await tb.step(stop=True)
            assert all(one.target is None for one in await tb.watch(20))
            tb.ready.add(3)
            await tb.serve(3)
            tb.eligible = everyone


@cocotb.test(**SEVERAL)
async def no_turn_no_floor(dut):
    """A holder that is not served loses the floor as soon as it has no turn, even with a running
    copy: to the next channel, if there is one. If it is served, its slice allows no further copy
    until it leaves."""
    tb = await SchedulerTestbench(dut).start()
    everyone = {*range(CHANNELS)}
    for others in ((), (1,)):
        await tb.holder()
        tb.copying = {0}
        tb.ready = {*others}
        await tb.step(stop=True)
        assert all(one.floor == 0 for one in await tb.watch(10))
        tb.eligible = everyone - {0}
        await tb.step(take=True)
        assert (await tb.step()).floor == (1 if others else None)
        tb.eligible = everyone

    tb.slices[0] = 10
    await tb.holder(1)
    tb.copying = {0}
    await tb.steps(20)
    assert (await tb.step()).spent
    tb.eligible = everyone - {0}
    shown = await tb.step()
    assert shown.spent and not shown.leave
    assert (await tb.step()).leave
    tb.eligible = everyone


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random channels, copies, slices and services behave like the model in every cycle, until each
    rule has decided many times."""
    tb = await SchedulerTestbench(dut).start()
    rules = ["slice anew", "holder again", "no turn"]
    if CHANNELS > 1:
        rules += ["holder's slice", "holder is back", "floor is free", "guest's slice", "guest"]
        rules += ["patience is over"]
    decided = tb.model.decided
    rounds = Rounds(40)
    while rounds.more(all(decided[rule] >= 5 for rule in rules), decided):
        await some_time(tb, lasting=rounds.number % 4 == 0)
    cocotb.log.info("decided: %s", dict(decided))


async def some_time(tb: SchedulerTestbench, *, lasting: bool) -> None:
    """Some hundred cycles of random behaviour. `lasting` : few changes, and services with a
    reserved engine do not end by themselves."""
    numbers = tb.random
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, 3, CHANNELS))))
    changes, ends = numbers.choice((0.01, 0.1, 0.5)), numbers.choice((0.0, 0.002, 0.05, 0.3))
    obeys, acts = numbers.choice((0.3, 1.0)), numbers.choice((0.0, 0.02, 0.2))
    if not numbers.randrange(2):
        tb.eligible = {*range(CHANNELS)}
    if lasting:
        changes, ends, acts = 0.01, 0.0, 0.2
    done, launches = numbers.choice((0.01, 0.05, 0.3)), numbers.choice((0.1, 0.5))
    oldest = numbers.randrange(STAMPS)

    def stamp() -> int:
        return (oldest + numbers.randrange(STAMPS // 2)) % STAMPS

    tb.stamps = [stamp() for _ in range(CHANNELS)]
    tb.slices = [numbers.choice((0, 1, 2, 3, 7, 30, 200, LONG)) for _ in range(CHANNELS)]
    for states in (tb.ready, tb.wanting):
        states &= {*channels}
    turns = numbers.choice((0.0, 0.0, 0.005, 0.1))
    for _ in range(400):
        if numbers.random() < turns:
            chosen = numbers.choice(([], channels[::2], channels[1::2], range(CHANNELS)))
            tb.eligible = {*chosen}
        for states in (tb.ready, tb.wanting):
            if numbers.random() < changes:
                states ^= {numbers.choice(channels)}
        tb.copying -= {channel for channel in tb.copying if numbers.random() < done}
        tb.keeping -= {channel for channel in tb.keeping if numbers.random() < ends}
        if numbers.random() < changes:
            tb.stamps[numbers.choice(channels)] = stamp()
        act = numbers.choices(("reserves", "launches"), (1 - launches, launches))[0]
        await some_cycle(tb, act if numbers.random() < acts else "", numbers.random() < ends, obeys)


async def some_cycle(tb: SchedulerTestbench, act: str, ends: bool, obeys: float) -> None:
    """One cycle in which the served channel acts, or its service ends. `obeys` : probability that
    the service ends when the channel must leave."""
    numbers, served = tb.random, tb.served
    if served is None:
        edit = numbers.choice((*[None] * 20, *range(CHANNELS)))
        await tb.step(take=edit is None and numbers.random() < 0.8, edit=edit)
        return
    if tb.first:
        await tb.step()
        return
    strobes = {name: act == name for name in ("reserves", "launches")}
    shown = await tb.step(stop=ends, give_up=ends and numbers.random() < 0.3, **strobes)
    if act == "launches":
        tb.copying.add(served)
        tb.keeping.discard(served)
    elif act == "reserves":
        tb.keeping.add(served)
    if shown.leave and not shown.stay and numbers.random() < obeys:
        tb.served = None
