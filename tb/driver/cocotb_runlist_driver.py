"""The driver's runlists on the RTL (HOST-7)."""

import random

import cocotb
import numpy as np

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.interleave import Interleave
from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.hw.methods import HostMethod, SemOp
from signalbox.tb.simulation.machine import SimMachine

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

NOPS = 3000
"""Methods of a segment."""


async def opened(dut, **slices: int) -> tuple[Device, list[AddressSpace]]:
    """A device scheduled by runlist, and spaces with channels 0, 1, …; `slices` : cycles of each
    space's slice, by name."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, NoPriorityPolicy(1), scheduling="runlist")
    spaces = []
    for index, (name, cycles) in enumerate(slices.items()):
        space = device.create_space(name)
        await device.channel(index, space)
        await device.runlist.configure(space, slice_ns=cycles * device.info.cycle_ns)
        spaces.append(space)
    return device, spaces


@cocotb.test(**LIMIT)
async def copies_of_spaces(dut):
    """Copies of several spaces complete while levels and slices change."""
    numbers = random.Random(cocotb.RANDOM_SEED)
    device, spaces = await opened(dut, one=1000, two=3000, three=2000)
    streams = [await device.stream(space=space) for space in spaces]
    work = []
    for _ in range(24):
        stream, size = numbers.choice(streams), numbers.randrange(1, 700)
        data = np.frombuffer(numbers.randbytes(size), np.uint8)
        src = await device.upload(data, space=stream.space)
        dst = await device.allocate(size, space=stream.space)
        await stream.memcpy_async(dst, src, size)
        work.append((dst, data))
        cycles = numbers.choice((300, 1000, 4000))
        await device.runlist.configure(
            numbers.choice(spaces),
            slice_ns=cycles * device.info.cycle_ns,
            level=numbers.choice([*Interleave]),
        )
    await device.synchronize()
    assert all(np.array_equal(dst.read(), data) for dst, data in work)
    for space in spaces:
        await device.close_space(space)
    await device.close()


@cocotb.test(**LIMIT)
async def shares(dut):
    """Spaces share the host by level and slice: (HIGH, LOW, LOW) with 2,000 cycles each get 2, 1
    and 1 of 4 parts; with a doubled slice the last one gets 2 of 5."""
    device, spaces = await opened(dut, high=2000, low=2000, other=2000)
    channels = [await device.channel(index, space) for index, space in enumerate(spaces)]
    await device.runlist.configure(spaces[0], level=Interleave.HIGH)
    feeds = [cocotb.start_soon(_feed(channel)) for channel in channels]
    await device.machine.wait_cycles(4000)
    found = await _methods(device, 16_000)
    assert [round(4 * one / sum(found)) for one in found] == [2, 1, 1], found
    await device.runlist.configure(spaces[2], slice_ns=4000 * device.info.cycle_ns)
    found = await _methods(device, 20_000)
    assert [round(5 * one / sum(found)) for one in found] == [2, 1, 2], found
    for feed in feeds:
        feed.cancel()
    await device.close()


async def _feed(channel: Channel) -> None:
    """Keep a channel busy."""
    while True:
        await channel.submit(Pushbuffer().non_inc(0, HostMethod.NOP, *range(NOPS)))


async def _methods(device: Device, cycles: int) -> list[int]:
    """Numbers of methods that channels 0 … 2 execute in the next `cycles` cycles."""

    async def counts() -> list[int]:
        return [await device.control.read_channel(index, "METHODS") for index in range(3)]

    before = await counts()
    await device.machine.wait_cycles(cycles)
    return [after - number for after, number in zip(await counts(), before, strict=True)]


@cocotb.test(**LIMIT)
async def all_wait(dut):
    """The driver reports once, each time, that all spaces wait for acquires that let others run."""
    device, spaces = await opened(dut, one=1000, two=1000)
    channels = [await device.channel(index, space) for index, space in enumerate(spaces)]
    assert not await device.runlist.starved()
    flags = [await device.upload(np.zeros(4, np.uint8), space=space) for space in spaces]
    for channel, flag in zip(channels, flags, strict=True):
        at = channel.space.at(flag)
        await channel.submit(Pushbuffer().semaphore(SemOp.ACQUIRE, at, 1, switch=True))
    await device.machine.wait_cycles(2000)
    assert await device.runlist.starved()
    for flag in flags:
        flag.write(np.array([1, 0, 0, 0], np.uint8))
    for channel in channels:
        await channel.drain()
    await device.runlist.starved()
    await device.machine.wait_cycles(2000)
    assert not await device.runlist.starved()
    await device.close()
