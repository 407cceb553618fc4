"""Three instances of a shared component in a row: each has its own state."""

from random import Random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

COUNT = 3


@cocotb.test(timeout_time=100, timeout_unit="us")
async def test_sums(dut: Any) -> None:
    rng = Random(cocotb.RANDOM_SEED)
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    dut.rst.value, dut.step.value = 1, 0
    for _ in range(3):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    sums = [3] * COUNT
    for _ in range(100):
        assert [int(getattr(dut, f"sum__{n}").value) for n in range(COUNT)] == sums
        step = rng.randrange(16)
        dut.step.value = step
        steps = [step, *(one % 16 for one in sums[:-1])]
        sums = [(one + more) % 256 for one, more in zip(sums, steps, strict=True)]
        await FallingEdge(dut.clk)
