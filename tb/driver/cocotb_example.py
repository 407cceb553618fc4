"""The example of the user guide: an urgent copy overtakes queued ones."""

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.tb.simulation.machine import SimMachine


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def urgent_copy_overtakes(dut):
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(levels=2))
    bulk, urgent = await device.stream(priority=0), await device.stream(priority=-1)
    data = np.random.default_rng(1).integers(0, 256, 4096, np.uint8)
    src = await device.upload(data)
    copies = []
    for number in range(8):
        stream = urgent if number == 7 else bulk
        dst, done = await device.allocate(data.nbytes), device.event(interrupt=False)
        await stream.memcpy_async(dst, src, data.nbytes, done=done)
        copies.append((dst, done))
    await device.synchronize()
    assert all(np.array_equal(dst.read(), data) for dst, _ in copies)
    ends = [done.cycle for _, done in copies]
    assert sum(end < ends[7] for end in ends) <= 2, "only what had begun may end before it"
