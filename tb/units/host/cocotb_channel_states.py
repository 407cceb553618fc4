"""State of channels derived from several units (HOST-7, COPY-13): every combination for one
channel, among random states of the others."""

import os
from itertools import product
from typing import Any

import cocotb

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.channel_states import ChannelStates
from signalbox.hw.registers import Wait
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.masks import mask

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = CONFIGS[os.environ.get("SIZE", "default")]

CHANNELS = CONFIG.channels

PORTS = {
    "enabled": "control__enabled",
    "halted": "control__halted",
    "occupied": "fetched__occupied",
    "fetching": "reads__busy",
    "holding": "parked__holding",
    "eligible": "turns__eligible",
}
"""Inputs with a bit per channel. A channel may also be `waiting` or `served`."""

FACTS = frozenset({*PORTS, "waiting"})


def expected(facts: frozenset[str]) -> set[str]:
    """Outputs of a channel for which these facts are true."""
    alive = "enabled" in facts and "halted" not in facts
    idle = not facts & {"occupied", "waiting", "served"}
    found = {
        "alive": alive,
        "occupied": "occupied" in facts,
        "drained": idle and alive,
        "empty": idle and "fetching" not in facts,
    }
    found["busy"] = "fetching" in facts or not found["drained"]
    found["working"] = alive and not found["empty"]
    found["reserving"] = found["working"] and facts >= {"holding", "eligible"}
    return {name for name, holds in found.items() if holds}


async def check(tb: Testbench, channels: list[frozenset[str]]) -> None:
    """Show these facts, of which at most one is `served`, and check all outputs."""
    numbers = tb.random
    served = [number for number, facts in enumerate(channels) if "served" in facts]
    waits = [wait for wait in Wait if wait != Wait.NONE]
    inputs: dict[str, Any] = {
        port: mask(number for number, facts in enumerate(channels) if name in facts)
        for name, port in PORTS.items()
    }
    tb.drive(
        **inputs,
        parked__waits=[
            numbers.choice(waits) if "waiting" in facts else Wait.NONE for facts in channels
        ],
        served__active=bool(served),
        served__channel=served[0] if served else numbers.randrange(CHANNELS),
    )
    await tb.step()
    wanted = [expected(facts) for facts in channels]
    for name in ("alive", "occupied", "drained", "empty", "busy", "working", "reserving"):
        those = mask(number for number, states in enumerate(wanted) if name in states)
        assert tb.get(f"state__{name}") == those, f"{name}: {channels}"


@cocotb.test(**LIMIT)
async def every_combination(dut):
    """A channel's state depends on its own facts alone."""
    tb = await Testbench(dut, component(ChannelStates, CONFIG)).start()
    for bits in product((False, True), repeat=len(FACTS) + 1):
        facts = {name for name, holds in zip(sorted(FACTS), bits[1:], strict=True) if holds}
        others = [{name for name in FACTS if tb.random.getrandbits(1)} for _ in range(CHANNELS - 1)]
        number = tb.random.randrange(CHANNELS)
        channels = [*others[:number], facts, *others[number:]]
        if bits[0]:
            facts.add("served")
        elif others and tb.random.getrandbits(1):
            tb.random.choice(others).add("served")
        await check(tb, [frozenset(one) for one in channels])
