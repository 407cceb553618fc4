"""Tests of the small parts (`tb.units.lib.test_parts.Parts`)."""

import os
import random
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.reset import reset

WORD = 4


@cocotb.test(timeout_time=100, timeout_unit="us")
async def say_what_they_are_asked(dut: Any) -> None:
    """Outputs equal those of a model in every cycle; registered ones with the stated delay."""
    count = int(os.environ["COUNT"])
    rng = random.Random(cocotb.RANDOM_SEED)
    bits = one = words = 0
    dut.bits.value = dut.one.value = dut.words.value = 0
    await reset(dut)
    await RisingEdge(dut.clk)
    past: deque[int] = deque([0] * 8, maxlen=8)
    for cycle in range(1000):
        await RisingEdge(dut.clk)
        place = one.bit_length() - 1 if one else 0
        before = past[-1]
        assert int(dut.lowest.value) == bits & -bits, f"cycle {cycle}"
        assert int(dut.encoded.value) == place, f"cycle {cycle}"
        assert int(dut.selected.value) == (words >> WORD * place & 15 if one else 0)
        assert int(dut.some.value) == (before != 0), f"cycle {cycle}"
        if before:
            assert int(dut.number.value) == (before & -before).bit_length() - 1, f"cycle {cycle}"
        assert int(dut.later.value) == before, f"cycle {cycle}"
        past.append(bits)
        assert int(dut.tally.value) == past[-1 - (count - 1).bit_length()].bit_count()
        dense = rng.random()
        bits = sum((rng.random() < dense) << n for n in range(count))
        bits = rng.choice([bits, bits, 0, (1 << count) - 1])
        one = rng.choice([0, *(1 << n for n in range(count))])
        words = rng.getrandbits(WORD * count)
        dut.bits.value, dut.one.value, dut.words.value = bits, one, words
