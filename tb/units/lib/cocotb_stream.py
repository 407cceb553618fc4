"""Tests of `hw.lib.stream.StreamRegister` with 16-bit payloads."""

import random
from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset


async def start(dut) -> None:
    dut.i__valid.value = dut.o__ready.value = dut.i__payload.value = 0
    await reset(dut)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(share=[0.3, 0.7, 1.0])
async def passes_everything_on(dut, share):
    """All words come out in order; without stalls, one per cycle with a latency of one cycle."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut)
    inside: deque[int] = deque()
    offered = wanted = False
    word = given = 0
    cycles = Rounds(500)
    while cycles.more(given > 50, given):
        await RisingEdge(dut.clk)
        if wanted and int(dut.o__valid.value):
            assert int(dut.o__payload.value) == inside.popleft(), f"cycle {cycles.number}"
            given += 1
        if offered and int(dut.i__ready.value):
            inside.append(word)
            offered = False
        assert len(inside) <= 2
        if not offered and rng.random() < share:
            offered, word = True, rng.getrandbits(16)
        wanted = rng.random() < share
        dut.i__valid.value, dut.i__payload.value = int(offered), word
        dut.o__ready.value = int(wanted)
    assert share < 1 or given == 498
