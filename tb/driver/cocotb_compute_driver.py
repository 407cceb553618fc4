"""Launches through the driver on the RTL: address spaces, order, errors."""

import cocotb

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.tb.driver import compute_bodies
from signalbox.tb.simulation.machine import SimMachine

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}


async def run(dut, body: compute_bodies.Body) -> None:
    """Run `body` on a fresh machine and check that no interrupt is pending at the end."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    await body(device)
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def vector_adds(dut):
    """Two address spaces use the same addresses (ASID-22)."""
    await run(dut, compute_bodies.vector_adds)


@cocotb.test(**LIMIT)
async def in_order(dut):
    """Copies and launches of a stream execute in order."""
    await run(dut, compute_bodies.in_order)


@cocotb.test(**LIMIT)
async def kernel_fault(dut):
    """The error of a failed warp is complete, and the channel continues."""
    await run(dut, compute_bodies.kernel_fault)


@cocotb.test(**LIMIT)
async def address_limit(dut):
    """What lies past the limit of a small address space faults, before and after its kernels."""
    await run(dut, compute_bodies.address_limit)


@cocotb.test(**LIMIT)
async def refused(dut):
    """An invalid record halts the channel, and the error names the failed check."""
    await run(dut, compute_bodies.refused)
