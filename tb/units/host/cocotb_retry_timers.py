"""Timers of parked channels alone (HOST-5): every cycle against their model; no timer expires
early, late or twice."""

import os
from collections import Counter
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.scheduling.retry_timers import RetryTimers
from signalbox.tb.models.retry_timers import CYCLE_BITS, UNIT_BITS, Arm, TimersModel
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask, members
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

LATE = CHANNELS + 3
"""Maximum cycles by which a timer may be late."""

WORD = 1 << 32


class RetryTimersTestbench(Testbench):
    """Arms and disarms timers, and compares every cycle with the model.

    Members
    -------
    cycles, units : the present times. `cycles` advances with every `step`.
    expired : channels whose timer had expired in the last `step`.
    resting : channels whose timers must not expire yet, effective from the next `step`.
    """

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(RetryTimers, CONFIG))
        self.model = TimersModel(CHANNELS)
        self.cycles, self.units = self.random.randrange(WORD), self.random.randrange(WORD)
        self.expired: frozenset[int] = frozenset()
        self.resting: frozenset[int] = frozenset()
        self._arm, self._disarm = Strobe(self, "client__arm"), Strobe(self, "client__disarm")

    async def step(self, arm: Arm | None = None, disarm: int | None = None) -> frozenset[int]:
        """One cycle. Returns the channels whose timer has expired."""
        if arm is not None:
            self._arm.send(**vars(arm))
        if disarm is not None:
            self._disarm.send(channel=disarm)
        self.drive(time={"cycles": self.cycles, "units": self.units}, resting=mask(self.resting))
        expected = self.model.show(self.cycles, self.units)
        await super().step()
        self.expired = members(self.get("client__expired"))
        for channel, state in enumerate(expected):
            found = f"channel {channel}, cycle {self.model.now}, {self.model.timers.get(channel)}"
            if channel in self.resting:
                assert channel not in self.expired, found
            else:
                assert state in {None, channel in self.expired}, found
        self.model.step(self.expired, arm, disarm)
        self.cycles = (self.cycles + 1) % WORD
        return self.expired

    async def after(self, cycles: int) -> frozenset[int]:
        """Let `cycles` cycles pass without events. Returns the channels whose timer has expired in
        the last one."""
        await self.steps(cycles)
        return self.expired

    def arm(self, channel: int, ahead: int, *, units: bool = False) -> Arm:
        """A timer that is due `ahead` after the present time. In cycles, the unused higher bits are
        random."""
        if units:
            return Arm(channel, True, (self.units + ahead) % WORD)
        high = self.random.getrandbits(32) >> CYCLE_BITS << CYCLE_BITS
        return Arm(channel, False, high | (self.cycles + ahead) % (1 << CYCLE_BITS))


@cocotb.test(**LIMIT)
async def in_cycles(dut):
    """A timer in cycles expires at its time or at most `channels` + 3 cycles later, also when the
    counter of cycles wraps, and stays expired until it is armed or disarmed. A timer whose time has
    long passed expires soon."""
    tb = await RetryTimersTestbench(dut).start()
    for channel in range(CHANNELS):
        for start in (0, -LATE - 10, (1 << CYCLE_BITS) - LATE - 10):
            tb.cycles = start % WORD
            ahead = LATE + tb.random.randrange(1, 20)
            await tb.step(tb.arm(channel, ahead))
            assert not await tb.after(ahead - 1)
            assert await tb.after(LATE + 1) == {channel}
            assert await tb.after(20) == {channel}
            await tb.step(tb.arm(channel, LATE))
            assert not await tb.after(LATE - 1)
            assert await tb.after(LATE + 1) == {channel}
            await tb.step(disarm=channel)
            assert not await tb.after(3 * LATE)
            await tb.step(tb.arm(channel, 4 * LATE - (1 << CYCLE_BITS - 1)))
            assert await tb.after(2 * LATE + 1) == {channel}
            await tb.step(disarm=channel)


@cocotb.test(**LIMIT)
async def in_units(dut):
    """A timer in units expires only when its time in units has come, also when units wrap, whatever
    the cycles are; if its time has long passed, it expires soon."""
    tb = await RetryTimersTestbench(dut).start()
    for channel in range(CHANNELS):
        for start, ahead in ((0, 1), (WORD - 1, 1), (WORD - 2, 3), (5, (1 << UNIT_BITS - 1) - 1)):
            tb.units = start
            await tb.step(tb.arm(channel, ahead, units=True))
            assert not await tb.after(3 * LATE)
            tb.units = (start + ahead - 1) % WORD
            assert not await tb.after(3 * LATE)
            tb.units = (start + ahead) % WORD
            assert await tb.after(LATE + 1) == {channel}
            await tb.step(tb.arm(channel, 1 - (1 << UNIT_BITS - 1), units=True))
            assert await tb.after(2 * LATE + 1) == {channel}
            await tb.step(disarm=channel)
            assert not await tb.after(3)


@cocotb.test(**LIMIT)
async def stopped_in_time(dut):
    """A timer armed again in any cycle around its time behaves like a new one; a timer disarmed
    there does not expire."""
    tb = await RetryTimersTestbench(dut).start()
    for channel in sorted({0, CHANNELS // 2, CHANNELS - 1}):
        for delay in range(3 * LATE + 2):
            for again in (False, True):
                await tb.step(tb.arm(channel, LATE))
                await tb.steps(delay)
                arm = tb.arm(channel, 3 * LATE) if again else None
                await tb.step(arm, None if again else channel)
                assert not await tb.after(3 * LATE - 1)
                assert await tb.after(LATE + 1) == ({channel} if again else set())
                await tb.step(disarm=channel)


@cocotb.test(**LIMIT)
async def resting(dut):
    """A timer of a resting channel expires when the rest is over, at once if its time has come; the
    others do not notice."""
    tb = await RetryTimersTestbench(dut).start()
    for channel in range(CHANNELS):
        await tb.step(tb.arm(channel, LATE))
        tb.resting = frozenset({channel})
        assert not await tb.after(4 * LATE)
        tb.resting = frozenset(range(CHANNELS)) - {channel}
        assert await tb.step() == {channel}
        await tb.step(disarm=channel)


@cocotb.test(**LIMIT)
async def as_the_model(dut):
    """Random timers of all channels behave like the model in every cycle, until each situation was
    met many times."""
    tb, met = await RetryTimersTestbench(dut).start(), Counter[str]()
    goals = ["expired in cycles", "expired in units", "past", "armed before its time"]
    goals += ["disarmed before its time", "armed when expired", "disarmed when expired"]
    goals += ["armed when due", "disarmed when due"]
    rounds = Rounds(30)
    while rounds.more(all(met[one] >= 20 for one in goals), met):
        await some_time(tb, met)
    cocotb.log.info("met: %s", dict(met))


async def some_time(tb: RetryTimersTestbench, met: Counter[str]) -> None:
    """Some hundred cycles of random timers."""
    numbers = tb.random
    channels = numbers.sample(range(CHANNELS), min(CHANNELS, numbers.choice((1, 2, CHANNELS))))
    arms, disarms = numbers.choice((0.01, 0.1, 0.5)), numbers.choice((0.0, 0.02, 0.2))
    longest, ticks = numbers.choice((5, 40, 150)), numbers.choice((0.02, 0.5))
    rests = numbers.choice((0.0, 0.3))
    for _ in range(400):
        tb.resting = frozenset(one for one in channels if numbers.random() < rests)
        before = tb.expired
        arm, disarm = None, None
        if numbers.random() < arms:
            channel, units = numbers.choice(channels), numbers.random() < 0.5
            ahead = numbers.randrange(-3, 5 if units else longest)
            arm = tb.arm(channel, ahead, units=units)
            met["past"] += ahead < 0
        elsewhere = [channel for channel in channels if arm is None or channel != arm.channel]
        if elsewhere and numbers.random() < disarms:
            disarm = numbers.choice(elsewhere)
        for name, channel in (("armed", arm and arm.channel), ("disarmed", disarm)):
            if channel is not None and (timer := tb.model.timers.get(channel)):
                due = "when due" if timer.passed is not None else "before its time"
                met[f"{name} {'when expired' if channel in before else due}"] += 1
        timers = {**tb.model.timers}
        for channel in await tb.step(arm, disarm) - before:
            met[f"expired in {'units' if timers[channel].arm.units else 'cycles'}"] += 1
        tb.units = (tb.units + (numbers.random() < ticks)) % WORD
