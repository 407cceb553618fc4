"""`AdderCore` on the whole machine: sums, ends of vectors, and a missing page."""

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.device import Device
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.kernels.library import VECTOR_ADD
from signalbox.tb.simulation.machine import SimMachine

BLOCK, COUNT = 64, 1000


async def opened(dut) -> Device:
    return await Device.open(await SimMachine.start(dut), NoPriorityPolicy(1))


async def vectors(device: Device) -> dict:
    """Arguments: two random vectors, and one to be overwritten."""
    words = np.random.default_rng(1).integers(0, 1 << 32, (3, 1024), np.uint32)
    args = {name: await device.upload(each) for name, each in zip("ABC", words, strict=True)}
    return args | {"N": COUNT}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def sums(dut):
    """The sums are correct, and threads beyond the end write nothing."""
    device = await opened(dut)
    stream, args = await device.stream(), await vectors(device)
    a, b, before = (args[name].read(np.uint32) for name in "ABC")
    task = await stream.launch(VECTOR_ADD, -(-COUNT // BLOCK), BLOCK, args)
    await task.synchronize()
    found = args["C"].read(np.uint32)
    assert np.array_equal(found[:COUNT], (a + b)[:COUNT])
    assert np.array_equal(found[COUNT:], before[COUNT:])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def missing_page(dut):
    """After a fault the task fails, and the channel continues with the next task."""
    device = await opened(dut)
    stream, args = await device.stream(), await vectors(device)
    nowhere = await stream.launch(VECTOR_ADD, 1, BLOCK, args | {"B": 0x7000_0000})
    try:
        await nowhere.synchronize()
    except TaskError as error:
        assert error.warp is not None and error.warp.va == 0x7000_0000, str(error)
    else:
        raise AssertionError("no error was raised")
    await stream.channel.resume()
    await (await stream.launch(VECTOR_ADD, 1, BLOCK, args)).synchronize()
    a, b, c = (args[name].read(np.uint32)[:BLOCK] for name in "ABC")
    assert np.array_equal(c, a + b)
