"""Clock and reset of unit tests."""

from typing import Any

from cocotb.clock import Clock
from cocotb.task import Task
from cocotb.triggers import RisingEdge

__all__ = ["reset"]

_clocks: dict[Any, Task[None]] = {}
"""Drivers of clocks, by signal. cocotb ends them with their test."""


async def reset(dut: Any) -> None:
    """Start a clock with a period of 10 ns, unless the test has called this before, and hold the
    reset for three cycles. The caller must have driven all inputs."""
    dut.rst.value = 1
    if dut.clk not in _clocks or _clocks[dut.clk].done():
        _clocks[dut.clk] = Clock(dut.clk, 10, unit="ns").start(start_high=False)
    for _ in range(3):
        await RisingEdge(dut.clk)
    dut.rst.value = 0
