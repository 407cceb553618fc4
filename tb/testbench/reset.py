"""Clock and reset of unit tests."""

from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

__all__ = ["reset"]


async def reset(dut: Any) -> None:
    """Start a clock of 10 ns and hold the reset for three cycles. The caller must have driven all
    inputs."""
    dut.rst.value = 1
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
