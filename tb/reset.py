"""How a test of one unit begins."""

from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

__all__ = ["reset"]


async def reset(dut: Any) -> None:
    """Start the clock of 10 ns, and hold the reset for three cycles. The caller has driven all
    inputs."""
    dut.rst.value = 1
    Clock(dut.clk, 10, unit="ns").start(start_high=False)
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
