"""Turns of the time-slice groups alone (HOST-7): every cycle against their model; slices, early
ends, YIELD, new lists and disabling individually."""

import itertools
import os
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb

from signalbox.hw.host.scheduling.tsg_rotation import TsgRotation
from signalbox.tb.models.tsg_rotation import (
    Group,
    Inputs,
    Outputs,
    RotationModel,
    Runlist,
    Work,
)
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import RUNLISTS
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask, members

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = RUNLISTS[os.environ.get("SIZE", "default")]

CHANNELS, ENTRIES = CONFIG.channels, CONFIG.runlist_entries

SEVERAL = {**LIMIT, "skip": CHANNELS < 4 or ENTRIES < 4}

LONG = {"timeout": 255, "scale": 15}
"""A slice that never ends."""

NEXT = 3
"""Shortest turn, in cycles: until the next place of the list is known and has the turn."""

FOUND = 2 + ENTRIES
"""Maximum cycles until any other place is known."""

STATES = {
    "nothing": (),
    "ready": ("ready", "working"),
    "waits": ("working",),
    "yields": ("working", "yielding"),
}
"""States of a channel that is not served."""


class RotationTestbench(Testbench):
    """Provides the words of the lists, and compares every cycle with the model.

    Members
    -------
    ready, working, yielding : sets of channels, effective from the next `step`.
    served : the served channel, or None; likewise.
    enable, unit : likewise.
    offered : the list that is offered, or None; taken from here when it is accepted.
    shown : outputs of the last cycle.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(TsgRotation, CONFIG))
        self.model = RotationModel(CHANNELS)
        self.ready: set[int] = set()
        self.working: set[int] = set()
        self.yielding: set[int] = set()
        self.served: int | None = None
        self.enable, self.unit = True, 1
        self.offered: Runlist | None = None
        self.shown: Outputs | None = None
        self._half, self._places = 0, 1 << CONFIG.runlist_bits
        self._words = [self._noise() for _ in range(2 * self._places)]
        self._asked = 0

    def _noise(self) -> dict[str, int]:
        numbers = self.random
        return {
            "channels": numbers.getrandbits(CHANNELS),
            "tsgid": numbers.getrandbits(12),
            "timeout": numbers.getrandbits(8),
            "scale": numbers.getrandbits(4),
        }

    def offer(self, runlist: Runlist) -> None:
        """Write a list to the free half of the words, and offer it."""
        base = self._places * (1 - self._half)
        for place, group in enumerate(runlist.groups):
            self._words[base + place] = {**vars(group), "channels": mask(group.channels)}
        self.offered = runlist

    def _disturb(self) -> None:
        """The free half may change whenever no list is offered."""
        if self.offered is None:
            place = self.random.randrange(self._places)
            self._words[self._places * (1 - self._half) + place] = self._noise()

    def _inputs(self, *, expire: bool) -> Inputs:
        work = Work(
            frozenset(self.ready), frozenset(self.working), frozenset(self.yielding), self.served
        )
        return Inputs(work, self.enable, self.unit, self.offered, expire)

    def _drive(self, now: Inputs) -> None:
        work, contents = now.work, now.offer or Runlist()
        self.drive(
            enable=now.enable,
            unit=now.unit,
            list__valid=now.offer is not None,
            list__payload={
                "groups": len(contents.groups),
                "start": contents.start,
                "channels": mask(contents.channels),
            },
            word=self._words[self._asked],
            work={
                "ready": mask(work.ready),
                "working": mask(work.working),
                "yielding": mask(work.yielding),
                "served": 0 if work.served is None else 1 << work.served,
            },
            expire=now.expire,
        )

    def _seen(self) -> Outputs:
        eligible, at = self.get("eligible"), self.get("at")
        return Outputs(
            members(eligible),
            self.get("tsgid") if self.get("running") else None,
            self.get("groups"),
            members(self.get("listed")),
            self.get("half"),
            at % self._places,
            bool(self.get("list__ready")),
        )

    async def step(self, *, expire: bool = False) -> Outputs:
        """One cycle."""
        self._disturb()
        now = self._inputs(expire=expire)
        expected = self.model.show(now)
        self._drive(now)
        await super().step()
        shown = self._seen()
        assert shown == expected, f"cycle {self.cycle}: {now}"
        assert self.get("at") // self._places == shown.half
        self.model.step(now)
        self._half, self._asked = shown.half, self.get("at")
        if shown.accepts:
            self.offered, self._half = None, 1 - shown.half
        self.shown = shown
        return shown

    async def watch(self, cycles: int) -> list[int | None]:
        """Holder of the turn in each of `cycles` cycles."""
        return [(await self.step()).tsgid for _ in range(cycles)]

    async def begin(self, *groups: Group, ready: set[int], start: int = 0) -> None:
        """Make a list active, with these channels able to proceed, and wait until its first turn
        begins in the next cycle."""
        self.ready, self.working, self.yielding, self.served = {*ready}, {*ready}, set(), None
        self.enable = False
        self.offer(Runlist(groups, start))
        await self.steps(2)
        assert self.offered is None
        self.enable = True
        await self.until(lambda: self.model.turn is not None, "a turn", 2 * ENTRIES + FOUND)

    async def lasts(self, tsgid: int, most: int = 200) -> int | None:
        """Number of cycles before the turn leaves `tsgid`; None if it stays for `most`."""
        for cycle in range(most):
            if (await self.step()).tsgid != tsgid:
                return cycle
        return None


def group(tsgid: int, *channels: int, **slice: int) -> Group:
    """A TSG, with the longest slice by default."""
    return Group(frozenset(channels), tsgid, **(slice or LONG))


@cocotb.test(**SEVERAL)
async def slices(dut):
    """A slice lasts for exactly (TIMEOUT << SCALE) units, where TIMEOUT 0 and units of 0 cycles
    count as 1; the next TSG has the turn from the second cycle after it on."""
    tb = await RotationTestbench(dut).start()
    for timeout, scale, unit in (
        *((0, 0, 0), (1, 0, 1), (2, 0, 1), (7, 0, 0), (1, 3, 1), (0, 4, 1), (255, 0, 1)),
        *((3, 2, 1), (1, 0, 7), (2, 0, 7), (3, 1, 13), (0, 5, 2), (5, 0, 100), (1, 11, 1)),
    ):
        tb.unit = unit
        length = (max(1, timeout) << scale) * max(1, unit)
        first = group(1, 0, timeout=timeout, scale=scale)
        await tb.begin(first, group(2, 1), ready={0, 1})
        assert await tb.lasts(1, length + 20) == max(length + 1, NEXT)


@cocotb.test(**SEVERAL)
async def in_turn(dut):
    """TSGs with a channel that can proceed have the turn in the order of the list, from its start
    on; a TSG listed twice has it twice. Others are passed over."""
    tb = await RotationTestbench(dut).start()
    slice = {"timeout": 20}
    groups = {9: group(9, 3, **slice), 8: group(8, 0, **slice), 7: group(7, 1, **slice)}
    order = [9, 8, 9, 7]
    for start in range(4):
        for gone, idle in ((None, None), (8, 0), (7, 1), (9, 3)):
            listed = [groups[tsgid] for tsgid in order]
            await tb.begin(*listed, ready={0, 1, 3} - {idle}, start=start)
            turns = changes(await tb.watch(200))
            around = (order[start:] + order[:start]) * 2
            expected = changes([tsgid for tsgid in around if tsgid != gone])
            assert turns[:4] == expected[:4]


def changes(turns: list[Any]) -> list[Any]:
    """The turns, without repetitions in a row."""
    return [one for one, _ in itertools.groupby(turns)]


@cocotb.test(**SEVERAL)
async def left_early(dut):
    """A TSG loses the turn before the end of its slice when none of its channels has work, or all
    channels with work wait for failed acquires with ACQUIRE_SWITCH_TSG; not while a channel is
    served, can proceed, or waits for anything else. The turn changes in the cycle after the
    decision, which is based on the state of the previous cycle."""
    tb = await RotationTestbench(dut).start()
    groups = (group(1, 0, 2), group(2, 1))
    for working, yielding, leaves in (
        *((set[int](), set[int](), True), ({0}, {0}, True), ({0, 2}, {0, 2}, True)),
        *(({0}, set(), False), ({0, 2}, {0}, False), ({0, 2}, {2}, False), (set(), {0}, True)),
    ):
        await tb.begin(*groups, ready={0, 1})
        tb.served = 0
        await tb.steps(10)
        tb.ready, tb.working, tb.yielding = {1}, {1, *working}, yielding
        assert await tb.lasts(1, 50) is None
        tb.served = None
        assert await tb.lasts(1, 50) == (2 if leaves else None)
        if not leaves:
            tb.yielding = working
            assert await tb.lasts(1, 50) == 2


@cocotb.test(**SEVERAL)
async def nobody_else(dut):
    """The turn does not change while no other TSG can proceed; the slice stays over until one
    can."""
    tb = await RotationTestbench(dut).start()
    for timeout in (1, 30, 90):
        first = group(1, 0, timeout=timeout)
        await tb.begin(first, group(2, 1), group(3, 2), ready={0})
        tb.served = 0
        assert await tb.lasts(1, 100) is None
        tb.ready.add(2)
        left = await tb.lasts(1, 50)
        assert left is not None and left <= 1 + FOUND
        assert tb.shown is not None and tb.shown.tsgid == 3

    # A TSG without work stays as well.
    await tb.begin(group(1, 0), group(2, 1), ready={0})
    tb.ready, tb.working = set(), {1}
    assert await tb.lasts(1, 100) is None
    tb.ready = {1}
    assert await tb.lasts(1, 50) is not None


@cocotb.test(**SEVERAL)
async def expires(dut):
    """YIELD of one of its own channels ends a TSG's slice at once; YIELD of a channel of another
    TSG, which has yet to leave, does not."""
    tb = await RotationTestbench(dut).start()
    for who, leaves in ((0, True), (3, False), (None, False)):
        await tb.begin(group(1, 0, 2), group(2, 1), ready={0, 1})
        tb.served = who
        await tb.steps(FOUND)
        await tb.step(expire=True)
        assert await tb.lasts(1, 50) == (1 if leaves else None)


@cocotb.test(**SEVERAL)
async def stands_still(dut):
    """The slice does not advance while a channel of another TSG is served."""
    tb = await RotationTestbench(dut).start()
    for length, before, foreign in ((20, 0, 30), (20, 5, 1), (20, 19, 7), (10, 9, 300)):
        await tb.begin(group(1, 0, timeout=length), group(2, 1), ready={0, 1})
        await tb.steps(before)
        tb.served = 1
        assert await tb.lasts(1, foreign) is None
        tb.served = None
        assert await tb.lasts(1, 50) == length - before + 1


@cocotb.test(**SEVERAL)
async def new_lists(dut):
    """A new list is accepted when the turn may change, even if no other TSG could have it: at the
    end of the slice, or when nothing keeps the TSG; at once if no TSG has the turn. After that no
    channel may be served until a TSG of the new list that can proceed has the turn."""
    tb = await RotationTestbench(dut).start()
    await tb.begin(group(1, 0, timeout=50), group(2, 1), ready={0})
    tb.offer(Runlist((group(5, 2), group(6, 0, 3)), 1))
    for _ in range(51):
        assert (await tb.step()).tsgid == 1
    assert tb.offered is None
    shown = await tb.step()
    assert (shown.tsgid, shown.eligible, shown.groups) == (None, frozenset(), 2)
    assert shown.listed == {0, 2, 3}
    assert await tb.lasts(-1, 1) == 0
    seen = await tb.watch(FOUND)
    assert seen[-1] == 6

    tb.ready, tb.working = set(), set()
    await tb.steps(2)
    tb.offer(Runlist())
    assert (await tb.step()).accepts
    tb.offer(Runlist((group(7, 1),)))
    assert (await tb.step()).accepts
    tb.ready = {1}
    assert (await tb.watch(2 * FOUND))[-1] == 7


@cocotb.test(**LIMIT)
async def disabled(dut):
    """While runlists are disabled all channels may be served, and a new list is accepted at once.
    Without a list no channel may be served."""
    tb = await RotationTestbench(dut).start()
    everyone = frozenset(range(CHANNELS))
    assert (await tb.step()).eligible == everyone
    assert (await tb.step()).eligible == frozenset()
    tb.ready = {*everyone}
    await tb.steps(20)
    tb.enable = False
    await tb.steps(1)
    assert (await tb.step()).eligible == everyone
    tb.offer(Runlist((group(3, 0),)))
    assert (await tb.step()).accepts
    await tb.steps(10)
    assert (await tb.step()).eligible == everyone
    tb.enable = True
    assert (await tb.step()).eligible == everyone
    shown = await tb.step()
    assert (shown.eligible, shown.tsgid) == ({0}, 3)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random lists, work and services behave like the model in every cycle, until each rule has
    decided many times."""
    tb = await RotationTestbench(dut).start()
    goals = ["list at once", "list at a change", "list while disabled", "list waits", "expire"]
    goals += ["nobody else", "waits"]
    if ENTRIES > 1:
        goals += ["slice", "idle", "yielding", "no longer able", "shared"]
    if CHANNELS > 1:
        goals += ["foreign"]
    decided = tb.model.decided
    rounds = Rounds(60, 2400)  # a group becomes idle in few of them if there are two
    while rounds.more(all(decided[goal] >= 10 for goal in goals), decided):
        await some_time(tb)
    cocotb.log.info("decided: %s", dict(decided))


@dataclass(frozen=True)
class Odds:
    """Probabilities per cycle of a part of the random test. `obeys` : probability that a channel
    leaves when it may not be served."""

    changes: float
    lists: float
    begins: float
    ends: float
    obeys: float
    expires: float
    disables: float


def some_odds(numbers: Random) -> Odds:
    return Odds(
        numbers.choice((0.1, 0.5)),
        numbers.choice((0.0, 0.005, 0.005, 0.005, 0.2)),
        numbers.choice((0.02, 0.5)),
        numbers.choice((0.03, 0.5)),
        numbers.choice((0.02, 0.3, 1.0)),
        numbers.choice((0.0, 0.05)),
        numbers.choice((0.0, 0.0, 0.01)),
    )


def some_list(numbers: Random) -> Runlist:
    """A list of some TSGs, in any order, whose channels may overlap."""
    count = numbers.choice((numbers.randint(0, ENTRIES), min(3, ENTRIES), ENTRIES, ENTRIES))
    groups = [some_group(numbers) for _ in range(numbers.randint(1, max(1, count)))]
    listed = tuple(numbers.choice(groups) for _ in range(count))
    return Runlist(listed, numbers.randrange(count) if count else 0)


def some_group(numbers: Random) -> Group:
    most = numbers.choice((1, 2, CHANNELS))
    channels = {numbers.randrange(CHANNELS) for _ in range(most)}
    timeout, scale = numbers.choice((0, 1, 5, 20, 255)), numbers.choice((0, 1, 3, 15, 15))
    return Group(frozenset(channels), numbers.getrandbits(12), timeout, scale)


def some_state(tb: RotationTestbench, channel: int) -> None:
    """A channel gets another state, sometimes an impossible one."""
    numbers = tb.random
    names = STATES[numbers.choice([*STATES])]
    if numbers.random() < 0.1:
        names = tuple(name for name in STATES["ready"] + STATES["yields"] if numbers.random() < 0.5)
    for name in ("ready", "working", "yielding"):
        states = getattr(tb, name)
        states.discard(channel)
        if name in names:
            states.add(channel)


async def some_time(tb: RotationTestbench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers, odds = tb.random, some_odds(tb.random)
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, 3, CHANNELS))))
    for states in (tb.ready, tb.working, tb.yielding):
        states &= {*channels}
    unit = numbers.choice((0, 1, 1, 2, 9))
    for _ in range(400):
        if numbers.random() < odds.changes:
            turn = tb.model.turn and numbers.random() < 0.5
            some_state(tb, numbers.choice([*tb.model.turn.group.channels] if turn else channels))
        if numbers.random() < odds.disables:
            tb.enable = not tb.enable
        if tb.model.turn is None:
            tb.unit = unit
        if tb.offered is None and numbers.random() < odds.lists:
            tb.offer(some_list(numbers))
        before = tb.served
        await tb.step(expire=numbers.random() < odds.expires)
        if tb.served == before:
            some_service(tb, odds)
    tb.enable = True


def some_service(tb: RotationTestbench, odds: Odds) -> None:
    """The service of a channel begins or ends. It begins only if the channel may be served, or its
    context is changed."""
    numbers, shown = tb.random, tb.shown
    assert shown is not None
    eligible = shown.eligible
    if tb.served is None:
        able = sorted(eligible & tb.ready)
        if numbers.random() < 0.005:
            tb.served = numbers.randrange(CHANNELS)
        elif able and numbers.random() < odds.begins:
            tb.served = numbers.choice(able)
    elif numbers.random() < (odds.ends if tb.served in eligible else odds.obeys):
        tb.served = None
