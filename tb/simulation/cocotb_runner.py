"""Tests for `test_runner`: one passes, one fails if asked to, one reports its seed."""

import os

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.tb.testbench.reset import reset


async def start(dut) -> None:
    """Start the clock and reset for three cycles, with all inputs driven."""
    dut.step__valid.value = 0
    dut.step__payload.value = 0
    await reset(dut)


@cocotb.test(timeout_time=1, timeout_unit="us")
async def counts(dut):
    await start(dut)
    dut.step__valid.value = 1
    dut.step__payload.value = 3
    await RisingEdge(dut.clk)
    for expected in range(3, 30, 3):
        await RisingEdge(dut.clk)
        assert dut.count.value.to_unsigned() == expected
        assert dut.odd.value == expected % 2


@cocotb.test(timeout_time=1, timeout_unit="us", skip="FAIL" not in os.environ)
async def fails(dut):
    await start(dut)
    assert dut.count.value.to_unsigned() == 1


@cocotb.test(timeout_time=1, timeout_unit="us", skip="SEED_FILE" not in os.environ)
async def writes_seed(dut):
    await start(dut)
    with open(os.environ["SEED_FILE"], "w") as file:
        file.write(os.environ["COCOTB_RANDOM_SEED"])
