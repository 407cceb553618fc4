"""Tests of `hw.lib.stream.StreamFIFO` with 16-bit payloads."""

import os
import random
from collections import deque

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

DEPTH = int(os.environ.get("DEPTH", "5"))


async def start(dut) -> None:
    dut.i__valid.value = dut.o__ready.value = dut.i__payload.value = 0
    await reset(dut)


@cocotb.test(timeout_time=100, timeout_unit="us")
@cocotb.parametrize(share=[(0.3, 0.7), (0.7, 0.3), (1.0, 1.0)])
async def everything_in_order(dut, share):
    """Payloads leave in the order of their arrival; `level` counts them; nothing is lost."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut)
    inside: deque[int] = deque()
    offered = wanted = False
    word = given = 0
    cycles = Rounds(500)
    while cycles.more(given > 50, given):
        await RisingEdge(dut.clk)
        assert int(dut.level.value) == len(inside)
        if wanted and int(dut.o__valid.value):
            assert int(dut.o__payload.value) == inside.popleft(), f"cycle {cycles.number}"
            given += 1
        if offered and int(dut.i__ready.value):
            inside.append(word)
            offered = False
        if not offered and rng.random() < share[0]:
            offered, word = True, rng.getrandbits(16)
        wanted = rng.random() < share[1]
        dut.i__valid.value, dut.i__payload.value = int(offered), word
        dut.o__ready.value = int(wanted)
    assert share[0] < 1 or given == 497


@cocotb.test(timeout_time=100, timeout_unit="us")
async def room(dut):
    """`depth` payloads fit, and no more; the first is offered 2 cycles after it arrived."""
    await start(dut)
    dut.i__valid.value = 1
    taken, seen = 0, None
    for cycle in range(3 * DEPTH + 3):
        dut.i__payload.value = taken
        await RisingEdge(dut.clk)
        taken += int(dut.i__ready.value)
        if seen is None and int(dut.o__valid.value):
            seen = cycle
    assert (taken, int(dut.level.value), seen) == (DEPTH, DEPTH, 2)
