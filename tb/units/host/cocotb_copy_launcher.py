"""Copies from launch to completion (COPY-1, COPY-11 … COPY-13): every cycle against its model;
choice, reservations, limits and failures individually."""

import os
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS, VA_BITS
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.records.copy import copy_command
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
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask, members
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS, ENGINES = CONFIG.channels, CONFIG.copy_engines

COMMAND = Record(copy_command(CONFIG))

SEVERAL = {**LIMIT, "skip": CHANNELS < 2}

NO_ERROR, ERRORS = 0, range(1, len(CAUSES))


@dataclass
class Engine:
    """Model of a copy engine: outstanding copies in order, by their commands.

    Members
    -------
    accepts : it accepts a command; effective from the next `step`.
    error : error of its next completion, or None while it copies; likewise.
    va : address of the failure.
    """

    copies: list[int]
    accepts: bool = True
    error: int | None = None
    va: int = 0

    def done(self) -> Done | None:
        """The completion that it offers."""
        if self.error is None or not self.copies:
            return None
        command = COMMAND.unpack(self.copies[0])
        return Done(command["channel"], self.error, self.va, command["data"], command["subchannel"])


class CopyLauncherTestbench(Testbench):
    """Launches copies as the host does, models the engines, and compares every cycle with the
    model.

    Members
    -------
    engines : models of the engines.
    enabled, working : sets of channels, effective from the next `step`.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(CopyLauncher, CONFIG))
        self.model = LauncherModel(CHANNELS, ENGINES)
        self.engines = [Engine([]) for _ in range(ENGINES)]
        self.enabled = {*range(CHANNELS)}
        self.working = {*range(CHANNELS)}
        self._copied = 0
        self._launch = Strobe(self, "requests__launch")
        self._reserve = Strobe(self, "requests__reserve")
        self._release = Strobe(self, "methods__released")

    def inputs(self, **events: Any) -> Inputs:
        """Inputs of the next cycle, with these members of `Inputs`."""
        return Inputs(
            frozenset(self.enabled),
            frozenset(self.working),
            frozenset(e for e, engine in enumerate(self.engines) if engine.accepts),
            tuple(engine.done() for engine in self.engines),
            **events,
        )

    def _drive(self, now: Inputs) -> None:
        if now.launch is not None:
            self._launch.send(**vars(now.launch))
        if now.reserve is not None:
            self._reserve.send(channel=now.reserve)
        if now.release is not None:
            self._release.send(channel=now.release)
        self.drive(
            control__enabled=mask(now.enabled),
            state__reserving=mask(now.working),
            reports__taken=now.taken,
        )
        for number, engine in enumerate(self.engines):
            port, done = f"engine__{number}__", now.done[number]
            inputs = {
                "command__ready": number in now.ready,
                "done__valid": done is not None,
                "idle": not engine.copies,
            }
            if done is not None:
                inputs["done__payload"] = vars(done)
            self.drive(**{port + name: value for name, value in inputs.items()})

    def _shown(self, expected: Outputs) -> Outputs:
        """Outputs; None where they have no meaning in the model, or nothing is valid."""

        def meant(shown: list[bool], wanted: tuple[bool | None, ...]) -> tuple[bool | None, ...]:
            return tuple(
                None if want is None else bit for bit, want in zip(shown, wanted, strict=True)
            )

        ended, failed = self.get("reports__ended"), self.get("reports__failed")
        ports = [f"engine__{number}__" for number in range(ENGINES)]
        finished = members(self.get("events__finished"))
        assert finished == {
            number
            for number, port in enumerate(ports)
            if self.get(f"{port}done__valid") and self.get(f"{port}done__ready")
        }
        queue = self.get("status__queue")
        return Outputs(
            members(self.get("status__able")),
            members(self.get("status__keeping")),
            meant([bool(queue >> channel & 1) for channel in range(CHANNELS)], expected.queue),
            members(self.get("status__copying")),
            tuple(self.get("outstanding__counts")),
            bool(self.get("outstanding__all_idle")),
            Ended(ended["channel"], bool(ended["interrupt"]), bool(ended["failed"]))
            if ended["valid"]
            else None,
            Failed(**{name: failed[name] for name in failed if name != "valid"})
            if failed["valid"]
            else None,
            members(self.get("events__started")),
            finished,
            tuple(
                self.ports[f"{port}command__payload"].bits()
                if self.get(f"{port}command__valid")
                else None
                for port in ports
            ),
            meant([bool(self.get(f"{port}stop")) for port in ports], expected.stops),
        )

    async def step(self, **events: Any) -> Outputs:
        """One cycle with these members of `Inputs`."""
        now = self.inputs(**events)
        self._drive(now)
        expected = self.model.show(now)
        await super().step()
        shown = self._shown(expected)
        assert shown == expected, f"cycle {self.model.now}: {now}"
        assert self.get("copied") == self._copied, f"cycle {self.model.now}: {now}"
        ended = shown.ended
        tells = ended is not None and ended.interrupt and not ended.failed
        self._copied = mask({ended.channel} & self.enabled) if ended and tells else 0
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
        command = COMMAND.replaced(self.random.getrandbits(COMMAND.width), channel=channel)
        return Launch(channel, behind, interrupt, command)

    async def launch(self, channel: int, **options: bool) -> Outputs:
        """Start a copy; the engine may accept it in the next cycle."""
        shown = await self.step(launch=self.copy(channel, **options))
        await self.step()
        return shown

    async def end(self, engine: int, error: int = NO_ERROR) -> Outputs:
        """End the engine's oldest copy."""
        self.engines[engine].error = error
        self.engines[engine].va = self.random.getrandbits(VA_BITS)
        return await self.step()


@cocotb.test(**LIMIT)
async def copies_end_in_order(dut):
    """Copies behind a running one go to its engine, up to the limit, each as soon as the engine has
    accepted the previous one; each end is reported. None follows a copy with an interrupt, which is
    reported with the copy's own end."""
    tb = await CopyLauncherTestbench(dut).start()
    for channel in range(CHANNELS):
        await tb.launch(channel)
        for count in range(2, MOST_COPIES + 1):
            tb.engines[0].accepts = False
            assert (await tb.launch(channel, behind=True)).started == {0}
            assert (await tb.step()).queue[channel] is False
            tb.engines[0].accepts = True
            await tb.step()
            shown = await tb.step()
            assert shown.queue[channel] == (count < MOST_COPIES) and shown.counts[channel] == count
        for count in range(MOST_COPIES, 0, -1):
            shown = await tb.end(0)
            assert shown.ended == Ended(channel, False, False) and not shown.all_idle
            shown = await tb.step()
            assert shown.counts[channel] == count - 1
            assert shown.all_idle == (count == 1) == (channel not in shown.copying)
        await tb.launch(channel, interrupt=True)
        assert (await tb.step()).queue[channel] is False
        assert (await tb.end(0)).ended == Ended(channel, True, False)
        await tb.launch(channel)
        assert (await tb.step()).queue[channel] is True
        assert (await tb.end(0)).ended == Ended(channel, False, False)


@cocotb.test(**SEVERAL)
async def reservations(dut):
    """COPY-13: no other channel's copy starts on a reserved engine until the reservation is
    released, its channel stops working, or its copy has started; `reserve` in the cycle in which
    the channel stops working keeps it."""
    tb = await CopyLauncherTestbench(dut).start()
    everyone = frozenset(range(CHANNELS))
    for channel, ends in product(range(CHANNELS), ("release", "idle", "launch", "renewed")):
        other = (channel + 1) % CHANNELS
        # All engines but the last are busy, so only that one can be reserved.
        busy = [one for one in range(CHANNELS) if one not in {channel, other}][: ENGINES - 1]
        for one in busy:
            await tb.launch(one)
        last = len(busy)
        await tb.step(reserve=channel)
        for _ in range(3):
            shown = await tb.step(reserve=channel)
            assert shown.able == shown.keeping == {channel} or last < ENGINES - 1
        if ends == "release":
            await tb.step(release=channel)
        elif ends == "launch":
            assert (await tb.step(launch=tb.copy(channel))).started == {last}
            await tb.step()
            await tb.end(last)
        else:
            tb.working = {*everyone} - {channel}
            shown = await tb.step(reserve=channel if ends == "renewed" else None)
            assert shown.keeping == {channel}
            tb.working = {*everyone}
            assert (await tb.step()).keeping == ({channel} if ends == "renewed" else set())
            if ends == "renewed":
                await tb.step(release=channel)
        shown = await tb.step()
        assert shown.able == everyone and not shown.keeping
        assert (await tb.launch(other)).started == {last}
        for engine in range(last + 1):
            await tb.end(engine)


@cocotb.test(**{**LIMIT, "skip": ENGINES < 2 or CHANNELS < 3})
async def lowest_engine(dut):
    """COPY-11: the idle engine with the lowest number gets a copy, or is reserved, unless it is
    reserved for another channel; a channel with a reservation uses that engine."""
    tb = await CopyLauncherTestbench(dut).start()
    await tb.step(reserve=0)
    assert (await tb.launch(1)).started == {1}
    await tb.end(1)
    await tb.step(reserve=1)
    await tb.step(release=0)
    assert (await tb.step()).keeping == {1}
    assert (await tb.launch(1)).started == {1}
    assert (await tb.launch(0)).started == {0}
    await tb.end(1)
    assert (await tb.launch(2)).started == {1}


@cocotb.test(**LIMIT)
async def failures(dut):
    """Each error of a copy has its cause, recorded with the copy's data until it is taken;
    meanwhile no other completion is accepted."""
    tb = await CopyLauncherTestbench(dut).start()
    for channel, error in product(range(CHANNELS), ERRORS):
        await tb.launch(channel)
        await tb.launch(channel, behind=True)
        done = replace(Done(channel, 0, 0, 0, 0), error=error)
        shown = await tb.end(0, error)
        assert shown.ended == Ended(channel, False, True) and shown.failed is None
        for _ in range(3):
            shown = await tb.end(0)
            assert shown.failed is not None and shown.failed.cause == CAUSES[done.error]
            assert shown.ended is None
        assert (await tb.step(taken=True)).ended is None
        shown = await tb.step()
        assert shown.failed is None and shown.ended == Ended(channel, False, False)


@cocotb.test(**LIMIT)
async def stops(dut):
    """The engine of a channel's copies is stopped exactly while the channel is disabled."""
    tb = await CopyLauncherTestbench(dut).start()
    for channel in range(CHANNELS):
        await tb.launch(channel)
        for enabled in range(CHANNELS):
            tb.enabled = {*range(CHANNELS)} - {enabled}
            assert (await tb.step()).stops[0] == (enabled == channel)
        await tb.end(0)


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
    """Random launches, reservations, completions and failures behave like the model in every cycle,
    until each situation was met many times."""
    tb = await CopyLauncherTestbench(dut).start()
    met = tb.model.met
    rounds = Rounds(40)
    while rounds.more(all(met[one] >= 10 for one in SITUATIONS), met):
        await some_time(tb)
    cocotb.log.info("met: %s", dict(met))


async def some_time(tb: CopyLauncherTestbench) -> None:
    """Some hundred cycles of random behaviour."""
    numbers = tb.random
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, 3, CHANNELS))))
    changes, acts = numbers.choice((0.0, 0.02, 0.3)), numbers.choice((0.05, 0.3, 0.8))
    accepts, ends = numbers.choice((0.2, 1.0)), numbers.choice((0.02, 0.1, 0.5))
    fails, takes = numbers.choice((0.0, 0.2)), numbers.choice((0.1, 0.7))
    for _ in range(400):
        for states in (tb.enabled, tb.working):
            states ^= {channel for channel in range(CHANNELS) if numbers.random() < changes}
        for engine in tb.engines:
            engine.accepts = numbers.random() < accepts
            if engine.error is None and engine.copies and numbers.random() < ends:
                engine.error = numbers.choice(ERRORS) if numbers.random() < fails else NO_ERROR
                engine.va = numbers.getrandbits(VA_BITS)
        event = some_event(tb, numbers.choice(channels)) if numbers.random() < acts else {}
        await tb.step(taken=numbers.random() < takes, **event)


def some_event(tb: CopyLauncherTestbench, served: int) -> dict[str, Any]:
    """An event that the served channel may cause now."""
    numbers, model = tb.random, tb.model
    state = model.show(tb.inputs())
    act = numbers.choice(("launch", "launch", "reserve", "reserve", "release"))
    if act == "launch" and served in state.copying:
        room = state.queue[served]
        return {"launch": tb.copy(served, behind=True)} if room else {}
    if act == "launch":
        interrupt = numbers.random() < 0.2
        copy = tb.copy(served, interrupt=interrupt)
        return {"launch": copy} if served in state.able else {}
    return {act: served} if act == "release" or served not in state.copying else {}
