"""Launches through the driver on the RTL: address spaces, order, errors."""

import cocotb

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.tb.driver import computing
from signalbox.tb.sim.machine import SimMachine

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}


async def run(dut, body: computing.Body) -> None:
    """On a fresh machine, which has nothing left to tell at the end."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    await body(device)
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def vector_adds(dut):
    """Two address spaces at the same addresses (ASID-22)."""
    await run(dut, computing.vector_adds)


@cocotb.test(**LIMIT)
async def in_order(dut):
    """Copies and launches of a stream come one after the other."""
    await run(dut, computing.in_order)


@cocotb.test(**LIMIT)
async def kernel_fault(dut):
    """A warp that cannot go on: what the error says, and that the channel goes on."""
    await run(dut, computing.kernel_fault)


@cocotb.test(**LIMIT)
async def refused(dut):
    """A wrong record halts the channel with the number of the check."""
    await run(dut, computing.refused)
