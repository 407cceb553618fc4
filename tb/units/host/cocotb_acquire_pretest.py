"""The pause between polls alone (HOST-5, spec 2.3): every cycle against its contract."""

import os
from collections import Counter

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.scheduling.acquire_pretest import AcquirePretest
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.goals import Rounds

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

PERIODS = (0, 1, 2, 8, 40, 255)


@cocotb.test(**LIMIT)
async def as_long_as_told(dut):
    """Polls rest for PERIOD cycles from the end of the work on, and not without runlists."""
    tb = Testbench(dut, component(AcquirePretest, CONFIG))
    await tb.start()
    everyone = (1 << CONFIG.channels) - 1
    for period in PERIODS:
        for enable in (1, 0):
            tb.drive(enable=enable, period=period, polling=everyone, busy=1)
            await tb.steps(3)
            assert tb.get("resting") == 0
            tb.drive(busy=0)
            await tb.step()
            seen = []
            for _ in range(period + 20):
                await tb.step()
                seen.append(tb.get("resting"))
            assert seen == [everyone * enable] * period + [0] * 20, f"period {period}"


@cocotb.test(**LIMIT)
async def any_inputs(dut):
    """With random inputs, a channel rests if and only if it polled in the previous cycle, runlists
    were used, and the last work was at most PERIOD cycles before, PERIOD as in that cycle."""
    tb, met = Testbench(dut, component(AcquirePretest, CONFIG)), Counter[str]()
    await tb.start()
    numbers = tb.random
    expected: int | None = None
    calm, period = 1, 0
    rounds = Rounds(20)
    while rounds.more(met["rest"] >= 200 and met["over"] >= 200 and met["work"] >= 200, met):
        rate, span = numbers.choice((0.01, 0.1, 0.5)), numbers.choice(PERIODS)
        enable = numbers.random() < 0.8
        for _ in range(300):
            busy, polling = numbers.random() < rate, numbers.getrandbits(CONFIG.channels)
            tb.drive(enable=enable, period=span, busy=busy, polling=polling)
            await tb.step()
            assert expected is None or tb.get("resting") == expected
            rests = enable and not busy and calm <= period
            expected = polling if rests else 0
            met["work" if busy else "rest" if rests else "over"] += 1
            if busy:
                calm, period = 0, span
            calm += 1
    cocotb.log.info("met: %s", dict(met))
