"""AXI4 managers that violate the protocol. These tests must fail: each passes only if the memory
does not detect the violation. `legal` and `read` violate nothing, and must pass; `read` must fail
with too small a `SharedMemory`."""

import ctypes
import os

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.simulation.backdoor import ProcessBackdoor, open_backdoor
from signalbox.tb.simulation.cocotb_memory import SHARED, prepare


async def address(dut, channel: str, **fields: int) -> None:
    values = {"addr": 0, "len": 0, "size": 4, "burst": 1, **fields}
    for name, value in values.items():
        dut[f"s_axi_{channel}{name}"].value = value
    dut[f"s_axi_{channel}valid"].value = 1
    await RisingEdge(dut.clk)
    dut[f"s_axi_{channel}valid"].value = 0
    for _ in range(4):
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def crosses_page(dut):
    await prepare(dut)
    await address(dut, "ar", addr=0xFF0, len=1)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def early_last(dut):
    await prepare(dut)
    await address(dut, "aw", len=1)
    dut.s_axi_wlast.value = 1
    dut.s_axi_wvalid.value = 1
    for _ in range(3):
        await RisingEdge(dut.clk)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def wrap(dut):
    await prepare(dut)
    await address(dut, "ar", len=3, burst=2)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def wide(dut):
    await prepare(dut)
    await address(dut, "aw", size=5)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def legal(dut):
    await prepare(dut)
    await address(dut, "ar", addr=0xFF8, len=0)
    await address(dut, "aw", addr=0xF01, len=15)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def read(dut):
    """The contents are zero. With `SHARED`, they are a memory that is too small: `open_backdoor`
    refuses it, and the first access to it, past that check, must end the simulation."""
    if shared := os.environ.get(SHARED):
        size = dut.BYTES.value.to_unsigned()
        with pytest.raises(ValueError, match=f"has {size} bytes, the shared one {shared}"):
            open_backdoor(dut, SharedMemory(int(shared)))
        ProcessBackdoor(ctypes.CDLL(None), size, SharedMemory(int(shared)))
    await prepare(dut)
    await address(dut, "ar")
    while not dut.s_axi_rvalid.value:
        await RisingEdge(dut.clk)
    assert dut.s_axi_rdata.value == 0
