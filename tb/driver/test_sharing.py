"""Streams and buffers in several address spaces of one device (ASID-1, ASID-6, ASID-8)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy, PriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.address_space import SpaceError
from signalbox.driver.memory.asids import OutOfAsids
from signalbox.driver.memory.physical import MemoryUseError
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.page_tables import FaultType
from signalbox.hw.registers import MmuOperation
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]


def run(body: Body, *, policy=None, **config: Any) -> None:
    """Run `body` on a fresh machine. All memory except its buffers must be free again
    afterwards."""
    machine = FakeMachine(Config(memory_bytes=SPACE, **config))

    async def main():
        device = await Device.open(machine, policy or NoPriorityPolicy(1))
        buffers: list = []
        allocate = device.memory.allocate_pages

        def watched(size, *, name=""):
            buffers.append(allocate(size, name=name))
            return buffers[-1]

        device.memory.allocate_pages = watched
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()
        for buffer in buffers:
            if buffer.name in {"", "common"} and not buffer.freed:
                buffer.free()
        assert device.memory.free_bytes == device.memory.largest_free == SPACE - 4096
        assert not machine.translator.bound

    asyncio.run(main())


def random(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def test_same_addresses():
    """Example 1: two spaces use the same addresses for different bytes."""

    async def body(device, machine):
        work = []
        for number in range(3):
            space = device.create_space(f"task {number}")
            stream, data = await device.stream(space=space), random(5000, number)
            src = await device.upload(data, space=space)
            dst = await device.allocate(5000, space=space)
            work.append((stream, src, dst, data))
        assert len({stream.space.at(dst) for stream, _, dst, _ in work}) == 1
        assert len({stream.channel.index for stream, *_ in work}) == 3
        for stream, src, dst, _ in work:
            await stream.memcpy_async(dst, src, 5000)
        await device.synchronize()
        assert all(np.array_equal(dst.read(), data) for _, _, dst, data in work)

    run(body)


def test_addresses_are_not_physical():
    """Virtual and physical addresses differ, so that a mix-up is noticed."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), await device.allocate(64)
        assert device.space.at(src) != src.address
        await stream.memcpy_async(dst, src.address, 64)
        with pytest.raises(ChannelError, match=r"read of 0x.* in address space 'device'"):
            await stream.synchronize()
        await stream.channel.skip()

    run(body)


def test_shared_buffer():
    """Example 2: one buffer has two addresses and is read-only in one of the spaces."""

    async def body(device, machine):
        a, b = device.create_space("a"), device.create_space("b")
        one, two = await device.stream(space=a), await device.stream(space=b)
        data = random(100)
        src = await device.upload(data, space=a)
        common = await device.allocate(100, space=a, name="common")
        with pytest.raises(
            MemoryUseError, match=r"'common' .* is not mapped in .* 'b' \(ASID \d\)"
        ):
            await two.memcpy_async(common, common, 100)
        view = await b.map(common, va=0x12_3000_0000, read_only=True)
        own = await device.allocate(100, space=b)
        done = device.event(interrupt=False)
        await one.memcpy_async(common, src, 100, done=done)
        await done.wait(two)
        await two.memcpy_async(own, common, 100)
        await two.memcpy_async(b.at(own, 50), view, 50)
        await device.synchronize()
        assert np.array_equal(own.read(shape=50), data[:50])
        assert np.array_equal(own.read(offset=50), data[:50])
        with pytest.raises(MemoryUseError, match=r"mapping 'common' .* does not belong to .* 'a' "):
            await one.memcpy_async(view, src, 10)
        await two.memcpy_async(common, own, 10)
        with pytest.raises(ChannelError) as caught:
            await two.synchronize()
        fault = caught.value.fault
        assert fault is not None and fault.cause is FaultType.RO and fault.space == "b"
        await two.channel.skip()
        await device.free(common)
        assert common.freed and view.unmapped

    run(body)


def test_events_between_spaces():
    """Events recorded by a copy or by the host work in both directions; a waiter cannot write the
    other space's fence."""

    async def body(device, machine):
        spaces = [device.create_space(name) for name in "ab"]
        one, two = [await device.stream(space=space) for space in spaces]
        gate = device.semaphore_address(40)
        await one.submit(Pushbuffer().acquire(gate, 1))
        src = await device.upload(random(10), space=spaces[0])
        there, back = device.event(), device.event()
        await one.memcpy_async(src, src, 10, done=there)
        await there.wait(two)
        await back.record(two)
        await back.wait(one)
        assert not await two.query()
        await device.control.write_semaphore(40, 1)
        await device.synchronize()
        assert there.query() and back.query() and there.time_ns <= back.time_ns
        (view,) = [each for each in spaces[1] if each.name == "fences" and each.read_only]
        await two.submit(Pushbuffer().release(view.va, 9))
        with pytest.raises(ChannelError, match="faulted with RO"):
            await two.synchronize()
        await two.channel.skip()

    run(body)


def test_nothing_stale():
    """A freed buffer cannot be used again, and its memory and addresses can be reused at once."""

    async def body(device, machine):
        stream = await device.stream()
        dst = await device.allocate(4096)
        for number in range(30):
            src = await device.upload(random(4096, number))
            await stream.memcpy_async(dst, src, 4096)
            await stream.synchronize()
            assert np.array_equal(dst.read(), random(4096, number))
            await device.free(src)
            with pytest.raises(MemoryUseError, match="was freed"):
                await stream.memcpy_async(dst, src, 16)

    run(body)


def test_channels_of_a_level():
    """A stream takes a channel of its own space or a free one; otherwise the error lists the
    owners. Closing a stream or a space frees its channels."""

    async def body(device, machine):
        a, b, c = [device.create_space(name) for name in "abc"]
        first = await device.stream(0, space=a)
        second = await device.stream(0, space=b)
        assert {first.channel.index, second.channel.index} == {0, 1}
        assert (await device.stream(0, space=a)).channel is first.channel
        assert (await device.stream(-1, space=c)).channel.index in {2, 3}
        with pytest.raises(
            DeviceError,
            match=r"no channel for a stream of address space 'c' \(ASID 2\): none of the "
            r"channels of priority 0 \(0, 1\) is usable. "
            r".* channel 0 'a', channel 1 'b', channel 2 'c'",
        ):
            await device.stream(0, space=c)
        with pytest.raises(DeviceError, match=r"channel 0 belongs to .* 'a' .*, not to .* 'c'"):
            await device.channel(0, c)
        await second.close()
        third = await device.stream(0, space=c)
        assert third.channel.index == 1
        with pytest.raises(DeviceError, match=r"no channel for a stream of .* 'b'"):
            await device.stream(0, space=b)
        await device.close_space(c)
        assert (await device.stream(0, space=b)).channel.index == 1

    run(body, policy=PriorityPolicy(2), channels=4)


def test_streams_close():
    """A channel closes with its last stream; a closed stream's submitted work is complete."""

    async def body(device, machine):
        one, two = await device.stream(), await device.stream()
        src, dst = await device.upload(random(64)), await device.allocate(64)
        await one.memcpy_async(dst, src, 64)
        await one.close()
        assert np.array_equal(dst.read(), src.read())
        assert list(device.channels) == [0]
        dst.fill(0)
        await two.memcpy_async(dst, src, 64)
        await two.synchronize()
        assert np.array_equal(dst.read(), src.read())
        await two.close()
        assert not device.channels and not device.spaces.users(device.space)

    run(body, channels=1)


def test_asids():
    """A channel keeps its space's ASID; a space without channels can lose its ASID and get it
    back."""

    async def body(device, machine):
        a, b, c = [device.create_space(name) for name in "abc"]
        streams = [await device.stream(space=space) for space in (a, b)]
        assert {a.asid, b.asid} == {0, 1}
        with pytest.raises(OutOfAsids, match=r"no ASID for address space 'c' .* 0 'a', 1 'b'"):
            await device.stream(space=c)
        assert len(device.channels) == 2
        await streams[0].close()
        third = await device.stream(space=c)
        assert c.asid == 0 and a.asid is None
        assert machine.mmu.commands[-1] == (MmuOperation.BIND, 0)
        await third.close()
        again = await device.stream(space=a)
        assert a.asid == 0
        src, dst = await device.upload(random(9), space=a), await device.allocate(9, space=a)
        await again.memcpy_async(dst, src, 9)
        await again.synchronize()
        assert np.array_equal(dst.read(), src.read())

    run(body, asids=2, sms=0)


def test_close_space():
    async def body(device, machine):
        space = device.create_space("gone")
        stream = await device.stream(space=space)
        src = await device.upload(random(64), space=space)
        await stream.memcpy_async(src, src, 64)
        await device.close_space(space)
        assert space.closed and not src.mappings and not device.channels
        assert list(machine.translator.bound) == [63], "only the ASID of the task lists"
        with pytest.raises(SpaceError, match="was closed"):
            await device.stream(space=space)
        with pytest.raises(SpaceError, match=r"'device' .* is the device's own"):
            await device.close_space(device.space)

    run(body)


def test_takes_over_what_is_bound():
    machine = FakeMachine(Config(memory_bytes=SPACE, asids=8))
    machine.translator.bind(5, 0x5000, (1 << 49) - 1)
    machine.faults.translate(6, 0, 0, 1)

    async def main():
        first = await Device.open(machine)
        await first.stream()
        machine.translator.bind(5, 0x5000, (1 << 49) - 1)
        machine.linger, write = 1000, machine.memory_write

        def watched(address: int, data: bytes) -> None:
            assert not any(machine.active(index) for index in range(8)), "memory is in use"
            write(address, data)

        machine.memory_write = watched
        device = await Device.open(machine)
        assert list(machine.translator.bound) == [7] and not machine.faults.pending
        await (await device.stream()).synchronize()
        assert list(machine.translator.bound) == [7, 0]

    asyncio.run(main())


def test_large_pages():
    """A buffer gets the largest page size such that it fills at least a quarter of a page."""

    async def body(device, machine):
        for size, page in (
            *((1, 4096), (16383, 4096), (16384, 65536), (65537, 65536)),
            *(((1 << 19) - 1, 65536), (1 << 19, 1 << 21), ((1 << 21) + 1, 1 << 21)),
        ):
            buffer = await device.allocate(size)
            mapping = device.space.mapping(buffer)
            assert buffer.mappings == [mapping]
            assert (buffer.size, mapping.page_size) == (size, page)
            assert buffer.room == mapping.size == -(-size // page) * page
            await device.free(buffer)

    run(body)


def test_no_room():
    async def body(device, machine):
        room = device.memory.free_bytes
        for size in (2 * SPACE, device.memory.largest_free):
            with pytest.raises(Exception, match=r"no .* of .* bytes"):
                await device.allocate(size)
        assert device.memory.free_bytes <= room

    run(body)


def test_causes_are_those_of_faults():
    """A fault is claimed once: a second error at the same address gets its own."""

    async def body(device, machine):
        stream = await device.stream()
        for _ in range(3):
            await stream.memcpy_async(0x7000_0000, 0x7000_0000, 16)
            with pytest.raises(ChannelError) as caught:
                await stream.synchronize()
            assert caught.value.cause is Cause.COPY_READ_FAULT and caught.value.fault is not None
            await stream.channel.skip()
        assert device.faults.unclaimed == ()

    run(body)
