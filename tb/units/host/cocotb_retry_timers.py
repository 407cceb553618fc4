"""Timers of parked channels alone (HOST-5): every cycle against their model; no timer expires
early, late or twice."""

import os
from collections import Counter
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import CONFIGS
from signalbox.hw.records.channel import channel_event, present_time
from signalbox.tb.models.retry_timers import CYCLE_BITS, UNIT_BITS, Arm, TimersModel
from signalbox.tb.testbench.fields import replaced
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

LAYOUTS: dict[str, Any] = {
    "arm": channel_event(CONFIG, units=1, due=32),
    "disarm": channel_event(CONFIG),
}
"""Input events."""

PORTS = {"arm": "client__arm", "disarm": "client__disarm", "time": "time", "expired": "expired"}
"""Name of each port of the design."""

LATE = CHANNELS + 3
"""Cycles by which a timer may be late."""

WORD = 1 << 32


class Bench:
    """Testbench that arms and disarms timers, and compares every cycle with the model.

    Members
    -------
    cycles, units : the present times. `cycles` advances with every `step`.
    expired : channels whose timer had expired in the last `step`.
    """

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
        self.model = TimersModel(CHANNELS)
        self.cycles, self.units = self.numbers.randrange(WORD), self.numbers.randrange(WORD)
        self.expired: frozenset[int] = frozenset()

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut)
        bench._drive(None, None)
        await reset(dut)
        return bench

    def _event(self, name: str, **fields: int) -> None:
        """Drive an event that happens if `fields` are given; otherwise they are random."""
        layout = LAYOUTS[name]
        bits = self.numbers.getrandbits(layout.size)
        getattr(self.dut, PORTS[name]).value = replaced(layout, bits, **fields, valid=bool(fields))

    def _drive(self, arm: Arm | None, disarm: int | None) -> None:
        self._event("arm", **({} if arm is None else vars(arm)))
        self._event("disarm", **({} if disarm is None else {"channel": disarm}))
        time: Any = present_time.const({"cycles": self.cycles, "units": self.units})
        getattr(self.dut, PORTS["time"]).value = time.as_bits()

    async def step(self, arm: Arm | None = None, disarm: int | None = None) -> frozenset[int]:
        """One cycle. Returns the channels whose timer has expired."""
        self._drive(arm, disarm)
        expected = self.model.show(self.cycles, self.units)
        await ReadOnly()
        bits = int(getattr(self.dut, PORTS["expired"]).value)
        for channel, state in enumerate(expected):
            found = f"channel {channel}, cycle {self.model.now}, {self.model.timers.get(channel)}"
            assert state in {None, bool(bits >> channel & 1)}, found
        await RisingEdge(self.dut.clk)
        self.expired = frozenset(channel for channel in range(CHANNELS) if bits >> channel & 1)
        self.model.step(self.expired, arm, disarm)
        self.cycles = (self.cycles + 1) % WORD
        return self.expired

    async def steps(self, cycles: int) -> frozenset[int]:
        """Cycles without events."""
        for _ in range(cycles):
            await self.step()
        return self.expired

    def arm(self, channel: int, ahead: int, *, units: bool = False) -> Arm:
        """A timer `ahead` of the present time. In cycles, higher bits are random, as they do not
        count."""
        if units:
            return Arm(channel, True, (self.units + ahead) % WORD)
        high = self.numbers.getrandbits(32) >> CYCLE_BITS << CYCLE_BITS
        return Arm(channel, False, high | (self.cycles + ahead) % (1 << CYCLE_BITS))


@cocotb.test(**LIMIT)
async def in_cycles(dut):
    """A timer in cycles expires at its time and at most `channels` + 3 cycles later, also when the
    counter of cycles wraps, and stays expired until it is armed or disarmed. One whose time has
    long passed expires soon."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        for start in (0, -LATE - 10, (1 << CYCLE_BITS) - LATE - 10):
            bench.cycles = start % WORD
            ahead = LATE + bench.numbers.randrange(1, 20)
            await bench.step(bench.arm(channel, ahead))
            assert not await bench.steps(ahead - 1)
            assert await bench.steps(LATE + 1) == {channel}
            assert await bench.steps(20) == {channel}
            await bench.step(bench.arm(channel, LATE))
            assert not await bench.steps(LATE - 1)
            assert await bench.steps(LATE + 1) == {channel}
            await bench.step(disarm=channel)
            assert not await bench.steps(3 * LATE)
            await bench.step(bench.arm(channel, 4 * LATE - (1 << CYCLE_BITS - 1)))
            assert await bench.steps(2 * LATE + 1) == {channel}
            await bench.step(disarm=channel)


@cocotb.test(**LIMIT)
async def in_units(dut):
    """A timer in units expires only when their time has come, also when it wraps, whatever the
    cycles are, or soon if it has long passed."""
    bench = await Bench.start(dut)
    for channel in range(CHANNELS):
        for start, ahead in ((0, 1), (WORD - 1, 1), (WORD - 2, 3), (5, (1 << UNIT_BITS - 1) - 1)):
            bench.units = start
            await bench.step(bench.arm(channel, ahead, units=True))
            assert not await bench.steps(3 * LATE)
            bench.units = (start + ahead - 1) % WORD
            assert not await bench.steps(3 * LATE)
            bench.units = (start + ahead) % WORD
            assert await bench.steps(LATE + 1) == {channel}
            await bench.step(bench.arm(channel, 1 - (1 << UNIT_BITS - 1), units=True))
            assert await bench.steps(2 * LATE + 1) == {channel}
            await bench.step(disarm=channel)
            assert not await bench.steps(3)


@cocotb.test(**LIMIT)
async def stopped_in_time(dut):
    """A timer armed or disarmed again in any cycle around its time is as new."""
    bench = await Bench.start(dut)
    for channel in sorted({0, CHANNELS // 2, CHANNELS - 1}):
        for delay in range(3 * LATE + 2):
            for again in (False, True):
                await bench.step(bench.arm(channel, LATE))
                await bench.steps(delay)
                arm = bench.arm(channel, 3 * LATE) if again else None
                await bench.step(arm, None if again else channel)
                assert not await bench.steps(3 * LATE - 1)
                assert await bench.steps(LATE + 1) == ({channel} if again else set())
                await bench.step(disarm=channel)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random timers of all channels behave as the model in every cycle, until each situation was
    met many times."""
    bench, met = await Bench.start(dut), Counter[str]()
    goals = ["expired in cycles", "expired in units", "past", "armed before its time"]
    goals += ["disarmed before its time", "armed when expired", "disarmed when expired"]
    goals += ["armed when due", "disarmed when due"]
    rounds = Rounds(30)
    while rounds.more(all(met[one] >= 20 for one in goals), met):
        await some_time(bench, met)
    cocotb.log.info("met: %s", dict(met))


async def some_time(bench: Bench, met: Counter[str]) -> None:
    """Some hundred cycles of random timers."""
    numbers = bench.numbers
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    arms, disarms = numbers.choice((0.01, 0.1, 0.5)), numbers.choice((0.0, 0.02, 0.2))
    longest, ticks = numbers.choice((5, 40, 150)), numbers.choice((0.02, 0.5))
    for _ in range(400):
        before = bench.expired
        arm, disarm = None, None
        if numbers.random() < arms:
            channel, units = numbers.choice(channels), numbers.random() < 0.5
            ahead = numbers.randrange(-3, 5 if units else longest)
            arm = bench.arm(channel, ahead, units=units)
            met["past"] += ahead < 0
        elsewhere = [channel for channel in channels if arm is None or channel != arm.channel]
        if elsewhere and numbers.random() < disarms:
            disarm = numbers.choice(elsewhere)
        for name, channel in (("armed", arm and arm.channel), ("disarmed", disarm)):
            if channel is not None and (timer := bench.model.timers.get(channel)):
                due = "when due" if timer.passed is not None else "before its time"
                met[f"{name} {'when expired' if channel in before else due}"] += 1
        timers = {**bench.model.timers}
        for channel in await bench.step(arm, disarm) - before:
            met[f"expired in {'units' if timers[channel].arm.units else 'cycles'}"] += 1
        bench.units = (bench.units + (numbers.random() < ticks)) % WORD
