"""Tests of `hw.lib.arbiter.RoundRobin`."""

import os
import random

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.reset import reset


@cocotb.test(timeout_time=100, timeout_unit="us")
async def goes_round(dut):
    """The grant goes to the first requester after the last one granted, separately for each class;
    the first class precedes the second."""
    count = len(dut.requests)
    rng = random.Random(cocotb.RANDOM_SEED)
    dut.requests.value = dut.advance.value = 0
    await reset(dut)
    first_class = int(os.environ.get("FIRST", "0"))
    classes = (range(first_class), range(first_class, count))
    last = [max(members, default=0) for members in classes]
    requests, advance = 0, 0
    for cycle in range(1000):
        await RisingEdge(dut.clk)
        turns = [
            members[(one - members.start + 1 + step) % len(members)]
            for members, one in zip(classes, last, strict=True)
            for step in range(len(members))
        ]
        first = next((one for one in turns if requests >> one & 1), None)
        assert int(dut.grant.value) == (0 if first is None else 1 << first), f"cycle {cycle}"
        if advance and first is not None:
            last[first >= first_class] = first
        requests = rng.getrandbits(count) & rng.getrandbits(count)
        advance = int(requests != 0 and rng.random() < 0.7)
        dut.requests.value, dut.advance.value = requests, advance
