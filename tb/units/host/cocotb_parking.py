"""Waits of parked channels alone (COPY-7, COPY-9, COPY-10, COPY-13): every cycle against its model;
each wait, updates and groups individually."""

import os
from dataclasses import replace
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.registers import Wait
from signalbox.tb.models.parking import (
    ALL,
    ENDS_WITH,
    SITUATIONS,
    STATES,
    Inputs,
    Outputs,
    ParkingModel,
)
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask, members
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, COUNTERS, INDICES = CONFIG.channels, CONFIG.counters, 1 << CONFIG.semaphore_bits

STATE_PORTS = {
    "alive": "state__alive",
    "occupied": "state__occupied",
    "copying": "engines__copying",
    "tasks": "tasks__some",
    "engine": "engines__able",
    "queue": "engines__queue",
    "retry": "methods__retry",
    "fenced": "methods__fenced",
    "over": "methods__over",
    "referring": "methods__referring",
}
"""Port of each state."""

ENDS = {
    wait: [state for reason in reasons for state in STATES if state in reason.split()]
    for wait, reasons in ENDS_WITH.items()
    if wait != Wait.TURN
}
"""States that end each wait; states in `BUSY` by ending themselves."""

BUSY = frozenset({"copying", "tasks", "referring"})
"""States of operations that have not ended."""

BEFORE = frozenset({"alive", *BUSY})
"""States before all events that a channel may wait for."""

AFTER = frozenset({*STATES} - BUSY)
"""States after all of these events."""

SOME = sorted({0, CHANNELS // 2, CHANNELS - 1})
"""Some channels."""


class ParkingTestbench(Testbench):
    """Serves channels as the pipeline does, and compares every cycle with the model.

    Members
    -------
    states : of every channel, effective from the next `step`.
    zero : counting semaphores that are 0, likewise.
    served : the channel served in the next `step`, or None; between two services there is a cycle
        without a service.
    begins : no channel was served in the previous cycle.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Parking, CONFIG))
        self.model = ParkingModel(CHANNELS)
        self.states: list[set[str]] = [set(BEFORE) for _ in range(CHANNELS)]
        self.zero: set[int] = set()
        self.served: int | None = None
        self.begins = True
        self._park, self._update = Strobe(self, "pipeline__park"), Strobe(self, "on_chip__update")
        self._clear = Strobe(self, "start__cleared")
        self._watch = Strobe(self, "acquires__watch")
        self._guard = Strobe(self, "acquires__guard")
        self._unguard = Strobe(self, "acquires__unguard")

    def _drive(self, now: Inputs) -> None:
        for state in STATES:
            channels = mask(c for c in range(CHANNELS) if state in now.states[c])
            self.drive(**{STATE_PORTS[state]: channels})
        self.drive(on_chip__zero=mask(now.zero))
        served = self.random.randrange(CHANNELS) if now.served is None else now.served
        self.drive(
            pipeline__unpark={"valid": now.served is not None and self.begins, "channel": served}
        )
        if now.served is not None:
            self._park.send(channel=served, wait=now.wait, lasts=now.lasts)
        if now.watch is not None:
            self._watch.send(channel=served, index=now.watch)
        if now.joins is not None:
            self._guard.send(channel=served, counter=now.joins)
        if now.leaves == ALL:
            counter = self.random.randrange(INDICES)
            self._unguard.send(channel=served, all=1, counter=counter)
        elif now.leaves is not None:
            self._unguard.send(channel=served, all=0, counter=now.leaves)
        if now.update is not None:
            self._update.send(index=now.update)
        if now.clear is not None:
            self._clear.send(channel=now.clear)

    def _shown(self) -> Outputs:
        return Outputs(
            members(self.get("parked__ready")),
            members(self.get("parked__wanting")),
            members(self.get("parked__holding")),
            bool(self.get("acquires__held")),
            tuple(self.get("parked__waits")),
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`. A service ends with its `wait`."""
        now = Inputs(
            tuple(map(frozenset, self.states)), frozenset(self.zero), self.served, **events
        )
        self._drive(now)
        expected = self.model.show(now)
        await super().step()
        shown = self._shown()
        if expected.held is None:
            shown = replace(shown, held=None)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        self.model.step(now)
        self.begins = self.served is None
        if now.wait != Wait.NONE:
            self.served = None
        return shown

    async def after(self, cycles: int) -> Outputs:
        """Let `cycles` cycles pass without events. Returns the outputs of the last one."""
        await self.steps(cycles - 1)
        return await self.step()

    async def serve(self, channel: int, **events: Any) -> None:
        """The first cycle of a service, after a cycle without a service."""
        self.served = None
        await self.step()
        self.served = channel
        await self.step(**events)

    async def park(self, channel: int, wait: Wait, *, watch: int | None = None) -> None:
        """A short service. With `Wait.NONE`, the channel lacks dwords."""
        await self.serve(channel)
        await self.step(watch=watch)
        await self.step(wait=wait)
        self.served = None


@cocotb.test(**LIMIT)
async def every_wait(dut):
    """A channel waits until its own condition is true, whatever the state of others and its other
    conditions; its condition wakes it at once, unless it is halted."""
    tb = await ParkingTestbench(dut).start()
    for wait, channel in product(ENDS, range(CHANNELS)):
        tb.zero = {*range(COUNTERS)}
        tb.states = [{*AFTER} for _ in range(CHANNELS)]
        tb.states[channel] = states = {*AFTER} ^ {*ENDS[wait]}
        await tb.park(channel, wait, watch=0)
        assert channel not in (await tb.after(3)).ready
        for state in ENDS[wait]:
            states ^= {state}
            assert channel in (await tb.step()).ready
            states ^= {"alive"}
            assert channel not in (await tb.step()).ready
            states ^= {"alive", state}
            assert channel not in (await tb.step()).ready


@cocotb.test(**LIMIT)
async def turns(dut):
    """A channel that waits for its next turn can proceed at once, unless it is halted."""
    tb = await ParkingTestbench(dut).start()
    for channel in range(CHANNELS):
        await tb.park(channel, Wait.TURN)
        assert channel in (await tb.step()).ready
        tb.states[channel] ^= {"alive"}
        assert channel not in (await tb.after(2)).ready
        tb.states[channel] ^= {"alive"}


@cocotb.test(**LIMIT)
async def waits_go_on(dut):
    """With `lasts`, a service of one cycle keeps the channel's wait, or sets the new one if it had
    none; without `lasts`, the new wait replaces any other."""
    tb = await ParkingTestbench(dut).start()
    for wait, channel in product(Wait, SOME):
        for lasts in (False, True):
            await tb.park(channel, wait)
            await tb.serve(channel, wait=Wait.TURN, lasts=lasts)
            goes_on = lasts and wait != Wait.NONE
            assert (await tb.step()).waits[channel] == (wait if goes_on else Wait.TURN)


@cocotb.test(**LIMIT)
async def updates(dut):
    """COPY-10: an update of the watched semaphore two cycles after `watch` or later wakes the
    channel, whether it is served or parked, and is not lost while it waits for something else.
    Earlier updates, and updates of other semaphores, do not wake it."""
    tb = await ParkingTestbench(dut).start()
    for channel, index, other in product(SOME, (0, INDICES - 1, 1), (False, True)):
        for delay in range(7):
            await tb.serve(channel)
            for cycle in range(6):
                await tb.step(
                    watch=index if cycle == 0 else None,
                    update=index ^ other if cycle == delay else None,
                    wait=Wait.ONCHIP if cycle == 3 else Wait.NONE,
                )
            shown = await tb.step(update=index ^ other if delay == 6 else None)
            wakes_up = delay >= 2 and not other
            assert (channel in shown.ready) == wakes_up, (index, other, delay)
            await tb.park(channel, Wait.FENCE)
            assert channel not in (await tb.step()).ready
            await tb.park(channel, Wait.ONCHIP)
            assert (channel in (await tb.step()).ready) == wakes_up


@cocotb.test(**LIMIT)
async def watches_change(dut):
    """A new watch replaces the old one and all its updates; an update in its first cycle counts for
    neither."""
    tb = await ParkingTestbench(dut).start()
    for old, new in product((1, 2), (1, 2)):
        for delay in range(4):
            await tb.park(0, Wait.ONCHIP, watch=old)
            assert 0 in (await tb.step(update=old)).ready
            await tb.serve(0, watch=new)
            updates = {1: old, delay: new}
            for cycle in range(1, 4):
                await tb.step(update=updates.get(cycle))
            await tb.step(wait=Wait.ONCHIP)
            assert (0 in (await tb.step()).ready) == (delay >= 2)


@cocotb.test(**LIMIT)
async def groups(dut):
    """COPY-13: `held` covers exactly the group of the served channel, without delay; a semaphore
    joins it in the next cycle, and leaves it a cycle later than that."""
    tb = await ParkingTestbench(dut).start()
    for channel, counter in product(SOME, range(COUNTERS)):
        tb.zero = {*range(COUNTERS)} - {counter}
        await tb.serve(channel)
        assert (await tb.step(joins=counter)).held
        assert not (await tb.step(leaves=counter)).held
        assert not (await tb.step()).held
        assert (await tb.step(joins=counter, leaves=counter)).held
        assert not (await tb.step()).held
        assert (await tb.step(joins=counter)).held
        assert not (await tb.step(leaves=ALL)).held
        # It joins as the others leave.
        assert not (await tb.step(joins=counter)).held
        assert not (await tb.step(leaves=(counter + 1) % INDICES)).held
        tb.zero |= {counter}
        assert (await tb.step()).held
        tb.zero -= {counter}
        assert not (await tb.step(leaves=ALL, wait=Wait.TURN)).held
        # A group that ends with the service has ended when the next one begins.
        await tb.serve(channel)
        assert (await tb.step()).held


@cocotb.test(**LIMIT)
async def starts(dut):
    """A start ends the group of its channel, and no other group, in any cycle around a service."""
    tb = await ParkingTestbench(dut).start()
    for channel, counter, delay in product(SOME, {0, COUNTERS - 1}, range(6)):
        for cleared in {channel, (channel + 1) % CHANNELS}:
            await tb.serve(channel)
            await tb.step(joins=counter)
            await tb.step(wait=Wait.TURN)
            for cycle in range(6):
                tb.served = channel if cycle >= 2 else None
                await tb.step(clear=cleared if cycle == delay else None)
            shown = await tb.after(2)
            assert shown.held == (channel in shown.holding) == (cleared == channel)
            await tb.step(leaves=ALL, wait=Wait.TURN)


@cocotb.test(**LIMIT)
async def groups_wake(dut):
    """Rule 7: a channel that waits for its group and an engine wakes a cycle after its group begins
    to hold; a channel that waits for an engine while its group holds wakes a cycle after the group
    ceases to hold. Neither is decided in the cycle after a semaphore joined."""
    tb = await ParkingTestbench(dut).start()
    for channel, counter, wait in product(
        SOME, {0, COUNTERS - 1}, (Wait.ENGINE, Wait.ENGINE_TIMED)
    ):
        timed = wait == Wait.ENGINE_TIMED
        for zero in (False, True):
            tb.states[channel] = {"alive"} if timed else {"alive", "engine"}
            tb.zero = {counter} if zero else set()
            await tb.serve(channel)
            await tb.step(joins=counter, wait=wait)
            shown = await tb.step()
            assert channel not in shown.ready and (channel in shown.wanting) == timed
            shown = await tb.step()
            assert (channel in shown.ready) == (zero != timed)
            assert (channel in shown.wanting) == (timed or zero)
            tb.zero ^= {counter}
            assert (channel in (await tb.step()).ready) == (zero != timed)
            assert (channel in (await tb.step()).ready) == (zero == timed)
            await tb.serve(channel)
            await tb.step(leaves=ALL)
            await tb.step(wait=Wait.TURN)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random services, states and events behave like the model in every cycle, until each situation
    was met many times."""
    tb = await ParkingTestbench(dut).start()
    met = tb.model.met
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 20 for one in SITUATIONS), met):
        await some_time(tb)
    cocotb.log.info("met: %s", dict(met))


async def some_time(tb: ParkingTestbench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers = tb.random
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    counters = numbers.sample(range(COUNTERS), min(COUNTERS, numbers.choice((1, 3, COUNTERS))))
    indices = [*counters, *numbers.sample(range(INDICES), numbers.choice((1, 2, 5)))]
    changes, acts = numbers.choice((0.01, 0.1, 0.5)), numbers.choice((0.05, 0.3, 0.8))
    ends, starts = numbers.choice((0.1, 0.3)), numbers.choice((0.0, 0.02, 0.2))
    for _ in range(400):
        change(tb, changes)
        if tb.served is None and tb.begins and numbers.random() < 0.7:
            tb.served = numbers.choice(channels)
        events = {
            "update": maybe(tb, acts, indices),
            "clear": maybe(tb, starts, [*channels, *here(tb) * 3]),
        }
        lets_go = False
        if tb.served is not None:
            events |= acted(tb, acts, counters, indices)
            lets_go = numbers.random() < ends
            if lets_go:
                events["wait"] = numbers.choice(waits(tb, events))
                # The pipeline resumes a channel without executing a method.
                events["lasts"] = events["watch"] is None and numbers.random() < 0.3
        await tb.step(**events)
        if lets_go:
            tb.served = None


def change(tb: ParkingTestbench, changes: float) -> None:
    """Change each state with this probability. Most channels are alive."""
    numbers = tb.random
    for states, state in product(tb.states, STATES):
        if numbers.random() < changes:
            often = state == "alive" and numbers.random() < 0.6
            states ^= {state} - (states if often else set())
    tb.zero ^= {counter for counter in range(COUNTERS) if numbers.random() < changes}


def maybe(tb: ParkingTestbench, chance: float, values: list[int]) -> int | None:
    return tb.random.choice(values) if tb.random.random() < chance else None


def here(tb: ParkingTestbench) -> list[int]:
    """The served channel, if any."""
    return [] if tb.served is None else [tb.served]


def acted(
    tb: ParkingTestbench, acts: float, counters: list[int], indices: list[int]
) -> dict[str, Any]:
    """Events of the served channel. In its first cycle it may only request an acquire."""
    watch = maybe(tb, acts / 2, indices)
    if tb.begins:
        return {"watch": watch}
    joins = maybe(tb, acts, counters)
    leaving = [ALL, *indices, *([] if joins is None else [joins] * len(indices))]
    return {"watch": watch, "joins": joins, "leaves": maybe(tb, acts / 2, leaving)}


def waits(tb: ParkingTestbench, events: dict[str, Any]) -> list[Wait]:
    """Waits with which the served channel may be parked. It waits for an update only after the
    response to its acquire, at least a cycle after `watch`."""
    watches = events["watch"] is None and tb.served in tb.model.watching
    return [wait for wait in Wait if watches or wait != Wait.ONCHIP]
