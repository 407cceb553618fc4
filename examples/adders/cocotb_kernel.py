"""A custom kernel on the supplied core."""

import cocotb
import numpy as np
from own_kernel import POLYNOMIAL

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.device import Device
from signalbox.tb.simulation.machine import SimMachine


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def polynomial(dut):
    device = await Device.open(await SimMachine.start(dut), NoPriorityPolicy(1))
    stream, x = await device.stream(), np.arange(100, dtype=np.uint32) * 0x0123_4567
    buffer = await device.upload(x)
    task = await stream.launch(POLYNOMIAL, 2, 48, {"X": buffer, "N": 90, "A": 6})
    await task.synchronize()
    expected = np.where(np.arange(100) < 90, np.uint32(7) * x * x + x, x)
    assert np.array_equal(buffer.read(np.uint32), expected)
