"""Number of reads of one client that the fabric has in flight."""

import os

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.records.memory import memory_request
from signalbox.tb.testbench.reset import reset


@cocotb.test(timeout_time=10, timeout_unit="us")
async def physical_reads(dut):
    """While memory does not answer, exactly the configured number of physical reads reaches the
    bus."""
    for name in ("axi__rvalid", "axi__bvalid", "axi__awready", "axi__wready"):
        getattr(dut, name).value = 0
    for number in range(2):
        for name in ("read", "write"):
            dut[f"{name}__{number}__request__valid"].value = 0
    word = memory_request(Config()).const({"va": 0x1000, "physical": 1}).as_bits()
    dut.read__0__request__payload.value = word
    dut.axi__arready.value = 1
    await reset(dut)
    dut.read__0__request__valid.value = 1
    reads = 0
    for _ in range(300):
        await ReadOnly()
        reads += int(dut.axi__arvalid.value)
        await RisingEdge(dut.clk)
    assert reads == int(os.environ["AHEAD"])
