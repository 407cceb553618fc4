"""Tests of `hw.lib.arbiter.SteadyRoundRobin`."""

import random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.reset import reset


@cocotb.test(timeout_time=100, timeout_unit="us")
async def offers_stay(dut: Any) -> None:
    """A grant is held until it is used; the next one goes to the first requester after it."""
    count = len(dut.requests)
    rng = random.Random(cocotb.RANDOM_SEED)
    dut.requests.value = dut.advance.value = 0
    await reset(dut)
    await RisingEdge(dut.clk)
    last, requests, advance = count - 1, 0, False
    granted: int | None = None
    for cycle in range(2000):
        await RisingEdge(dut.clk)
        if granted is None:
            turns = [(last + 1 + step) % count for step in range(count)]
            granted = next((one for one in turns if requests >> one & 1), None)
        expected = 0 if granted is None else 1 << granted
        assert int(dut.grant.value) == expected, f"cycle {cycle}"
        if advance and granted is not None:
            last, granted = granted, None
            requests &= ~expected
        requests |= rng.getrandbits(count) & rng.getrandbits(count) & rng.getrandbits(count)
        advance = rng.random() < 0.5
        dut.requests.value, dut.advance.value = requests, advance
