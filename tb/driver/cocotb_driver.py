"""The driver on the RTL: copies, priorities, events, errors."""

import os
import random

import cocotb
import numpy as np
import pytest

from signalbox.driver.channel.channel import Channel, ChannelResources
from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod
from signalbox.hw.page_tables import AccessType
from signalbox.tb.simulation.machine import SimMachine

PAGE = 4096
LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}


@cocotb.test(**LIMIT)
async def copies(dut):
    """Copies of random sizes and offsets in several streams; every byte is compared."""
    numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    device = await Device.open(await SimMachine.start(dut))
    streams = [await device.stream(-number) for number in range(device.info.channels)]
    work = []
    for number in range(20):
        size = numbers.randrange(1, 700)
        lead = [numbers.randrange(64) for _ in range(2)]
        data = np.random.default_rng(number).integers(0, 256, size, np.uint8)
        src, dst = await device.allocate(size + 64), await device.allocate(size + 128)
        src.write(data, lead[0])
        dst.fill(0xA5)
        stream = numbers.choice(streams)
        place = device.space.at
        await stream.memcpy_async(place(dst, lead[1]), place(src, lead[0]), size)
        work.append((dst, lead[1], data))
    await device.synchronize()
    for dst, lead, data in work:
        found = dst.read()
        assert np.array_equal(found[lead : lead + data.size], data)
        assert (found[:lead] == 0xA5).all()
        assert (found[lead + data.size :] == 0xA5).all()


@cocotb.test(**LIMIT)
async def fills(dut):
    """HOST-16: fills of 1, 2, 4 and 8 bytes in several streams write exactly their bytes."""
    numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    device = await Device.open(await SimMachine.start(dut))
    streams = [await device.stream(-number) for number in range(device.info.channels)]
    work = []
    for _ in range(12):
        unit, count, lead = (
            numbers.choice((1, 2, 4, 8)),
            numbers.randint(1, 90),
            numbers.randrange(40),
        )
        pattern = numbers.getrandbits(8 * unit)
        dst = await device.allocate(800)
        dst.fill(0xA5)
        place = device.space.at(dst, lead, unit * count)
        await numbers.choice(streams).fill_async(place, pattern, unit * count, unit=unit)
        filled = pattern.to_bytes(unit, "little") * count
        work.append((dst, (b"\xa5" * lead + filled).ljust(800, b"\xa5")))
    await device.synchronize()
    for dst, wanted in work:
        assert dst.read().tobytes() == wanted


@cocotb.test(**LIMIT)
async def events(dut):
    """A consumer waits for a producer's event, and event times increase."""
    device = await Device.open(await SimMachine.start(dut))
    producer, consumer = await device.stream(0), await device.stream(-5)
    data = np.arange(600, dtype=np.uint16)
    src = await device.upload(data)
    middle, dst = await device.allocate(1200), await device.allocate(1200)
    middle.fill(0)
    start, ready, end = device.event(), device.event(interrupt=False), device.event()
    await start.record(producer)
    await producer.memcpy_async(middle, src, 1200, done=ready)
    await ready.wait(consumer)
    await consumer.memcpy_2d_async(dst, 120, middle, 120, 120, 10)
    await end.record(consumer)
    await end.synchronize()
    assert np.array_equal(dst.read(np.uint16), data)
    assert 75 <= ready.elapsed_cycles(start) < end.elapsed_cycles(start) < 2000
    assert abs(end.cycle - device.machine.now()) < 200


@cocotb.test(**LIMIT)
async def errors(dut):
    """An error is raised with its method and skipped; its channel continues, and others never
    stop."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    stream, other = await device.stream(), await device.stream()
    src, dst = await device.upload(np.arange(64, dtype=np.uint8)), await device.allocate(64)
    dst.fill(0)
    await stream.submit(Pushbuffer().add(0xFF_FFFF_FFF0, 1))
    await stream.memcpy_async(dst, src, 64)
    try:
        await stream.synchronize()
    except ChannelError as error:
        assert error.channel == stream.channel.index
        assert (error.cause, error.method) == (Cause.SEM_UNKNOWN, 0x6C)
        assert error.va == 0xFF_FFFF_FFF0
        assert "SEM_EXECUTE" in str(error)
    else:
        raise AssertionError("no error was raised")
    if other.channel is not stream.channel:
        await other.memcpy_async(dst, src, 32)
        await other.synchronize()
        assert not dst.read(offset=32).any()
    await stream.channel.skip()
    await stream.synchronize()
    assert np.array_equal(dst.read(), src.read())


@cocotb.test(**LIMIT)
async def small_ring(dut):
    """Submissions exceed the ring and its memory, so segments are recycled."""
    settings = ChannelSettings(ring_entries=4, pushbuffer_bytes=512)
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1), settings)
    stream = await device.stream()
    src = await device.upload(np.arange(40, dtype=np.uint8))
    dst = await device.allocate(40 * 32)
    place = device.space.at
    for line in range(40):
        await stream.memcpy_async(place(dst, 32 * line), place(src, line), 1)
    await stream.synchronize()
    assert np.array_equal(dst.read()[::32], src.read())


@cocotb.test(**LIMIT)
async def errors_end_with_their_owner(dut):
    """Closing a device, or opening one, leaves no pending error interrupt, even if several copies
    fail one after another."""
    machine = await SimMachine.start(dut)
    for closes, copies in ((True, 0), (False, 0), (True, 2), (False, 2), (True, 3)):
        device = await Device.open(machine, PriorityPolicy(1))
        assert await device.control.read("INTR") == 0
        stream = await device.stream()
        await stream.synchronize()
        wrong = Pushbuffer()
        for _ in range(copies):
            target = device.space.at(await device.allocate(64))
            wrong.copy(target, 1 << 48, 64, transfer=1)
        await stream.submit(wrong.host(HostMethod.ILLEGAL))
        await stream.memcpy_async(await device.allocate(64), 1 << 48, 64)
        try:
            await stream.synchronize()
        except ChannelError as error:
            assert error.cause is (Cause.COPY_READ_FAULT if copies else Cause.METHOD_ILLEGAL)
        else:
            raise AssertionError("no error was raised")
        await machine.wait_cycles(200)
        if closes:
            await device.close()
            assert await device.control.read("INTR") == 0


async def failure(stream: Stream) -> ChannelError:
    """Returns the error raised by `stream.synchronize`."""
    try:
        await stream.synchronize()
    except ChannelError as error:
        return error
    raise AssertionError("no error was raised")


@cocotb.test(**LIMIT)
async def fault_repair_resume(dut):
    """ASID-5: a copy and a semaphore operation with missing pages continue as the pages are mapped
    one by one; each error names the access."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    stream, space = await device.stream(), device.space
    data = np.random.default_rng(5).integers(0, 256, 3 * PAGE, np.uint8)
    src, hole = await device.upload(data), 0x40_0000_0000
    dst, flag = device.memory.allocate_pages(3 * PAGE), device.memory.allocate_pages(PAGE)
    dst.fill(0)
    flag.fill(0)
    await stream.memcpy_async(hole, src, 3 * PAGE)
    await stream.submit(Pushbuffer().release(hole + 3 * PAGE, 7))
    for page in range(3):
        error = await failure(stream)
        assert error.cause is Cause.COPY_WRITE_FAULT
        fault = error.fault
        assert fault is not None and fault.va == hole + page * PAGE, str(error)
        assert (fault.space, fault.asid) == ("device", space.asid)
        # The copy engine reports page 0, the driver the others, as it repeats the copy.
        assert (fault.access, fault.client) == (AccessType.WRITE, None if page else 3)
        assert not flag.read().any()
        await space.map(dst.at(page * PAGE), PAGE, va=fault.va)
        await stream.channel.resume()
    error = await failure(stream)
    assert error.cause is Cause.SEM_FAULT and error.fault is not None
    assert np.array_equal(dst.read(), data)
    await space.map(flag, va=hole + 3 * PAGE)
    await stream.channel.resume()
    await stream.synchronize()
    assert flag.read("<u4", 1)[0] == 7
    assert device.faults.unclaimed == ()


@cocotb.test(**LIMIT)
async def spaces(dut):
    """Examples 1 and 2 of page 20: the same addresses in two spaces at once, and a shared buffer,
    with events between the spaces. With one channel the second space has no stream."""
    device = await Device.open(await SimMachine.start(dut))
    names, found = ("a", "b"), []
    spaces = [device.create_space(name) for name in names]
    if device.info.channels == 1:
        await device.stream(space=spaces[0])
        with pytest.raises(DeviceError, match="no channel for a stream of address space 'b'"):
            await device.stream(space=spaces[1])
        return
    streams = [await device.stream(space=space) for space in spaces]
    for number, space in enumerate(spaces):
        data = np.random.default_rng(number).integers(0, 256, PAGE + 100, np.uint8)
        src = await device.upload(data, space=space)
        found.append((data, src, await device.allocate(data.nbytes, space=space)))
    assert spaces[0].at(found[0][1]) == spaces[1].at(found[1][1])
    for stream, (data, src, dst) in zip(streams, found, strict=True):
        await stream.memcpy_async(dst, src, data.nbytes)
    event, (shared, first) = device.event(), (found[0][2], found[1][2])
    await event.record(streams[0])
    await event.wait(streams[1])
    await spaces[1].map(shared, read_only=True)
    await streams[1].memcpy_async(spaces[1].at(first, 50), shared, 50)
    await device.synchronize()
    for data, _, dst in found:
        assert np.array_equal(dst.read(shape=50), data[:50])
        assert np.array_equal(dst.read(offset=100), data[100:])
    assert np.array_equal(first.read(offset=50, shape=50), found[0][0][:50])
    await device.close()


@cocotb.test(**LIMIT)
async def start_holds_nobody_up(dut):
    """The control port serves others while a channel with a running copy is restarted."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(1))
    control, stream = device.control, await device.stream()
    src = await device.upload(np.arange(1 << 14, dtype=np.uint16))
    dut.memory.read_latency.value = dut.memory.write_latency.value = 1500
    await stream.memcpy_async(await device.allocate(src.size), src, src.size)
    while not await control.read_channel(0, "STATUS") & 0xFF0000:
        await machine.wait_cycles(100)
    assert isinstance(device.spaces, AddressSpaces)
    resources = ChannelResources(control, device.memory, device.spaces, device.faults)
    heir = Channel(resources, device.space, 0, ChannelSettings())
    opening = cocotb.start_soon(heir.open(Pushbuffer().set_object()))
    began, slowest = machine.now(), 0
    while not opening.done():
        before = machine.now()
        await control.read("TIME_0")
        slowest = max(slowest, machine.now() - before)
    assert machine.now() - began > 1000, "the copy had ended, so nothing was shown"
    assert slowest < 100
    dut.memory.read_latency.value = dut.memory.write_latency.value = 0
    await heir.drain()
