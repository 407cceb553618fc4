"""The runlist alone (HOST-7): from lists in memory to turns; failed acquires; RUNLIST_ACQUIRE in
every cycle."""

import itertools
import os
from collections import Counter
from typing import Any

import cocotb

from signalbox.hw.host.scheduling.runlist import Runlist
from signalbox.hw.registers import Wait
from signalbox.hw.runlists import RunlistError
from signalbox.tb.models.runlist import channel_entry, group_entry
from signalbox.tb.models.tsg_rotation import Group
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import RUNLISTS
from signalbox.tb.testbench.contents import Contents
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask, members
from signalbox.tb.testbench.servers import ReadServer
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = RUNLISTS[os.environ.get("SIZE", "default")]

CHANNELS, ENTRIES = CONFIG.channels, CONFIG.runlist_entries

SEVERAL = {**LIMIT, "skip": CHANNELS < 4 or ENTRIES < 4}

EVERYONE = frozenset(range(CHANNELS))

PHYSICAL = (0, 1)
"""Address space of all reads."""

LONG = (255, 15)
"""TIMEOUT and SCALE of a slice that never ends."""

IDLE, READY = (), ("ready", "working")

WAITS = ("working",)

POLLS = [Wait.RETRY, Wait.FENCE]
"""Waits for semaphores in memory."""
LACKS = [Wait.ENGINE, Wait.ENGINE_ONLY, Wait.ENGINE_TIMED]
"""Waits for a copy engine."""
OTHERS = [wait for wait in Wait if wait not in {*POLLS, *LACKS}]


class RunlistTestbench(Testbench):
    """Submits lists in memory, and plays the channels. Checks in every cycle that the channels that
    may be served form a TSG of the active list, and that RUNLIST_ACQUIRE is raised when it must be.

    Members
    -------
    enable, all_idle : effective from the next `step`.
    ready, working, polling, lacking, holding : sets of channels, likewise; none of `polling` is in
        `lacking`.
    served : the served channel, or None; likewise.
    pretest : cycles for which polls rest after other work; likewise.
    failed : channels whose latest acquire has failed after their latest method; True if with
        ACQUIRE_SWITCH_TSG.
    lately : channels with an acquire that has failed after the latest method of any channel.
    active, submitted : TSGs of the active list, and of the pending list, if any.
    turn : TSGID of the TSG that had the turn in the last cycle, or None.
    eligible : channels that could be served in the last cycle.
    met : number of events.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Runlist, CONFIG))
        self.memory = ReadServer(self, Contents(), latency=self.between(1, 20))
        self.enable, self.all_idle = True, False
        self.ready: set[int] = set()
        self.working: set[int] = set()
        self.polling: set[int] = set()
        self.lacking: set[int] = set()
        self.holding: set[int] = set()
        self.failed: dict[int, bool] = {}
        self.pretest = self._pause = self._calm = 0
        self._retrying: set[int] = set()
        self._rest: set[int] = set()
        self._polled: set[int] = set()
        self.lately: set[int] = set()
        self.served: int | None = None
        self.active: tuple[Group, ...] = ()
        self.submitted: tuple[Group, ...] | None = None
        self.turn: int | None = None
        self.eligible = EVERYONE
        self.met = Counter[str]()
        self._submit = Strobe(self, "control__submit")
        self._executed = Strobe(self, "methods__executed")
        self._failed, self._clear = Strobe(self, "client__failed"), Strobe(self, "start__cleared")
        self._starved = self._was_starved = self._was_idle = False

    def submit(self, *groups: Group, first: int = 0, cut: int = 0) -> None:
        """Write a list to memory, and submit it in the next cycle. `cut` : entries that its length
        does not include."""
        entries: list[bytes] = []
        heads: list[int] = []
        for group in groups:
            heads.append(len(entries))
            entries.append(
                group_entry(len(group.channels), group.tsgid, group.timeout, group.scale)
            )
            entries += [channel_entry(channel) for channel in group.channels]
        page = self.random.randrange(1 << 20)
        self.memory.contents.write(PHYSICAL, page << 12, b"".join(entries))
        offset = heads[first] if groups else 0
        self._submit.send(page=page, length=len(entries) - cut, offset=offset)
        self.submitted = groups

    def execute(self, channel: int) -> None:
        """A channel executes a method in the next cycle."""
        self._executed.send(channel=channel)

    def clear(self, channel: int) -> None:
        """A channel starts in the next cycle."""
        self._clear.send(channel=channel)

    def fail(self, channel: int, *, yields: bool) -> None:
        """An acquire of the served channel fails in the next cycle."""
        self._failed.send(channel=channel, yields=yields)

    def state(self, *channels: int, names: tuple[str, ...]) -> None:
        """The channels get a state."""
        for name in ("ready", "working"):
            states = getattr(self, name)
            states.difference_update(channels)
            if name in names:
                states.update(channels)

    async def step(self) -> None:
        """One cycle."""
        served = self.served
        self.drive(
            control__enable=self.enable,
            control__unit=1,
            control__pretest=self.pretest,
            parked__ready=mask(self.ready),
            parked__waits=self._waits(),
            parked__holding=mask(self.holding),
            state__working=mask(self.working),
            served__active=served is not None,
            served__channel=self.random.randrange(CHANNELS) if served is None else served,
            activity__all_idle=self.all_idle,
        )
        await super().step()
        self._see_list()
        self._see_turn()
        self._see_rest()
        self._see_acquire()

    def _waits(self) -> list[Wait]:
        """Waits of the channels; remembers which of them repeat an acquire."""
        waits = [self._wait(channel) for channel in range(CHANNELS)]
        self._retrying = {one for one, wait in enumerate(waits) if wait is Wait.RETRY}
        return waits

    def _wait(self, channel: int) -> Wait:
        """A random wait of the channel's kind."""
        if channel in self.polling:
            return self.random.choice(POLLS)
        return self.random.choice(LACKS if channel in self.lacking else OTHERS)

    def _see_list(self) -> None:
        """A list becomes active in the first cycle in which it is no longer pending."""
        state, refused = self.get("control__state"), self.get("control__refused")
        pending, submit = state["pending"], self.get("control__submit")
        if self.submitted is not None and not pending and not submit["valid"]:
            if not refused["valid"]:
                self.active = self.submitted
            self.met["refused" if refused["valid"] else "accepted"] += 1
            self.submitted = None
        assert state["groups"] == len(self.active)

    def _see_turn(self) -> None:
        state, before = self.get("control__state"), self.turn
        self.eligible = members(self.get("turns__eligible"))
        self.turn = state["tsgid"] if state["running"] else None
        if self.turn is not None:
            turns = {(group.tsgid, group.channels) for group in self.active}
            assert (self.turn, self.eligible) in turns, f"cycle {self.cycle}"
            self.met["turns"] += self.turn != before
        else:
            assert self.eligible in (frozenset(), EVERYONE)

    def _see_rest(self) -> None:
        """While there is no other work, channels that repeat an acquire with ACQUIRE_SWITCH_TSG
        rest for `pretest` cycles."""
        assert members(self.get("resting")) == self._rest, f"cycle {self.cycle}"
        listed = {channel for group in self.active for channel in group.channels}
        busy = self.served is not None or bool(listed & self.ready)
        self._calm = 0 if busy else self._calm + 1
        rests = self.enable and 0 < self._calm <= self._pause
        self._rest = {one for one in self._retrying if self.yields(one)} if rests else set()
        self.met["rest"] += bool(self._rest)
        if busy:
            self._pause = self.pretest

    def _see_acquire(self) -> None:
        """RUNLIST_ACQUIRE is raised one cycle after all channels with work have come to wait; its
        `idle` form when, besides, everything is idle."""
        starved, idle = self._starved, self._starved and self.all_idle
        expected = (starved and not self._was_starved, idle and not self._was_idle)
        acquire = self.get("control__acquire")
        assert (acquire["valid"], acquire["idle"]) == expected, f"cycle {self.cycle}"
        self.met["starved"] += expected[0]
        self.met["starved, idle"] += expected[1]
        self._was_starved, self._was_idle = starved, idle
        self._starved = self.enable and self._waits_only()
        executed, clear, failed = (
            self.get(name) for name in ("methods__executed", "start__cleared", "client__failed")
        )
        if executed["valid"]:
            self.failed.pop(executed["channel"], None)
            self.lately.clear()
        if clear["valid"]:
            self.failed.pop(clear["channel"], None)
        if failed["valid"]:
            self.lately.add(failed["channel"])
            self.failed[failed["channel"]] = bool(failed["yields"])
        self._polled = self.polling | (self._polled & {self.served})

    def _waits_only(self) -> bool:
        """Whether some channel of the list waits, and none of its other channels has work."""
        listed = {channel for group in self.active for channel in group.channels}
        polls = self.polling | self._polled
        vain = (polls & self.lately) | (EVERYONE - polls - self.ready)
        waiting = {one for one in self.working & vain if self.yields(one)}
        return bool(listed & waiting) and not listed & self.working - waiting

    def yields(self, channel: int) -> bool:
        """Whether the channel yields the turn to others."""
        if channel in self.lacking:
            return channel not in self.holding and self.failed.get(channel, True)
        return self.failed.get(channel, False)

    async def activate(self, *groups: Group, first: int = 0, disable: bool = True) -> None:
        """Submit a list, and wait until it is active and has its first turn. `disable` : disable
        runlists meanwhile, so that it becomes active whoever has the turn."""
        self.enable = not disable
        self.submit(*groups, first=first)
        await self.step()
        await self.until(lambda: self.submitted is None, "the list is active")
        self.enable = True
        await self.until(lambda: self.turn is not None, "a turn")

    async def stays(self, cycles: int = 40) -> bool:
        """Whether the turn does not change."""
        before = self.turn
        await self.steps(cycles)
        return self.turn == before


def long(tsgid: int, *channels: int) -> Group:
    """A TSG whose slice never ends."""
    return Group(frozenset(channels), tsgid, *LONG)


@cocotb.test(**SEVERAL)
async def in_order(dut):
    """A list in memory leads to turns in its order, from OFFSET on; the previous list stays active
    and complete until then."""
    tb = await RunlistTestbench(dut).start()
    tb.state(*range(4), names=READY)
    order = (3, 1, 3, 2, 0)[:ENTRIES]
    for round, first in itertools.product(range(3), range(len(order))):
        groups = [Group(frozenset({one}), 100 * round + one, 20) for one in order]
        await tb.activate(*groups, first=first, disable=False)
        turns = []
        for _ in range(22 * len(order)):
            turns.append(tb.turn)
            await tb.step()
        expected = [groups[(first + place) % len(order)].tsgid for place in range(len(order))]
        assert [one for one, _ in itertools.groupby(turns)][: len(order)] == expected


@cocotb.test(**SEVERAL)
async def refused_lists(dut):
    """A bad list leaves the active one as it is."""
    tb = await RunlistTestbench(dut).start()
    tb.state(0, 1, names=READY)
    await tb.activate(long(1, 0), long(2, 1))
    tb.submit(*[long(9, 3)] * 3, cut=1)
    await tb.until(lambda: tb.get("control__refused")["valid"], "refused")
    assert tb.get("control__refused")["error"] is RunlistError.OVERFLOW
    assert tb.turn == 1
    tb.state(0, names=IDLE)
    await tb.until(lambda: tb.turn == 2, "the next turn")


@cocotb.test(**SEVERAL)
async def failed_acquires(dut):
    """A channel lets its TSG give up the turn from an acquire that fails with ACQUIRE_SWITCH_TSG
    until its next method, also while it is served again; not if the acquire fails without it."""
    tb = await RunlistTestbench(dut).start()
    for yields in (True, False, True):
        tb.state(0, 1, names=READY)
        await tb.activate(long(1, 0), long(2, 1))
        tb.served = 0
        await tb.steps(5)
        tb.fail(0, yields=yields)
        tb.state(0, names=WAITS)
        await tb.step()
        assert tb.turn == 1
        tb.served = None
        assert await tb.stays() == (not yields)

        # Served again, it still yields, unless it executes a method.
        for progress in (False, True):
            tb.state(1, names=IDLE)
            tb.state(0, names=READY)
            await tb.until(lambda: tb.turn == 1, "the turn")
            tb.served = 0
            await tb.step()
            if progress:
                tb.execute(0)
            tb.state(0, names=WAITS)
            tb.state(1, names=READY)
            tb.served = None
            assert await tb.stays() == (progress or not yields)


@cocotb.test(**SEVERAL)
async def acquires(dut):
    """RUNLIST_ACQUIRE is raised once when the last channel of the list with work fails an acquire
    with ACQUIRE_SWITCH_TSG, and again after a channel could proceed; channels outside the list do
    not count."""
    tb = await RunlistTestbench(dut).start()
    tb.state(0, 1, names=READY)
    tb.state(3, names=WAITS)  # not in the list
    await tb.activate(long(1, 0), long(2, 1))
    for channel in (0, 1):
        await tb.until(lambda channel=channel: channel in tb.eligible, "the turn")
        tb.served = channel
        await tb.steps(3)
        tb.fail(channel, yields=True)
        tb.state(channel, names=WAITS)
        await tb.step()
        tb.served = None
        await tb.steps(2)
        assert tb.met["starved"] == channel
    await tb.steps(20)
    assert (tb.met["starved"], tb.met["starved, idle"]) == (1, 0)
    tb.all_idle = True
    await tb.steps(20)
    assert (tb.met["starved"], tb.met["starved, idle"]) == (1, 1)
    tb.state(1, names=READY)
    await tb.steps(20)
    tb.state(1, names=WAITS)
    await tb.steps(20)
    assert (tb.met["starved"], tb.met["starved, idle"]) == (2, 2)


@cocotb.test(**SEVERAL)
async def copies_without_their_group(dut):
    """A channel that waits for an engine yields the turn if its acquire group does not hold, unless
    one of its acquires has failed without ACQUIRE_SWITCH_TSG."""
    tb = await RunlistTestbench(dut).start()
    for failed in (None, False, True):
        for holding in (False, True):
            tb.holding, tb.lacking = set(), set()
            tb.state(0, 1, names=READY)
            await tb.activate(long(1, 0), long(2, 1))
            if failed is not None:
                tb.fail(0, yields=failed)
                await tb.step()
            tb.state(0, names=WAITS)
            tb.lacking = {0}
            tb.holding = {0} if holding else set()
            assert await tb.stays() == (holding or failed is False)
        tb.clear(0)
        await tb.step()


@cocotb.test(**SEVERAL)
async def polls(dut):
    """An acquire that polls counts as waiting once it has failed after the latest method of any
    channel, also while it is repeated."""
    tb = await RunlistTestbench(dut).start()
    tb.state(0, 1, names=READY)
    await tb.activate(long(1, 0), long(2, 1))
    tb.polling = {0}
    tb.fail(0, yields=True)
    await tb.step()
    tb.execute(1)
    await tb.step()
    tb.state(1, names=IDLE)
    await tb.steps(20)
    assert tb.met["starved"] == 0
    for again in range(2):
        tb.fail(0, yields=True)
        await tb.step()
        tb.state(0, names=(WAITS, READY)[again])
        await tb.steps(20)
        assert tb.met["starved"] == 1
    tb.clear(0)
    await tb.steps(5)
    tb.fail(0, yields=True)
    await tb.steps(5)
    assert tb.met["starved"] == 2


@cocotb.test(**SEVERAL)
async def yields_the_turn(dut):
    """YIELD ends the slice of the served channel's TSG, but only while a channel is being
    served."""
    tb = await RunlistTestbench(dut).start()
    for serving in (True, False):
        tb.state(0, 1, names=READY)
        await tb.activate(long(1, 0), long(2, 1))
        if serving:
            tb.served = 0
        await tb.steps(10)
        tb.drive(client__expire=1)
        await tb.step()
        tb.drive(client__expire=0)
        await tb.steps(2)
        assert tb.turn == (2 if serving else 1)
        tb.served = None


@cocotb.test(**LIMIT)
async def any_work(dut):
    """Random lists, good and bad, and random work: the checks of the testbench hold in every cycle,
    until each event has happened many times."""
    tb = await RunlistTestbench(dut).start()
    goals = ["accepted", "refused", "starved", "starved, idle", "turns", "rest"]
    rounds = Rounds(30)
    while rounds.more(all(tb.met[goal] >= 20 for goal in goals), tb.met):
        await some_time(tb)
    cocotb.log.info("met: %s", dict(tb.met))


async def some_time(tb: RunlistTestbench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers = tb.random
    changes, lists = numbers.choice((0.02, 0.1, 0.5)), numbers.choice((0.002, 0.05))
    fails, idle = numbers.choice((0.05, 0.5)), numbers.random()
    tb.pretest = numbers.choice((0, 3, 20))
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    tb.state(*range(CHANNELS), names=IDLE)
    await other_list(tb)
    for _ in range(400):
        if numbers.random() < changes:
            names = numbers.choice((IDLE, READY, WAITS, WAITS))
            tb.state(numbers.choice(channels), names=names)
        if numbers.random() < 0.02:
            tb.polling ^= {numbers.choice(channels)}
            tb.lacking = (tb.lacking ^ {numbers.choice(channels)}) - tb.polling
            tb.holding ^= {numbers.choice(channels)}
        if numbers.random() < 0.01:
            tb.clear(numbers.choice(channels))
        if numbers.random() < 0.05:
            tb.all_idle = numbers.random() < idle
        if numbers.random() < 0.002:
            tb.enable = not tb.enable
        if tb.submitted is None and numbers.random() < lists:
            groups = some_list(tb)
            tb.submit(*groups, cut=bool(groups) and numbers.random() < 0.2)
        some_service(tb, fails)
        await tb.step()
    tb.enable = True


async def other_list(tb: RunlistTestbench) -> None:
    """Submit a list, bad or good, which is refused or accepted whoever has the turn."""
    tb.enable = False
    for cut in (True, False):
        await tb.until(lambda: tb.submitted is None, "no list is pending")
        groups = some_list(tb)
        tb.submit(*groups, cut=bool(groups) and cut)
        await tb.step()
    tb.enable = True


def some_list(tb: RunlistTestbench) -> list[Group]:
    """A list of some TSGs; sometimes too many."""
    numbers = tb.random
    count = numbers.choice((numbers.randint(0, ENTRIES), ENTRIES, ENTRIES + 1))
    groups = []
    for _ in range(min(count, 8) if numbers.random() < 0.9 else count):
        most = numbers.choice((1, 2, CHANNELS))
        channels = frozenset(numbers.randrange(CHANNELS) for _ in range(most))
        slice = numbers.choice(((0, 0), (5, 0), (20, 1), LONG))
        groups.append(Group(channels, numbers.getrandbits(12), *slice))
    return groups


def some_service(tb: RunlistTestbench, fails: float) -> None:
    """The service of a channel begins or ends, or its acquire fails."""
    numbers = tb.random
    if tb.served is None:
        able = sorted(tb.eligible & tb.ready)
        if able and numbers.random() < 0.5:
            tb.served = numbers.choice(able)
            if numbers.random() < 0.5:
                tb.execute(tb.served)
    elif numbers.random() < fails:
        yields = numbers.random() < 0.8
        tb.fail(tb.served, yields=yields)
        tb.state(tb.served, names=WAITS)
        tb.served = None
    elif numbers.random() < 0.1 or tb.served not in tb.eligible:
        tb.served = None
