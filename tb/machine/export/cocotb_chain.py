"""Values of `Chain`, which has no clock."""

import cocotb
from cocotb.triggers import Timer


@cocotb.test(timeout_time=1, timeout_unit="us")
async def follows_its_input(dut):
    """Outputs follow the input from the start, including the constant part."""
    for source in (0, 1, 0, 1):
        dut.source.value = source
        await Timer(10, "ns")
        assert dut.first.value == 0b1000 | source
        assert dut.second.value == source
        assert dut.third.value == source
