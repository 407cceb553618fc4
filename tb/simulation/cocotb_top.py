"""The simulation top with a stand-in design."""

from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, ValueChange, with_timeout

from signalbox.tb.simulation.backdoor import open_backdoor


@cocotb.test(timeout_time=10, timeout_unit="us")
async def writes_and_interrupts(dut):
    dut.control.value = 0
    Clock(dut.clk, 10, unit="ns", impl="gpi").start(start_high=False)
    memory = open_backdoor(dut.memory)
    memory.write(0x30, bytes(48))
    dut.memory.write_latency.value = 20
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert dut.rst.value == 0
    dut.control.value = 1
    began = dut.cycle.value.to_unsigned()
    await with_timeout(ValueChange(dut.irq), 1, "us")
    await RisingEdge(dut.clk)
    assert dut.irq.value == 1
    assert 22 <= dut.cycle.value.to_unsigned() - began <= 26
    assert memory.read(0x30, 48) == bytes(16) + b"\xff" * 16 + bytes(16)
    dut.monitor.flush.value = 1
    for _ in range(2):
        await RisingEdge(dut.clk)
    assert "done 1" in Path("trace.txt").read_text()
    dut.monitor.flush.value = 0
    dut.reset_request.value = 1
    await RisingEdge(dut.clk)
    dut.reset_request.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk)
    assert dut.rst.value == 1
    assert dut.irq.value == 0
