"""Tests of `hw.lib.arbiter.RoundRobin`."""

import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge


@cocotb.test(timeout_time=100, timeout_unit="us")
async def goes_round(dut):
    """The grant is what a walk round from the last one finds first."""
    count = len(dut.requests)
    rng = random.Random(cocotb.RANDOM_SEED)
    dut.requests.value = dut.advance.value = 0
    dut.rst.value = 1
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
    last, requests, advance = count - 1, 0, 0
    for cycle in range(1000):
        await RisingEdge(dut.clk)
        turns = [(last + 1 + step) % count for step in range(count)]
        first = next((one for one in turns if requests >> one & 1), None)
        assert int(dut.grant.value) == (0 if first is None else 1 << first), f"cycle {cycle}"
        if advance and first is not None:
            last = first
        requests = rng.getrandbits(count) & rng.getrandbits(count)
        advance = int(requests != 0 and rng.random() < 0.7)
        dut.requests.value, dut.advance.value = requests, advance
