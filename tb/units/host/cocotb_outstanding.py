"""Outstanding operations of all units (HOST-3, HOST-6): each kind alone, then any together."""

import os
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.outstanding import Outstanding
from signalbox.tb.testbench.clocked import Testbench, component

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

ACTIVE = {
    "engines__copying",
    "tasks__some",
    "tasks__busy",
    "semaphores__busy",
    "reads__reading",
    "userd__writing",
}
"""Ports with a bit per channel that has an outstanding operation."""

BUSY = {"tasks__some", "semaphores__changing"}
"""Ports with operations for which WFI of scope ALL waits; copies have their own port."""

OTHERS = {"reads__busy", "engines__able", "engines__keeping", "engines__queue"}
"""Ports that must have no effect."""


async def check(tb: Testbench, channels: dict[str, int], *, idle: bool, served: int | None) -> None:
    """Show operations per port and channel, and check the outputs one cycle later. `idle` : there
    is no copy. `served` : channel with an operation in the semaphore unit."""
    names = sorted(ACTIVE | BUSY | OTHERS)
    inputs: dict[str, Any] = {name: channels.get(name, 0) for name in names}
    tb.drive(
        **inputs,
        copies__all_idle=idle,
        served__asked=served is not None,
        served__channel=tb.random.randrange(CHANNELS) if served is None else served,
    )
    await tb.step()
    await tb.step()
    active = 0 if served is None else 1 << served
    for name in ACTIVE:
        active |= inputs[name]
    assert tb.get("activity__active") == active, (channels, served)
    all_idle = idle and not any(inputs[name] for name in BUSY)
    assert bool(tb.get("activity__all_idle")) == all_idle, (channels, idle)


@cocotb.test(**LIMIT)
async def each_kind(dut):
    """Each kind of operation makes its own channel active, and operations that WFI waits for make
    the host not idle."""
    tb = await Testbench(dut, component(Outstanding, CONFIG)).start()
    for channel in range(CHANNELS):
        for name in sorted(ACTIVE | BUSY | OTHERS):
            await check(tb, {name: 1 << channel}, idle=True, served=None)
        await check(tb, {}, idle=True, served=channel)
        await check(tb, {}, idle=False, served=None)


@cocotb.test(**LIMIT)
async def together(dut):
    """Any operations of any channels."""
    tb = await Testbench(dut, component(Outstanding, CONFIG)).start()
    for _ in range(300):
        share = tb.random.choice((0.05, 0.3))
        channels = {
            name: tb.random.getrandbits(CHANNELS)
            for name in sorted(ACTIVE | BUSY | OTHERS)
            if tb.random.random() < share
        }
        served = tb.random.choice((None, tb.random.randrange(CHANNELS)))
        await check(tb, channels, idle=tb.random.random() < 0.7, served=served)
