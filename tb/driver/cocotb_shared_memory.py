"""The machine shares parts of its memory with other processes."""

import os
import random

import cocotb

from signalbox.driver.device import Device
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.server.shared_memory import PAGE_BYTES, SharedMemory
from signalbox.tb.driver.server.holder import Holder
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.top import MEMORY_BYTES

SIZE = 2 * PAGE_BYTES


async def open_device(dut) -> tuple[Device, SharedMemory]:
    memory = SharedMemory(MEMORY_BYTES)
    return await Device.open(await SimMachine.start(dut, memory)), memory


def share(memory: SharedMemory, portion: Buffer) -> Holder:
    """Share a buffer with a new process."""
    descriptor = memory.share(portion.address, portion.size)
    try:
        return Holder(descriptor, portion.size)
    finally:
        os.close(descriptor)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def copies_between_processes(dut):
    """A process writes bytes into its portion; the machine copies them, at any alignment, within
    that portion and to another process's portion, and both processes read them. Nothing else
    changes."""
    numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    device, memory = await open_device(dut)
    stream = await device.stream()
    portions = [device.memory.allocate(SIZE, align=PAGE_BYTES) for _ in range(2)]
    first, second = [await device.space.map(portion) for portion in portions]
    with share(memory, portions[0]) as one, share(memory, portions[1]) as other:
        data = numbers.randbytes(PAGE_BYTES - 100)
        one.write(7, data)
        expected = [bytearray(SIZE), bytearray(SIZE)]
        expected[0][7 : 7 + len(data)] = data
        for mapping, there in ((first, expected[0]), (second, expected[1])):
            lead = PAGE_BYTES + numbers.randrange(90)
            await stream.memcpy_async(mapping.at(lead), first.at(7), len(data))
            there[lead : lead + len(data)] = data
        await stream.synchronize()
        assert one.read(0, SIZE) == expected[0]
        assert other.read(0, SIZE) == expected[1]
        assert [portion.read().tobytes() for portion in portions] == expected


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def withdrawn_portion(dut):
    """After a portion is withdrawn, machine and process no longer work on the same bytes."""
    device, memory = await open_device(dut)
    stream = await device.stream()
    portion = device.memory.allocate(SIZE, align=PAGE_BYTES)
    mapping = await device.space.map(portion)
    with share(memory, portion) as holder:
        holder.write(0, b"\1" * SIZE)
        memory.withdraw(portion.address, SIZE)
        await stream.memcpy_async(mapping.at(PAGE_BYTES), mapping.at(0), PAGE_BYTES)
        await stream.fill_async(mapping.at(0), 2, PAGE_BYTES)
        await stream.synchronize()
        assert holder.read(0, SIZE) == b"\1" * SIZE
    assert portion.read().tobytes() == b"\2" * PAGE_BYTES + bytes(PAGE_BYTES)
