"""Waits of parked channels alone (COPY-7, COPY-9, COPY-10, COPY-13): every cycle against its model;
each wait, updates and groups individually."""

import os
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.semaphore import semaphore_update
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
from signalbox.tb.testbench.fields import replaced
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, COUNTERS, INDICES = CONFIG.channels, CONFIG.counters, 1 << CONFIG.semaphore_bits

LAYOUTS: dict[str, Any] = {
    "park": channel_event(CONFIG, wait=Wait),
    "unpark": channel_event(CONFIG),
    "watch": channel_event(CONFIG, index=CONFIG.semaphore_bits),
    "update": semaphore_update(CONFIG),
    "guard": channel_event(CONFIG, counter=CONFIG.semaphore_bits),
    "unguard": channel_event(CONFIG, counter=CONFIG.semaphore_bits, all=1),
    "clear": channel_event(CONFIG),
}
"""Input events."""

OUTPUTS = ("ready", "wanting", "holding", "held", "waits")

PORTS = {name: name for name in (*LAYOUTS, *STATES, "zero", *OUTPUTS)} | {
    "watch": "acquires__watch",
    "guard": "acquires__guard",
    "unguard": "acquires__unguard",
    "held": "acquires__held",
    "copying": "engines__copying",
    "engine": "engines__able",
    "queue": "engines__queue",
}
"""Name of each port of the design."""

ENDS = {
    wait: [state for reason in reasons for state in STATES if state in reason.split()]
    for wait, reasons in ENDS_WITH.items()
    if wait != Wait.TURN
}
"""States that end each wait; those of `BUSY` by ending themselves."""

BUSY = frozenset({"copying", "tasks", "referring"})
"""States of operations that have not ended."""

BEFORE = frozenset({"alive", *BUSY})
"""States in which nothing that a channel may wait for has happened."""

AFTER = frozenset({*STATES} - BUSY)
"""States in which all of it has happened."""

SOME = sorted({0, CHANNELS // 2, CHANNELS - 1})
"""Some channels."""


class Bench:
    """Testbench that serves channels as the pipeline does, and compares every cycle with the model.

    Members
    -------
    states : of every channel, effective from the next `step`.
    zero : counting semaphores that are 0, likewise.
    served : the channel served in the next `step`, or None; between two services is a cycle
        without.
    begins : no channel was served in the previous cycle.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.model = ParkingModel(CHANNELS)
        self.states: list[set[str]] = [set(BEFORE) for _ in range(CHANNELS)]
        self.zero: set[int] = set()
        self.served: int | None = None
        self.begins = True

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut)
        bench._drive(Inputs(tuple(map(frozenset, bench.states)), frozenset()))
        await reset(dut)
        return bench

    def _set(self, name: str, value: int) -> None:
        getattr(self.dut, PORTS[name]).value = value

    def _get(self, name: str) -> int:
        return int(getattr(self.dut, PORTS[name]).value)

    def _event(self, name: str, valid: bool, **fields: Any) -> None:
        """Drive an event; without `valid`, fields that are not given are random."""
        layout = LAYOUTS[name]
        bits = self.numbers.getrandbits(layout.size)
        self._set(name, replaced(layout, bits, **fields, valid=valid))

    def _drive(self, now: Inputs) -> None:
        for state in STATES:
            self._set(state, sum((state in now.states[c]) << c for c in range(CHANNELS)))
        self._set("zero", sum(1 << counter for counter in now.zero))
        here = {} if now.served is None else {"channel": now.served}
        begins = now.served is not None and self.begins
        events: dict[str, dict[str, Any]] = {
            "park": {**here, "wait": now.wait.value} if here else {},
            "watch": {} if now.watch is None else {**here, "index": now.watch},
            "guard": {} if now.joins is None else {**here, "counter": now.joins},
            "update": {} if now.update is None else {"index": now.update},
            "clear": {} if now.clear is None else {"channel": now.clear},
        }
        if now.leaves == ALL:
            events["unguard"] = {**here, "all": 1}
        else:
            leaves = {**here, "all": 0, "counter": now.leaves}
            events["unguard"] = {} if now.leaves is None else leaves
        for name, fields in events.items():
            self._event(name, bool(fields), **fields)
        self._event("unpark", begins, **here)

    def _shown(self) -> Outputs:
        def channels(name: str) -> frozenset[int]:
            bits = self._get(name)
            return frozenset(channel for channel in range(CHANNELS) if bits >> channel & 1)

        waits = self._get("waits")
        return Outputs(
            channels("ready"),
            channels("wanting"),
            channels("holding"),
            bool(self._get("held")),
            tuple(Wait(waits >> 4 * channel & 15) for channel in range(CHANNELS)),
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`. A service ends with its `wait`."""
        now = Inputs(
            tuple(map(frozenset, self.states)), frozenset(self.zero), self.served, **events
        )
        self._drive(now)
        expected = self.model.show(now)
        await ReadOnly()
        shown = self._shown()
        if expected.held is None:
            shown = replace(shown, held=None)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        await RisingEdge(self.dut.clk)
        self.model.step(now)
        self.begins = self.served is None
        if now.wait != Wait.NONE:
            self.served = None
        return shown

    async def steps(self, cycles: int) -> Outputs:
        """Cycles without events. Returns the outputs of the last one."""
        for _ in range(cycles - 1):
            await self.step()
        return await self.step()

    async def serve(self, channel: int, **events: Any) -> None:
        """The first cycle of a service, after a cycle without."""
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
    """A channel waits until its own condition is true, whatever happens to others and whatever
    else it could wait for; its condition wakes it at once, unless it is halted."""
    bench = await Bench.start(dut)
    for wait, channel in product(ENDS, range(CHANNELS)):
        bench.zero = {*range(COUNTERS)}
        bench.states = [{*AFTER} for _ in range(CHANNELS)]
        bench.states[channel] = states = {*AFTER} ^ {*ENDS[wait]}
        await bench.park(channel, wait, watch=0)
        assert channel not in (await bench.steps(3)).ready
        for state in ENDS[wait]:
            states ^= {state}
            assert channel in (await bench.step()).ready
            states ^= {"alive"}
            assert channel not in (await bench.step()).ready
            states ^= {"alive", state}
            assert channel not in (await bench.step()).ready


@cocotb.test(**LIMIT)
async def turns(dut):
    """A channel that waits for its next turn can proceed at once, unless it is halted."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        await bench.park(channel, Wait.TURN)
        assert channel in (await bench.step()).ready
        bench.states[channel] ^= {"alive"}
        assert channel not in (await bench.steps(2)).ready
        bench.states[channel] ^= {"alive"}


@cocotb.test(**LIMIT)
async def updates(dut):
    """COPY-10: an update of the watched semaphore from two cycles after `watch` on wakes the
    channel, while it is served or parked, and is not lost while it waits for something else.
    Earlier ones and those of other semaphores do not."""
    bench = await Bench.start(dut)
    for channel, index, other in product(SOME, (0, INDICES - 1, 1), (False, True)):
        for delay in range(7):
            await bench.serve(channel)
            for cycle in range(6):
                await bench.step(
                    watch=index if cycle == 0 else None,
                    update=index ^ other if cycle == delay else None,
                    wait=Wait.ONCHIP if cycle == 3 else Wait.NONE,
                )
            shown = await bench.step(update=index ^ other if delay == 6 else None)
            wakes_up = delay >= 2 and not other
            assert (channel in shown.ready) == wakes_up, (index, other, delay)
            await bench.park(channel, Wait.FENCE)
            assert channel not in (await bench.step()).ready
            await bench.park(channel, Wait.ONCHIP)
            assert (channel in (await bench.step()).ready) == wakes_up


@cocotb.test(**LIMIT)
async def watches_change(dut):
    """A new watch replaces the old one with all its updates; its first cycle belongs to neither."""
    bench = await Bench.start(dut)
    for old, new in product((1, 2), (1, 2)):
        for delay in range(4):
            await bench.park(0, Wait.ONCHIP, watch=old)
            assert 0 in (await bench.step(update=old)).ready
            await bench.serve(0, watch=new)
            updates = {1: old, delay: new}
            for cycle in range(1, 4):
                await bench.step(update=updates.get(cycle))
            await bench.step(wait=Wait.ONCHIP)
            assert (0 in (await bench.step()).ready) == (delay >= 2)


@cocotb.test(**LIMIT)
async def groups(dut):
    """COPY-13: `held` covers exactly the group of the served channel, in the cycle itself; a
    semaphore joins in the next cycle and leaves in the one after."""
    bench = await Bench.start(dut)
    for channel, counter in product(SOME, range(COUNTERS)):
        bench.zero = {*range(COUNTERS)} - {counter}
        await bench.serve(channel)
        assert (await bench.step(joins=counter)).held
        assert not (await bench.step(leaves=counter)).held
        assert not (await bench.step()).held
        assert (await bench.step(joins=counter, leaves=counter)).held
        assert not (await bench.step()).held
        assert (await bench.step(joins=counter)).held
        assert not (await bench.step(leaves=ALL)).held
        # It joins as the others leave.
        assert not (await bench.step(joins=counter)).held
        assert not (await bench.step(leaves=(counter + 1) % INDICES)).held
        bench.zero |= {counter}
        assert (await bench.step()).held
        bench.zero -= {counter}
        assert not (await bench.step(leaves=ALL, wait=Wait.TURN)).held
        # A group that ends with the service has ended when the next one begins.
        await bench.serve(channel)
        assert (await bench.step()).held


@cocotb.test(**LIMIT)
async def starts(dut):
    """The group of a channel that starts ends in any cycle around a service, and no other's."""
    bench = await Bench.start(dut)
    for channel, counter, delay in product(SOME, {0, COUNTERS - 1}, range(6)):
        for cleared in {channel, (channel + 1) % CHANNELS}:
            await bench.serve(channel)
            await bench.step(joins=counter)
            await bench.step(wait=Wait.TURN)
            for cycle in range(6):
                bench.served = channel if cycle >= 2 else None
                await bench.step(clear=cleared if cycle == delay else None)
            shown = await bench.steps(2)
            assert shown.held == (channel in shown.holding) == (cleared == channel)
            await bench.step(leaves=ALL, wait=Wait.TURN)


@cocotb.test(**LIMIT)
async def groups_wake(dut):
    """Rule 7: a channel that waits for its group and an engine wakes a cycle after its group holds;
    one that waits for an engine with a group that holds wakes a cycle after it ceases to hold.
    Neither is decided in the cycle after a semaphore joined."""
    bench = await Bench.start(dut)
    for channel, counter, wait in product(
        SOME, {0, COUNTERS - 1}, (Wait.ENGINE, Wait.ENGINE_TIMED)
    ):
        timed = wait == Wait.ENGINE_TIMED
        for zero in (False, True):
            bench.states[channel] = {"alive"} if timed else {"alive", "engine"}
            bench.zero = {counter} if zero else set()
            await bench.serve(channel)
            await bench.step(joins=counter, wait=wait)
            shown = await bench.step()
            assert channel not in shown.ready and (channel in shown.wanting) == timed
            shown = await bench.step()
            assert (channel in shown.ready) == (zero != timed)
            assert (channel in shown.wanting) == (timed or zero)
            bench.zero ^= {counter}
            assert (channel in (await bench.step()).ready) == (zero != timed)
            assert (channel in (await bench.step()).ready) == (zero == timed)
            await bench.serve(channel)
            await bench.step(leaves=ALL)
            await bench.step(wait=Wait.TURN)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random services, states and events behave as the model in every cycle, until each situation
    was met many times."""
    bench = await Bench.start(dut)
    met = bench.model.met
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 20 for one in SITUATIONS), met):
        await some_time(bench)
    cocotb.log.info("met: %s", dict(met))


async def some_time(bench: Bench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers = bench.numbers
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    counters = numbers.sample(range(COUNTERS), min(COUNTERS, numbers.choice((1, 3, COUNTERS))))
    indices = [*counters, *numbers.sample(range(INDICES), numbers.choice((1, 2, 5)))]
    changes, acts = numbers.choice((0.01, 0.1, 0.5)), numbers.choice((0.05, 0.3, 0.8))
    ends, starts = numbers.choice((0.1, 0.3)), numbers.choice((0.0, 0.02, 0.2))
    for _ in range(400):
        change(bench, changes)
        if bench.served is None and bench.begins and numbers.random() < 0.7:
            bench.served = numbers.choice(channels)
        events = {
            "update": maybe(bench, acts, indices),
            "clear": maybe(bench, starts, [*channels, *here(bench) * 3]),
        }
        lets_go = False
        if bench.served is not None:
            events |= acted(bench, acts, counters, indices)
            lets_go = numbers.random() < ends
            if lets_go:
                events["wait"] = numbers.choice(waits(bench, events))
        await bench.step(**events)
        if lets_go:
            bench.served = None


def change(bench: Bench, changes: float) -> None:
    """Change each state with this probability. Most channels are alive."""
    numbers = bench.numbers
    for states, state in product(bench.states, STATES):
        if numbers.random() < changes:
            often = state == "alive" and numbers.random() < 0.6
            states ^= {state} - (states if often else set())
    bench.zero ^= {counter for counter in range(COUNTERS) if numbers.random() < changes}


def maybe(bench: Bench, chance: float, values: list[int]) -> int | None:
    return bench.numbers.choice(values) if bench.numbers.random() < chance else None


def here(bench: Bench) -> list[int]:
    """The served channel, if any."""
    return [] if bench.served is None else [bench.served]


def acted(bench: Bench, acts: float, counters: list[int], indices: list[int]) -> dict[str, Any]:
    """Events of the served channel. In its first cycle it may only request an acquire."""
    watch = maybe(bench, acts / 2, indices)
    if bench.begins:
        return {"watch": watch}
    joins = maybe(bench, acts, counters)
    leaving = [ALL, *indices, *([] if joins is None else [joins] * len(indices))]
    return {"watch": watch, "joins": joins, "leaves": maybe(bench, acts / 2, leaving)}


def waits(bench: Bench, events: dict[str, Any]) -> list[Wait]:
    """Waits with which the served channel may be let go. It waits for an update only after the
    response to its acquire, at least a cycle after `watch`."""
    watches = events["watch"] is None and bench.served in bench.model.watching
    return [wait for wait in Wait if watches or wait != Wait.ONCHIP]
