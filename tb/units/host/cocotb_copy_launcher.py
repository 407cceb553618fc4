"""Copies from launch to completion (COPY-1, COPY-11 … COPY-13): every cycle against its model;
choice, reservations, limits and failures individually."""

import os
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS, VA_BITS
from signalbox.hw.errors import Cause
from signalbox.hw.records.channel import channel_event
from signalbox.hw.records.copy import copy_command, copy_done
from signalbox.tb.models.copy_launcher import (
    CAUSES,
    MOST_COPIES,
    Done,
    Ended,
    Failed,
    Inputs,
    Launch,
    LauncherModel,
    Outputs,
)
from signalbox.tb.testbench.fields import replaced
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, ENGINES = CONFIG.channels, CONFIG.copy_engines

COMMAND: Any = copy_command(CONFIG)

DONE: Any = copy_done(CONFIG)

EVENTS: dict[str, Any] = {
    "launch": channel_event(CONFIG, behind=1, interrupt=1, command=COMMAND),
    "reserve": channel_event(CONFIG),
    "release": channel_event(CONFIG),
}
"""Input events."""

ENDED: Any = channel_event(CONFIG, interrupt=1, failed=1)

FAILED: Any = channel_event(CONFIG, cause=Cause, va=VA_BITS, data=32, subchannel=3)

STATES = ("enabled", "working")

OUTPUTS = ("able", "keeping", "queue", "copying", "counts", "all_idle", "ended", "failed")

PORTS = {
    name: name for name in (*EVENTS, *STATES, *OUTPUTS, "failed_taken", "started", "finished")
} | {
    "launch": "requests__launch",
    "reserve": "requests__reserve",
    "able": "status__able",
    "keeping": "status__keeping",
    "queue": "status__queue",
    "copying": "status__copying",
}
"""Name of each port of the design; those of engines begin with `ENGINE`."""

ENGINE = "engine__{}__"

SEVERAL = {**LIMIT, "skip": CHANNELS < 2}

NO_ERROR, ERRORS = 0, range(1, len(CAUSES))


@dataclass
class Engine:
    """Model of a copy engine: outstanding copies in order, by their commands.

    Members
    -------
    accepts : it accepts a command; effective from the next `step`.
    error : of its next completion, or None while it copies; likewise.
    va : of the failure.
    """

    copies: list[int]
    accepts: bool = True
    error: int | None = None
    va: int = 0

    def done(self) -> Done | None:
        """The completion that it offers."""
        if self.error is None or not self.copies:
            return None
        command = self.copies[0]
        channel, subchannel, data = (
            command >> COMMAND[name].offset & ((1 << COMMAND[name].width) - 1)
            for name in ("channel", "subchannel", "data")
        )
        return Done(channel, self.error, self.va, data, subchannel)


class Bench:
    """Testbench that launches copies as the host does, models the engines, and compares every cycle
    with the model.

    Members
    -------
    engines : models of the engines.
    enabled, working : sets of channels, effective from the next `step`.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.model = LauncherModel(CHANNELS, ENGINES)
        self.engines = [Engine([]) for _ in range(ENGINES)]
        self.enabled = {*range(CHANNELS)}
        self.working = {*range(CHANNELS)}

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut)
        bench._drive(bench._inputs())
        await reset(dut)
        return bench

    def _inputs(self, **events: Any) -> Inputs:
        return Inputs(
            frozenset(self.enabled),
            frozenset(self.working),
            frozenset(e for e, engine in enumerate(self.engines) if engine.accepts),
            tuple(engine.done() for engine in self.engines),
            **events,
        )

    def _set(self, name: str, value: int) -> None:
        getattr(self.dut, PORTS.get(name, name)).value = value

    def _get(self, name: str) -> int:
        return int(getattr(self.dut, PORTS.get(name, name)).value)

    def _event(self, name: str, **fields: int) -> None:
        """Drive an event that happens if `fields` are given; otherwise they are random."""
        layout = EVENTS[name]
        bits = self.numbers.getrandbits(layout.size)
        self._set(name, replaced(layout, bits, valid=bool(fields), **fields))

    def _drive(self, now: Inputs) -> None:
        launch = now.launch
        self._event("launch", **({} if launch is None else vars(launch)))
        self._event("reserve", **({} if now.reserve is None else {"channel": now.reserve}))
        self._event("release", **({} if now.release is None else {"channel": now.release}))
        for name in STATES:
            self._set(name, sum(1 << channel for channel in getattr(now, name)))
        self._set("failed_taken", now.taken)
        for number, engine in enumerate(self.engines):
            port, done = ENGINE.format(number), now.done[number]
            bits = self.numbers.getrandbits(DONE.size)
            self._set(f"{port}command__ready", number in now.ready)
            self._set(f"{port}done__valid", done is not None)
            self._set(f"{port}done__payload", replaced(DONE, bits, **(vars(done) if done else {})))
            self._set(f"{port}idle", not engine.copies)

    def _shown(self, expected: Outputs) -> Outputs:
        """Outputs; None where the model expects no meaning, or nothing is valid."""

        def bits(name: str) -> list[bool]:
            word = self._get(name)
            return [bool(word >> i & 1) for i in range(max(CHANNELS, ENGINES))]

        def members(name: str) -> frozenset[int]:
            return frozenset(i for i, bit in enumerate(bits(name)) if bit)

        def meant(shown: list[bool], wanted: tuple[bool | None, ...]) -> tuple[bool | None, ...]:
            return tuple(
                None if want is None else bit for bit, want in zip(shown, wanted, strict=False)
            )

        ended, failed = ENDED.from_bits(self._get("ended")), FAILED.from_bits(self._get("failed"))
        ports = [ENGINE.format(number) for number in range(ENGINES)]
        accepted = {
            number
            for number, port in enumerate(ports)
            if self._get(f"{port}done__valid") and self._get(f"{port}done__ready")
        }
        finished = members("finished")
        assert accepted == finished
        return Outputs(
            members("able"),
            members("keeping"),
            meant(bits("queue"), expected.queue),
            members("copying"),
            tuple(self._get("counts") >> 4 * channel & 15 for channel in range(CHANNELS)),
            bool(self._get("all_idle")),
            Ended(ended.channel, bool(ended.interrupt), bool(ended.failed))
            if ended.valid
            else None,
            Failed(failed.channel, Cause(failed.cause), failed.va, failed.data, failed.subchannel)
            if failed.valid
            else None,
            members("started"),
            finished,
            tuple(
                self._get(f"{port}command__payload") if self._get(f"{port}command__valid") else None
                for port in ports
            ),
            meant([bool(self._get(f"{port}stop")) for port in ports], expected.stops),
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`."""
        now = self._inputs(**events)
        self._drive(now)
        expected = self.model.show(now)
        await ReadOnly()
        shown = self._shown(expected)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        await RisingEdge(self.dut.clk)
        self.model.step(now)
        for number, engine in enumerate(self.engines):
            if number in shown.finished:
                del engine.copies[0]
                engine.error = None
            command = shown.commands[number]
            if command is not None and number in now.ready:
                engine.copies.append(command)
        return shown

    def copy(self, channel: int, *, behind: bool = False, interrupt: bool = False) -> Launch:
        """A copy with random parameters."""
        command = replaced(COMMAND, self.numbers.getrandbits(COMMAND.size), channel=channel)
        return Launch(channel, behind, interrupt, command)

    async def launch(self, channel: int, **options: bool) -> Outputs:
        """Start a copy; the engine accepts it in the next cycle, if it does."""
        shown = await self.step(launch=self.copy(channel, **options))
        await self.step()
        return shown

    async def end(self, engine: int, error: int = NO_ERROR) -> Outputs:
        """End the engine's oldest copy."""
        self.engines[engine].error = error
        self.engines[engine].va = self.numbers.getrandbits(VA_BITS)
        return await self.step()


@cocotb.test(**LIMIT)
async def copies_end_in_order(dut):
    """Copies behind a running one go to its engine, as many as allowed, as soon as it has accepted
    the previous one; each ends by itself. None follows a copy with an interrupt, which is reported
    with its own end."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        await bench.launch(channel)
        for count in range(2, MOST_COPIES + 1):
            bench.engines[0].accepts = False
            assert (await bench.launch(channel, behind=True)).started == {0}
            assert (await bench.step()).queue[channel] is False
            bench.engines[0].accepts = True
            await bench.step()
            shown = await bench.step()
            assert shown.queue[channel] == (count < MOST_COPIES) and shown.counts[channel] == count
        for count in range(MOST_COPIES, 0, -1):
            shown = await bench.end(0)
            assert shown.ended == Ended(channel, False, False) and not shown.all_idle
            shown = await bench.step()
            assert shown.counts[channel] == count - 1
            assert shown.all_idle == (count == 1) == (channel not in shown.copying)
        await bench.launch(channel, interrupt=True)
        assert (await bench.step()).queue[channel] is False
        assert (await bench.end(0)).ended == Ended(channel, True, False)
        await bench.launch(channel)
        assert (await bench.step()).queue[channel] is True
        assert (await bench.end(0)).ended == Ended(channel, False, False)


@cocotb.test(**SEVERAL)
async def reservations(dut):
    """COPY-13: no other channel's copy starts on a reserved engine, until the reservation is
    released, its channel does not work, or its copy has started; `reserve` in that cycle keeps
    it."""
    bench = await Bench.start(dut)
    everyone = frozenset(range(CHANNELS))
    for channel, ends in product(range(CHANNELS), ("release", "idle", "launch", "renewed")):
        other = (channel + 1) % CHANNELS
        # All engines but the last are busy, so only that one can be reserved.
        busy = [one for one in range(CHANNELS) if one not in {channel, other}][: ENGINES - 1]
        for one in busy:
            await bench.launch(one)
        last = len(busy)
        await bench.step(reserve=channel)
        for _ in range(3):
            shown = await bench.step(reserve=channel)
            assert shown.able == shown.keeping == {channel} or last < ENGINES - 1
        if ends == "release":
            await bench.step(release=channel)
        elif ends == "launch":
            assert (await bench.step(launch=bench.copy(channel))).started == {last}
            await bench.step()
            await bench.end(last)
        else:
            bench.working = {*everyone} - {channel}
            shown = await bench.step(reserve=channel if ends == "renewed" else None)
            assert shown.keeping == {channel}
            bench.working = {*everyone}
            assert (await bench.step()).keeping == ({channel} if ends == "renewed" else set())
            if ends == "renewed":
                await bench.step(release=channel)
        shown = await bench.step()
        assert shown.able == everyone and not shown.keeping
        assert (await bench.launch(other)).started == {last}
        for engine in range(last + 1):
            await bench.end(engine)


@cocotb.test(**{**LIMIT, "skip": ENGINES < 2 or CHANNELS < 3})
async def lowest_engine(dut):
    """COPY-11: the idle engine with the lowest number gets a copy, or is reserved, unless it is
    reserved for another channel; a channel with a reservation uses that engine."""
    bench = await Bench.start(dut)
    await bench.step(reserve=0)
    assert (await bench.launch(1)).started == {1}
    await bench.end(1)
    await bench.step(reserve=1)
    await bench.step(release=0)
    assert (await bench.step()).keeping == {1}
    assert (await bench.launch(1)).started == {1}
    assert (await bench.launch(0)).started == {0}
    await bench.end(1)
    assert (await bench.launch(2)).started == {1}


@cocotb.test(**LIMIT)
async def failures(dut):
    """Each error of a copy has its cause, recorded with the copy's data until it is taken;
    meanwhile no other completion is accepted."""
    bench = await Bench.start(dut)
    for channel, error in product(range(CHANNELS), ERRORS):
        await bench.launch(channel)
        await bench.launch(channel, behind=True)
        done = replace(Done(channel, 0, 0, 0, 0), error=error)
        shown = await bench.end(0, error)
        assert shown.ended == Ended(channel, False, True) and shown.failed is None
        for _ in range(3):
            shown = await bench.end(0)
            assert shown.failed is not None and shown.failed.cause == CAUSES[done.error]
            assert shown.ended is None
        assert (await bench.step(taken=True)).ended is None
        shown = await bench.step()
        assert shown.failed is None and shown.ended == Ended(channel, False, False)


@cocotb.test(**LIMIT)
async def stops(dut):
    """The engine of a channel's copies is stopped exactly while the channel is disabled."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        await bench.launch(channel)
        for enabled in range(CHANNELS):
            bench.enabled = {*range(CHANNELS)} - {enabled}
            assert (await bench.step()).stops[0] == (enabled == channel)
        await bench.end(0)


SITUATIONS = [
    "reserved",
    "completion waits for a record",
    "stopped",
    *(f"error {error}" for error in range(len(CAUSES))),
    "interrupt",
    "launched as one ends",
    "launched as the last ends",
    "behind",
    "as many as allowed",
    "reserved engine used",
    "released",
    "reserved again",
    "renewed without work",
    "lost without work",
    "launched without work",
    *["none to reserve"] * (CHANNELS > 1),
    *["several completions"] * (ENGINES > 1),
    *["with another reserved"] * (ENGINES > 1),
]
"""Situations of the model that this size allows."""


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random launches, reservations, completions and failures behave as the model in every cycle,
    until each situation was met many times."""
    bench = await Bench.start(dut)
    met = bench.model.met
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 10 for one in SITUATIONS), met):
        await some_time(bench)
    cocotb.log.info("met: %s", dict(met))


async def some_time(bench: Bench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers = bench.numbers
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, 3, CHANNELS))))
    changes, acts = numbers.choice((0.0, 0.02, 0.3)), numbers.choice((0.05, 0.3, 0.8))
    accepts, ends = numbers.choice((0.2, 1.0)), numbers.choice((0.02, 0.1, 0.5))
    fails, takes = numbers.choice((0.0, 0.2)), numbers.choice((0.1, 0.7))
    for _ in range(400):
        for states in (bench.enabled, bench.working):
            states ^= {channel for channel in range(CHANNELS) if numbers.random() < changes}
        for engine in bench.engines:
            engine.accepts = numbers.random() < accepts
            if engine.error is None and engine.copies and numbers.random() < ends:
                engine.error = numbers.choice(ERRORS) if numbers.random() < fails else NO_ERROR
                engine.va = numbers.getrandbits(VA_BITS)
        event = some_event(bench, numbers.choice(channels)) if numbers.random() < acts else {}
        await bench.step(taken=numbers.random() < takes, **event)


def some_event(bench: Bench, served: int) -> dict[str, Any]:
    """An event that the served channel may cause now."""
    numbers, model = bench.numbers, bench.model
    state = model.show(bench._inputs())
    act = numbers.choice(("launch", "launch", "reserve", "reserve", "release"))
    if act == "launch" and served in state.copying:
        room = state.queue[served]
        return {"launch": bench.copy(served, behind=True)} if room else {}
    if act == "launch":
        interrupt = numbers.random() < 0.2
        copy = bench.copy(served, interrupt=interrupt)
        return {"launch": copy} if served in state.able else {}
    return {act: served} if act == "release" or served not in state.copying else {}
