"""Device, streams, events and channels on a machine in plain Python."""

import asyncio
import random
import re
from contextlib import suppress
from dataclasses import asdict
from typing import Any, get_type_hints

import numpy as np
import pytest

from signalbox.driver.channel.channel import Channel, ChannelResources
from signalbox.driver.channel.interleave import GroupSettings
from signalbox.driver.channel.priority_policy import (
    CountFirstPolicy,
    NoPriorityPolicy,
    PriorityPolicy,
)
from signalbox.driver.channel.settings import ChannelOptions, ChannelSettings
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults import fault_registers
from signalbox.driver.faults.channel_error import ChannelActive, ChannelError, ChannelTimeout
from signalbox.driver.faults.fault_buffer import FaultBufferError
from signalbox.driver.faults.task_error import TaskLost
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.address_space import SpaceError
from signalbox.driver.memory.fence import Fence
from signalbox.driver.memory.physical import MemoryUseError
from signalbox.driver.runtime.event import EventError
from signalbox.driver.runtime.stream import Stream, StreamError
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, Reduction, RemapSource
from signalbox.hw.registers import GLOBAL
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import MOMENTS, close_stream_only, interrupt
from signalbox.tb.driver.ways import EVERYWHERE, IN_PROCESS, Way
from signalbox.tb.models.host import Executed
from signalbox.tb.simulation.runner import choose_seed


def run(body, *, machine: FakeMachine | None = None, policy=None, settings=None):
    """Open a device on a fresh machine and run `body(device, machine)`."""
    fake = machine or FakeMachine()

    async def main():
        device = await Device.open(fake, policy, settings)
        await asyncio.wait_for(body(device, fake), HANGS)

    asyncio.run(main())


async def data_of(device: Device, size: int, seed: int = 0):
    """Returns a buffer of random bytes, an empty one of the same size, and the bytes."""
    bytes_ = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return await device.upload(bytes_), await device.allocate(size), bytes_


def test_enumerates():
    async def body(device, machine):
        assert device.info.channels == 3
        assert device.info.memory_bytes == SPACE
        assert device.info.data_width == 256
        assert device.info.window == 0xFF_FFFF_0000
        assert device.stream_priority_range() == (0, -2)
        assert await device.time_ns() > 0

    config = Config(channels=3, data_width=256, memory_bytes=SPACE, copy_engines=2)
    run(body, machine=FakeMachine(config))


def test_refuses_strangers():
    class Stranger(FakeMachine):
        wrong: int

        async def read32(self, offset):
            return 0x1234 if offset == self.wrong else await super().read32(offset)

    for wrong, message in ((0, "no Signalbox here: ID is 0x00001234"), (4, "version 0.4660")):
        stranger = Stranger()
        stranger.wrong = wrong
        with pytest.raises(DeviceError, match=message):
            run(lambda *_: None, machine=stranger)


def test_policy_needs_semaphores():
    config = Config(counters=1, memory_bytes=SPACE)
    with pytest.raises(DeviceError, match="needs 2 counting semaphores, the machine has 1"):
        run(lambda *_: None, machine=FakeMachine(config), policy=PriorityPolicy(3))


@EVERYWHERE
def test_memcpy(way: Way):
    async def body(device, machine):
        stream = await device.stream()
        src, dst, expected = await data_of(device, 5000)
        await stream.memcpy_async(dst, src, 5000)
        await stream.synchronize()
        assert np.array_equal(dst.read(), expected)
        assert await stream.query()
        await stream.memcpy_async(dst, src, 0)
        await stream.memcpy_async(device.space.at(dst, 3), device.space.at(src, 1, 10), 10)
        await stream.synchronize()
        assert np.array_equal(dst.read(shape=10, offset=3), expected[1:11])

    way.run(body)


@EVERYWHERE
def test_memcpy_2d(way: Way):
    async def body(device, machine):
        stream = await device.stream()
        src, dst, expected = await data_of(device, 64 * 10)
        dst.fill(0xEE)
        await stream.memcpy_2d_async(dst, 64, src, 32, 20, 10)
        await device.synchronize()
        image = dst.read(shape=(10, 64))
        assert np.array_equal(image[:, :20], expected[: 32 * 10].reshape(10, 32)[:, :20])
        assert (image[:, 20:] == 0xEE).all()

    way.run(body)


@EVERYWHERE
def test_fill(way: Way):
    """Patterns of 1, 2, 4 and 8 bytes fill exactly their bytes; a `done` event is recorded."""

    async def body(device, machine):
        stream, done = await device.stream(), device.event()
        dst = await device.allocate(100)
        for unit, pattern in ((1, 0xAB), (2, 0x1234), (4, 0xDEAD_BEEF), (8, 0x0123_4567_89AB_CDEF)):
            dst.fill(0xEE)
            place = device.space.at(dst, 3, 80)
            await stream.fill_async(place, pattern, 80, unit=unit, done=done)
            await done.synchronize()
            wanted = b"\xee" * 3 + pattern.to_bytes(unit, "little") * (80 // unit) + b"\xee" * 17
            assert dst.read().tobytes() == wanted
        await stream.fill_async(dst, 0, 100)
        await stream.fill_async(dst, 1, 0, done=done)
        await done.synchronize()
        assert not dst.read().any()
        for wrong, message in (
            ({"pattern": 256, "size": 1}, "pattern = 0x100 does not fit its 1 bytes"),
            ({"pattern": 0, "size": 6, "unit": 4}, "size = 6 is not a multiple of unit = 4"),
            ({"pattern": 0, "size": -4, "unit": 4}, "size = -4"),
            ({"pattern": 0, "size": 3, "unit": 3}, "unit = 3: 1, 2, 4 or 8 bytes"),
        ):
            with pytest.raises(ValueError, match=message):
                await stream.fill_async(dst, **wrong)
        with pytest.raises(MemoryUseError, match="bytes 0 … 104 are not inside buffer"):
            await stream.fill_async(dst, 0, 104, unit=8)

    way.run(body)


@EVERYWHERE
def test_remapped_copy(way: Way):
    """The driver repeats a failed remapped copy with its components."""

    async def body(device, machine):
        stream, hole = await device.stream(), 0x40_0000_0000
        src = await device.upload(np.arange(60, dtype=np.uint8))
        targets = [RemapSource[name] for name in ("SRC_Z", "NO_WRITE", "CONST_B", "SRC_X")]
        commands = Pushbuffer().remap(*targets, size=1, sources=3, const_b=0x99)
        commands.copy(hole, device.space.at(src, 0, 60), 20, remap=1)
        await stream.submit(commands)
        with pytest.raises(ChannelError) as raised:
            await stream.synchronize()
        assert raised.value.cause is Cause.COPY_WRITE_FAULT
        page = device.memory.allocate_pages(4096)
        page.fill(0x11)
        await device.space.map(page, va=hole)
        await stream.channel.resume()
        await stream.synchronize()
        found = page.read(shape=(20, 4))
        assert (found[:, 0] == np.arange(20) * 3 + 2).all() and (found[:, 1] == 0x11).all()
        assert (found[:, 2] == 0x99).all() and (found[:, 3] == np.arange(20) * 3).all()

    way.run(body)


@IN_PROCESS
def test_bounds(way: Way):
    async def body(device, machine):
        stream = await device.stream()
        small, large = await device.allocate(10, name="small"), await device.allocate(20)
        with pytest.raises(MemoryUseError, match=r"bytes 0 … 20 are not inside buffer 'small'"):
            await stream.memcpy_async(small, large, 20)
        with pytest.raises(ValueError, match="size = -1"):
            await stream.memcpy_async(small, large, -1)
        with pytest.raises(ValueError, match=r"src_pitch = 4 is outside 5 \(the width\)"):
            await stream.memcpy_2d_async(small, 5, large, 4, 5, 2)
        with pytest.raises(MemoryUseError, match="more than 49 bits"):
            await stream.memcpy_async(1 << 49, large, 1)
        with pytest.raises(MemoryUseError, match=r"16 bytes at 0x1fffffffffff1: .* than 49 bits"):
            await stream.fill_async((1 << 49) - 15, 0, 16)
        with pytest.raises(MemoryUseError, match=r"17 bytes at 0x1fffffffffff0: .* than 49 bits"):
            await stream.memcpy_2d_async(large, 1, (1 << 49) - 16, 16, 1, 2)
        for call in (
            stream.memcpy_async(small, large, 5 / 2),
            stream.memcpy_async(small, 4096.5, 1),
            stream.fill_async(small, 1, 6 / 2),
        ):
            with pytest.raises(TypeError, match="is not a whole number"):
                await call
        await stream.synchronize()
        assert not machine.copies()

    way.run(body)


def test_objects_of_another_device():
    """Objects of another device are refused, not mistaken for this device's objects with the same
    numbers."""

    async def body(device, machine):
        other = await Device.open(FakeMachine())
        theirs, stream = await other.stream(), await device.stream()
        buffer, event = await other.allocate(64), other.event()
        with pytest.raises(MemoryUseError, match="belongs to another machine"):
            await device.space.map(buffer)
        for call in (event.record(stream), stream.fill_async(0, 0, 0, done=event)):
            with pytest.raises(EventError, match="belongs to another device"):
                await call
        await event.record(theirs)
        with pytest.raises(MemoryUseError, match="belongs to another machine"):
            await event.wait(stream)
        await event.synchronize()
        await stream.synchronize()
        space = other.create_space("theirs")
        free = other.memory.free_bytes
        for call in (device.stream(space=space), device.channel(2, space)):
            with pytest.raises(SpaceError, match="belongs to another machine"):
                await call
        assert other.memory.free_bytes == free
        for mapping in (await other.space.map(0, 4096), other.space.mapping(buffer)):
            with pytest.raises(MemoryUseError, match="belongs to another machine"):
                await device.space.share(mapping)

    run(body)


def test_priorities_are_clamped():
    async def body(device, machine):
        assert device.stream_priority_range() == (0, -1)
        assert [(await device.stream(p)).priority for p in (5, 0, -1, -9)] == [0, 0, -1, -1]
        urgent = await device.stream(-1)
        assert device.policy.level_of_channel(urgent.channel.index) == 2

    run(body, policy=PriorityPolicy(2))


def test_counters_return_to_zero():
    async def body(device, machine):
        streams = [await device.stream(-u) for u in range(4)]
        src, dst, _ = await data_of(device, 256)
        for stream in streams * 3:
            await stream.memcpy_async(dst, src, 256)
        await device.synchronize()
        assert machine.model.semaphores.values == [0] * 64
        assert machine.model.semaphores.counting == 3
        assert len(machine.copies()) == 12

    run(body, policy=PriorityPolicy(4))


def test_change_of_priority_keeps_order():
    async def body(device, machine):
        stream = await device.stream(0)
        before = stream.channel
        src, dst, expected = await data_of(device, 64)
        machine.paused = True
        await stream.memcpy_async(dst, src, 64)
        await stream.set_priority(-1)
        assert stream.channel is not before
        again = await device.allocate(64)
        await stream.memcpy_async(again, dst, 64)
        machine.paused = False
        await stream.synchronize()
        assert np.array_equal(again.read(), expected)

    run(body, policy=PriorityPolicy(2))


def test_change_of_priority_releases_the_channel():
    """A channel left by a stream is closed once the stream's work there has ended, unless another
    stream uses it."""

    async def body(device, machine):
        other, stream = await device.stream(0), await device.stream(0)
        assert stream.channel is other.channel
        for priority in (-1, -2, -2, 0, -2):
            await stream.set_priority(priority)
            await fills(device, stream)
            assert {*device.channels.values()} == {stream.channel, other.channel}
        await stream.close()
        assert [*device.channels.values()] == [other.channel]
        await fills(device, other)

    run(body, policy=PriorityPolicy(3, [1, 1, 1]))


@pytest.mark.parametrize("turns", MOMENTS)
def test_cancelled_change_of_priority(turns: int):
    """After a cancelled change of priority, the stream's work stays in order, and no extra channel
    is kept."""

    async def body(device, machine):
        stream = await device.stream(0)
        src, middle, expected = await data_of(device, 64)
        dst = await device.allocate(64)
        machine.paused = True
        await stream.memcpy_async(middle, src, 64)
        await interrupt(stream.set_priority(-1), turns)
        await stream.memcpy_async(dst, middle, 64)
        machine.paused = False
        await stream.synchronize()
        assert np.array_equal(dst.read(), expected)
        await device.stream(-1)  # closes the channel left by the interrupted call
        await stream.close()
        assert len(device.channels) == 1

    run(body, policy=PriorityPolicy(2, [1, 1]))


def test_closing_beside_a_change_of_priority():
    """The target channel of a moving stream stays open, even if the last other stream leaves it."""

    async def body(device, machine):
        stream, other = await device.stream(0), await device.stream(-1)
        await other.synchronize()
        async with stream.channel.turn():
            moving = asyncio.ensure_future(stream.set_priority(-1))
            await asyncio.sleep(0)
            await other.close()
        await moving
        await fills(device, stream)

    run(body, policy=PriorityPolicy(2, [1, 1]))


@pytest.mark.parametrize("turns", MOMENTS)
def test_change_of_priority_beside_a_closing(turns: int):
    """A stream that is closed while its priority is changed keeps no channel."""

    async def body(device, machine):
        stream = await device.stream(0)
        await stream.synchronize()
        moving = asyncio.ensure_future(stream.set_priority(-1))
        for _ in range(turns):
            await asyncio.sleep(0)
        await stream.close()
        with suppress(StreamError):
            await moving
        assert not device.channels

    run(body, policy=PriorityPolicy(2, [1, 1]))


def test_events():
    async def body(device, machine):
        producer, consumer = await device.stream(0), await device.stream(-1)
        src, middle, expected = await data_of(device, 100)
        dst = await device.allocate(100)
        start, ready, end = device.event(), device.event(interrupt=False), device.event()
        with pytest.raises(EventError, match="never recorded"):
            _ = ready.time_ns
        await ready.wait(consumer)
        machine.paused = True
        await start.record(producer)
        await producer.memcpy_async(middle, src, 100, done=ready)
        assert not ready.query()
        with pytest.raises(EventError, match="not been executed"):
            _ = ready.time_ns
        with pytest.raises(EventError, match="interrupt=False"):
            await ready.synchronize()
        await ready.wait(consumer)
        await consumer.memcpy_async(dst, middle, 100)
        await end.record(consumer)
        machine.paused = False
        await end.synchronize()
        assert np.array_equal(dst.read(), expected)
        assert 0 < ready.elapsed_ns(start) < end.elapsed_ns(start)
        assert end.elapsed_cycles(start) * 10 == end.elapsed_ns(start)
        assert start.cycle < end.cycle <= machine.now()

    run(body, policy=NoPriorityPolicy(2))


def test_event_recorded_again():
    """Waits and queries apply to an event's last record, whichever streams recorded it."""

    async def body(device, machine):
        slow, fast, third = [await device.stream(-number) for number in range(3)]
        gate = device.semaphore_address(40)
        src, middle, expected = await data_of(device, 100)
        dst, event = await device.allocate(100), device.event()
        middle.fill(0)
        await event.record(fast)
        await slow.submit(Pushbuffer().acquire(gate, 1))
        await slow.memcpy_async(middle, src, 100)
        await event.record(slow)
        await event.wait(third)
        await third.memcpy_async(dst, middle, 100)
        await event.record(fast)
        await event.synchronize()
        assert event.query() and not await slow.query() and not await third.query()
        await device.control.write_semaphore(40, 1)
        await device.synchronize()
        assert event.query() and await slow.query() and await third.query()
        await event.synchronize()
        assert np.array_equal(dst.read(), expected)

    run(body, policy=NoPriorityPolicy(3))


def test_fences_of_events_are_returned():
    """Events that are recorded in several channels in turn, or closed, keep no fences; fences with
    an outstanding release are not reused."""

    async def body(device, machine):
        streams, moving = [await device.stream(-number) for number in range(3)], device.event()
        gate, fences = device.semaphore_address(40), device.fences.of(device.space)
        for _ in range(200):
            for stream in streams:
                event = device.event(interrupt=False)
                await event.record(stream)
                await moving.record(stream)
                await stream.synchronize()
                assert event.query() and moving.query() and event.elapsed_ns(moving) < 0
                event.close()
        assert fences.pages == 1
        await streams[0].submit(Pushbuffer().acquire(gate, 1))
        await moving.record(streams[0])
        waiting = asyncio.ensure_future(moving.synchronize())
        await moving.wait(streams[1])
        await asyncio.sleep(0)
        moving.close()
        assert not moving.recorded and moving.query()
        taken = [await fences.take() for _ in range(300)]
        assert len({place_of(fence) for fence in taken}) == 300
        for fence in taken:
            assert fence.reached(fence.submitted)
        assert not waiting.done() and not await streams[1].query()
        await device.control.write_semaphore(40, 1)
        await waiting
        await device.synchronize()

    run(body, policy=NoPriorityPolicy(3))


def test_events_of_closed_spaces():
    """They keep their time, and nobody waits for them any more; they can be recorded again."""

    async def body(device, machine):
        stream, event, late = await device.stream(), device.event(), device.event()
        polled = device.event(interrupt=False)
        free = device.memory.free_bytes
        space = device.create_space("other")
        theirs = await device.stream(space=space)
        await event.record(theirs)
        await theirs.synchronize()
        time = event.time_ns
        await device.close_space(space)
        assert device.memory.free_bytes == free
        assert event.recorded and event.query() and event.time_ns == time > 0
        await event.synchronize()
        await event.wait(stream)
        await stream.synchronize()
        await event.record(stream)
        await event.synchronize()
        assert event.time_ns > time
        await stream.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        await late.record(stream)
        await polled.record(stream)
        await device.close()
        assert event.query() and not late.query()
        for call in (late.synchronize(), late.wait(theirs), polled.synchronize()):
            with pytest.raises(EventError, match="space was closed before its record was exec"):
                await call

    run(body)


def test_fences_of_closed_spaces():
    """A page of fences for which another space waits stays until that space is closed."""

    async def body(device, machine):
        event, spaces = device.event(), [device.create_space(name) for name in "ab"]
        first, second = [await device.stream(space=space) for space in spaces]
        await first.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        await event.record(first)
        await event.wait(second)
        await device.control.write_semaphore(40, 1)
        await device.close_space(spaces[0])
        assert event.query() and device.fences.of(spaces[0]).pages == 1
        await device.close_space(spaces[1])
        assert event.query() and spaces[0] not in device.fences._pools

    run(body)


@IN_PROCESS
def test_query_is_about_all_work(way: Way):
    async def body(device, machine):
        stream = await device.stream()
        src, dst, _ = await data_of(device, 100)
        machine.paused = True
        await stream.memcpy_async(dst, src, 100)
        assert not await stream.query()
        machine.paused = False
        await stream.synchronize()
        assert await stream.query()

    way.run(body)


@EVERYWHERE
def test_many_waiters(way: Way):
    async def body(device, machine):
        async def work(number: int):
            stream = await device.stream(-number)
            src, dst, expected = await data_of(device, 300, number)
            for _ in range(5):
                dst.fill(0)
                await stream.memcpy_async(dst, src, 300)
                await stream.synchronize()
                assert np.array_equal(dst.read(), expected)

        await asyncio.gather(*(work(number) for number in range(8)))

    way.run(body)


def test_ring_and_pushbuffers_are_recycled():
    async def body(device, machine):
        stream = await device.stream()
        src, dst, _ = await data_of(device, 64)
        for _ in range(200):
            await stream.memcpy_async(dst, src, 64)
        await stream.synchronize()
        assert len(machine.copies()) == 200
        assert stream.channel.submitted == 202
        with pytest.raises(ValueError, match="65 dwords are more than the 64 of one submission"):
            await stream.channel.submit([0] * 65)

    run(body, settings=ChannelSettings(ring_entries=4, pushbuffer_bytes=1024))


def releases(machine: FakeMachine) -> list[tuple[int, int]]:
    """Returns a list that grows with each later write of a semaphore: (physical address, value)."""
    semaphores, seen = machine.model.semaphores, []
    write = semaphores.write

    def watched(va: int, value: int, bits: int, asid: int = 0) -> None:
        seen.append((va, value))
        write(va, value, bits, asid)

    semaphores.write = watched
    return seen


def place_of(fence: Fence) -> int:
    """Physical address of a fence."""
    return fence.page.buffer.at(fence.offset)


@pytest.mark.parametrize("late", range(8))
def test_fences_are_released_in_order(late: int):
    """Tasks that find the ring full submit in order of arrival, so the values of a fence are
    released in ascending order. `late`: turns of the event loop until there is room again."""

    async def body(device, machine):
        stream, event = await device.stream(), device.event()
        src, dst, _ = await data_of(device, 16)
        kinds = (
            stream.synchronize,
            lambda: event.record(stream),
            lambda: stream.memcpy_async(dst, src, 16, done=event),
        )
        await event.record(stream)
        await stream.synchronize()
        seen = releases(machine)
        machine.paused = True
        for _ in range(3):
            await stream.submit(Pushbuffer().host(HostMethod.NOP))
        work = []
        for kind in kinds * 3:
            work.append(asyncio.ensure_future(kind()))
            await asyncio.sleep(0)
        for _ in range(late):
            await asyncio.sleep(0)
        machine.paused = False
        await asyncio.gather(*work)
        await event.synchronize()
        for fence in (stream.fence, event._fence):
            values = [value for pa, value in seen if pa == place_of(fence)]
            assert values == [*range(2, fence.submitted + 1)]

    run(body, policy=NoPriorityPolicy(1), settings=ChannelSettings(ring_entries=4))


@pytest.mark.parametrize("late", range(8))
def test_change_of_priority_beside_other_tasks(late: int):
    """Submissions of another task during a change of the stream's channel stay in order."""

    async def body(device, machine):
        stream = await device.stream()
        await stream.synchronize()
        seen = releases(machine)
        machine.paused = True
        for _ in range(3):
            await stream.submit(Pushbuffer().host(HostMethod.NOP))
        work = [asyncio.ensure_future(stream.synchronize())]
        for step in (stream.set_priority(-1), stream.synchronize(), stream.synchronize()):
            await asyncio.sleep(0)
            work.append(asyncio.ensure_future(step))
        for _ in range(late):
            await asyncio.sleep(0)
        machine.paused = False
        await asyncio.gather(*work)
        await stream.synchronize()
        values = [value for pa, value in seen if pa == place_of(stream.fence)]
        assert values == [*range(2, stream.fence.submitted + 1)]

    run(body, policy=NoPriorityPolicy(2), settings=ChannelSettings(ring_entries=4))


def test_submissions_beside_an_opening():
    """A task may fill the ring while another one is still enabling the channel."""

    async def body(device, machine):
        opening = asyncio.ensure_future(device.channel(0))
        await asyncio.sleep(0)
        channel = await device.channel(0)
        for number in range(12):
            await channel.submit(Pushbuffer().host(HostMethod.NOP, number))
        await opening
        await channel.drain(poll=10)
        executed = [event for event in machine.model.events if isinstance(event, Executed)]
        nops = [event.data for event in executed if event.address == HostMethod.NOP]
        assert nops == list(range(12))

    run(body, policy=NoPriorityPolicy(1), settings=ChannelSettings(ring_entries=4))


def test_segments_are_not_overwritten():
    """Submissions of random sizes through a small ring arrive complete and in order (spec 1.1)."""
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    numbers = random.Random(seed)

    async def body(device, machine):
        channel = await device.channel(2)
        sent = 0
        for _ in range(300):
            count = numbers.randrange(1, 32)
            commands = Pushbuffer().non_inc(0, HostMethod.NOP, *range(sent, sent + count))
            sent += count
            await channel.submit(commands, sync=numbers.random() < 0.2)
        await channel.drain(poll=10)
        nops = [event.data for event in machine.model.events if event[2] == HostMethod.NOP]
        assert nops == list(range(sent))

    run(body, settings=ChannelSettings(ring_entries=16, pushbuffer_bytes=1024))


def test_error_is_raised_and_skipped():
    async def body(device, machine):
        stream, other = await device.stream(), await device.stream(-1)
        src, dst, expected = await data_of(device, 64)
        await stream.submit(Pushbuffer().add(device.semaphore_address(60) + 4, 1))
        await stream.memcpy_async(dst, src, 64)
        with pytest.raises(ChannelError) as caught:
            await stream.synchronize()
        error = caught.value
        assert (error.channel, error.cause) == (stream.channel.index, Cause.SEM_UNKNOWN)
        assert (error.method, error.data) == (0x6C, 0xA800_0006)
        assert error.va == 0xFF_FFFF_03C4
        for part in ("SEM_UNKNOWN (SEMAPHORE)", "SEM_EXECUTE", "IADD", "0xffffff03c4", "skip()"):
            assert part in str(error)
        await other.memcpy_async(dst, src, 32)
        await other.synchronize()
        assert not dst.read(offset=32).any()
        await stream.channel.skip()
        await stream.synchronize()
        assert np.array_equal(dst.read(), expected)

    run(body, policy=NoPriorityPolicy(2))


def test_error_resumed_and_replaced():
    async def body(device, machine):
        stream = await device.stream()
        slot = device.semaphore_address(0)
        await stream.submit(Pushbuffer().add(slot, -1))
        with pytest.raises(ChannelError, match="SEM_UNDERFLOW"):
            await stream.synchronize()
        await stream.channel.resume()
        with pytest.raises(ChannelError, match="SEM_UNDERFLOW"):
            await stream.synchronize()
        await device.control.write_semaphore(0, 1)
        await stream.channel.resume()
        await stream.synchronize()
        assert await device.control.read_semaphore(0) == 0
        await stream.submit(Pushbuffer().host(HostMethod.ILLEGAL, 3))
        with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
            await stream.synchronize()
        await stream.channel.replace(HostMethod.SET_REFERENCE, 99)
        await stream.synchronize()
        assert await device.control.read_channel(stream.channel.index, "REFERENCE") == 99

    run(body, policy=PriorityPolicy(2))


@pytest.mark.parametrize("turns", range(12))
def test_cancelled_replacing(turns: int):
    """The replacing method is executed with its own data, or not at all."""

    async def body(device, machine):
        stream = await device.stream()
        await stream.submit(Pushbuffer().host(HostMethod.SET_REFERENCE, 5))
        await stream.submit(Pushbuffer().host(HostMethod.ILLEGAL, 3))
        with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
            await stream.synchronize()
        await interrupt(stream.channel.replace(HostMethod.SET_REFERENCE, 99), turns)
        await stream.channel.resume()
        try:
            await stream.synchronize()
        except ChannelError as error:  # the method was held as it had been
            assert error.cause is Cause.METHOD_ILLEGAL
            await stream.channel.skip()
            await stream.synchronize()
        found = await device.control.read_channel(stream.channel.index, "REFERENCE")
        assert found in {5, 99}

    run(body)


def test_header_error_goes_on_behind():
    async def body(device, machine):
        stream = await device.stream()
        await stream.submit(Pushbuffer().raw(0xC000_0000).host(HostMethod.SET_REFERENCE, 7))
        with pytest.raises(ChannelError, match=r"HEADER_RESERVED.*header 0xc0000000") as caught:
            await stream.synchronize()
        assert caught.value.method is None
        assert not caught.value.held
        await stream.channel.skip()
        await stream.synchronize()
        assert await device.control.read_channel(stream.channel.index, "REFERENCE") == 7

    run(body)


def test_failed_copy_is_over():
    async def body(device, machine):
        stream = await device.stream(-1)
        dst, src, _ = await data_of(device, 8192)
        end = device.space.at(src) + 8192
        dst.fill(0)
        await stream.memcpy_async(dst, end - 16, 64)
        with pytest.raises(ChannelError, match=r"COPY_READ_FAULT.*LAUNCH_DMA") as caught:
            await stream.synchronize()
        assert caught.value.va == end
        await stream.channel.skip()
        await stream.synchronize()
        assert not dst.read().any()
        assert machine.model.semaphores.values[0] == 0

    run(body, policy=PriorityPolicy(2))


@pytest.mark.parametrize("before", [5, 2])
def test_methods_wrap(before: int):
    """Copies are known by their number even if METHODS has wrapped: a failed one is repeated, and
    one that is killed is no longer counted."""

    async def body(device, machine):
        stream = await device.stream(-1)
        channel, dst, va = stream.channel, await device.allocate(64), 1 << 30
        await stream.synchronize()
        far = (1 << 32) - before - machine.model.channels[channel.index].executed
        machine.model.channels[channel.index].executed += far
        for log in (channel, channel._copies, channel._counts):
            log._methods += far
        await stream.memcpy_async(dst, va, 64)
        with pytest.raises(ChannelError, match="COPY_READ_FAULT"):
            await stream.synchronize()
        src = await device.allocate(64)
        src.fill(7)
        await device.space.map(src, va=va)
        await channel.resume()
        await stream.synchronize()
        assert (dst.read() == 7).all()
        await stream.memcpy_async(dst, 2 * va, 64)
        with pytest.raises(ChannelError, match="COPY_READ_FAULT"):
            await stream.synchronize()
        await device.channels.close(channel.index)
        assert await device.control.read_semaphore(0) == 0

    run(body, policy=PriorityPolicy(2))


def test_waits_beside_each_other_release_channels():
    """Two simultaneous waits for a stream release each of its former channels only once."""

    async def body(device, machine):
        stream = await device.stream(0)
        for priority in (-1, -2):
            await stream.set_priority(priority)
        await asyncio.gather(stream.synchronize(), stream.synchronize())
        assert [*device.channels.values()] == [stream.channel]
        await fills(device, stream)

    run(body, policy=PriorityPolicy(3, [1, 1, 1]))


def test_cancelled_closing_behind_another():
    """If the closing of a channel is cancelled before it begins, the channel is no longer kept for
    its stream."""

    async def body(device, machine):
        stream, other = await device.stream(), device.create_space("other")
        await close_stream_only(device, stream)
        await fills(device, await device.stream(space=other))

    run(body, machine=FakeMachine(Config(channels=1, memory_bytes=SPACE)))


async def counted(device: Device, count: int) -> list[Stream]:
    """Streams of the upper level, each in its own channel, halted in a counted copy."""
    streams = [await device.stream(-1) for _ in range(count)]
    for stream in streams:
        await stream.memcpy_async(await device.allocate(16), SPACE, 16)
        with pytest.raises(ChannelError, match="COPY_READ_FAULT"):
            await stream.synchronize()
    return streams


@pytest.mark.parametrize("kind", [PriorityPolicy, CountFirstPolicy])
def test_closed_channel_counts_no_copies(kind: type[PriorityPolicy]):
    """If a channel is closed before its copy ends, exactly that copy's count is taken back, once;
    copies of lower levels continue."""

    async def body(device, machine):
        low, values = await device.stream(0), machine.model.semaphores.values
        for _ in range(2):
            streams = await counted(device, 2)
            src, dst, expected = await data_of(device, 64)
            await low.memcpy_async(dst, src, 64)
            for left in (1, 0):
                assert values[0] == left + 1 and not await low.query()
                await device.channels.close(streams[left].channel.index)
                assert values[0] == left
            await low.synchronize()
            assert np.array_equal(dst.read(), expected)
        await fills(device, await device.stream(-1))
        assert values[0] == 0

    run(body, policy=kind(2, [1, 2]))


@pytest.mark.parametrize("turns", [*MOMENTS, *range(13, 20), 25, 35, 45, 50, 55])
def test_cancelled_closing_in_a_copy(turns: int):
    """The count is taken back once, even if the channel is closed in two calls."""

    async def body(device, machine):
        one, other = await counted(device, 2)
        await interrupt(device.channels.close(one.channel.index), turns)
        if one.channel.index in device.channels:
            await device.channels.close(one.channel.index)
        assert machine.model.semaphores.values[0] == 1
        await device.channels.close(other.channel.index)
        assert machine.model.semaphores.values[0] == 0

    run(body, policy=PriorityPolicy(2, [1, 2]))


@pytest.mark.parametrize("turns", [*range(20), *range(20, 200, 5)])
def test_cancelled_closing_without_a_count(turns: int):
    """A count that its semaphore no longer holds is not taken back, because the machine would
    refuse it. The channel is closed nevertheless, even in two calls."""

    async def body(device, machine):
        (one,) = await counted(device, 1)
        await device.control.write_semaphore(0, 0)
        await interrupt(device.channels.close(one.channel.index), turns)
        if one.channel.index in device.channels:
            await device.channels.close(one.channel.index)
        assert machine.model.semaphores.values[0] == 0
        await fills(device, await device.stream(-1))

    run(body, policy=PriorityPolicy(2, [1, 1]))


def additions(*addresses: int) -> Pushbuffer:
    """Add 1 to each of several semaphores, in as few methods as possible."""
    commands = Pushbuffer().add(addresses[0], 1)
    execute = commands.dwords[-1]
    for address in addresses[1:]:
        commands.inc(0, HostMethod.SEM_ADDR_LO, address & 0xFFFF_FFFF)
        commands.inc(0, HostMethod.SEM_EXECUTE, execute)
    return commands


@pytest.mark.parametrize("turns", range(0, 240, 3))
def test_cancelled_closing_with_several_counts(turns: int):
    """Each count is taken back once, also if the channel has executed fewer methods than it takes
    to take them back, and is closed in two calls."""

    async def body(device, machine):
        slots = [device.semaphore_address(slot) for slot in range(3)]
        channel = await device.channel(0)
        await channel.submit(additions(*slots))
        await channel.drain()
        values = machine.model.semaphores.values
        assert [values[slot] for slot in range(3)] == [1, 1, 1]
        await device.control.write_semaphore(1, 6)
        await interrupt(device.channels.close(0), turns)
        if 0 in device.channels:
            await device.channels.close(0)
        assert [values[slot] for slot in range(3)] == [0, 5, 0]

    run(body, policy=PriorityPolicy(4, [1, 1, 1, 1]))


def test_closing_with_a_lost_count():
    """A count that its semaphore no longer has does not keep another one from being taken back."""

    async def body(device, machine):
        channel = await device.channel(0)
        await channel.submit(additions(*[device.semaphore_address(slot) for slot in range(3)]))
        await channel.drain()
        await device.control.write_semaphore(0, 0)
        await device.control.write_semaphore(1, 0)
        await device.channels.close(0)
        assert [machine.model.semaphores.values[slot] for slot in range(3)] == [0, 0, 0]

    run(body, policy=PriorityPolicy(4, [1, 1, 1, 1]))


@pytest.mark.parametrize("turns", range(12))
def test_cancelled_skip_of_a_count(turns: int):
    """A refused addition that may have been skipped counts only if the machine later executes
    it."""

    async def body(device, machine):
        stream, slot = await device.stream(-1), device.semaphore_address(0)
        await device.control.write_semaphore(0, (1 << 32) - 1)
        await stream.submit(Pushbuffer().add(slot, 1))
        with pytest.raises(ChannelError, match="SEM_OVERFLOW"):
            await stream.synchronize()
        await device.control.write_semaphore(0, 1)
        await interrupt(stream.channel.skip(), turns)
        await stream.channel.resume()
        await stream.synchronize()
        await device.channels.close(stream.channel.index)
        assert machine.model.semaphores.values[0] == 1

    run(body, policy=PriorityPolicy(2, [1, 1]))


def test_long_work_outlasts_an_error_elsewhere():
    """A wait continues while its own channel makes progress, however long another channel is
    halted."""

    async def body(device, machine):
        good, bad = await device.stream(0), await device.stream(-1)
        await bad.submit(Pushbuffer().host(HostMethod.ILLEGAL))
        work = Pushbuffer().non_inc(0, HostMethod.NOP, *range(4000))
        for _ in range(30):
            await good.submit(work)
        await good.synchronize()
        assert isinstance(device.completion.first_failure(), ChannelError)

    run(body, policy=NoPriorityPolicy(2), settings=ChannelSettings(pushbuffer_bytes=1 << 20))


def test_error_elsewhere_ends_a_wait_that_it_holds_back():
    async def body(device, machine):
        low, high = await device.stream(0), await device.stream(-1)
        src, dst, _ = await data_of(device, 16)
        await high.memcpy_async(dst, SPACE, 16)
        await asyncio.sleep(0)
        await low.memcpy_async(dst, src, 16)
        with pytest.raises(ChannelError, match=f"channel {high.channel.index} halted"):
            await low.synchronize()

    run(body, policy=PriorityPolicy(2))


@pytest.mark.parametrize("turns", range(8))
def test_error_behind_a_cancelled_wait(turns: int):
    """An error is raised even if the wait that enables error interrupts again, after an earlier
    error elsewhere, was cancelled."""

    async def body(device, machine):
        stream, other = await device.stream(), await device.stream(-1)
        await other.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        illegal = Pushbuffer().host(HostMethod.ILLEGAL)
        await stream.submit(illegal)
        await interrupt(other.synchronize(), 60)
        assert stream.channel.failure is not None
        await stream.channel.skip()
        await interrupt(other.synchronize(), turns)
        await stream.submit(illegal)
        with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
            await stream.synchronize()

    run(body)


def test_full_ring_of_a_halted_channel():
    async def body(device, machine):
        stream = await device.stream()
        await stream.submit(Pushbuffer().host(HostMethod.ILLEGAL))
        with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
            for _ in range(10):
                await stream.submit(Pushbuffer().host(HostMethod.NOP))

    run(body, settings=ChannelSettings(ring_entries=4))


def test_full_ring_of_a_closed_channel():
    """A submission that waits for room fails once its channel is closed, with the memory that it
    would write freed."""

    async def body(device, machine):
        channel, waited_for = await device.channel(0), await device.allocate(16)
        await channel.submit(Pushbuffer().acquire(device.space.at(waited_for), 1))
        submissions = [
            asyncio.ensure_future(channel.submit(Pushbuffer().host(HostMethod.NOP)))
            for _ in range(5)
        ]
        for _ in range(20):
            await machine.wait_cycles(100)
        waiting = [one for one in submissions if not one.done()]
        assert 1 < len(waiting) < len(submissions)
        await channel.close()
        for one in waiting:
            with pytest.raises(DeviceError, match="channel 0 is closed"):
                await asyncio.wait_for(one, HANGS)

    run(body, settings=ChannelSettings(ring_entries=4))


@pytest.mark.parametrize("turns", range(4))
def test_cancelled_doorbell(turns: int):
    """Work whose submission was cancelled before the doorbell is executed at the next wait, even if
    nothing else is submitted."""

    async def body(device, machine):
        channel = await device.channel(3)
        await interrupt(channel.submit(Pushbuffer().host(HostMethod.NOP)), turns)
        await channel.drain()
        stream, other, event = await device.stream(), await device.stream(-1), device.event()
        await interrupt(event.record(stream), turns)
        await event.synchronize()
        await interrupt(event.record(stream), turns)
        await event.wait(other)
        await other.synchronize()
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await interrupt(task.fence_behind(), turns)
        await task.synchronize()
        for call in (stream.synchronize, lambda: stream.set_priority(-1)):
            await stream.submit(Pushbuffer().host(HostMethod.NOP))
            await interrupt(call(), turns)
            while not await stream.query():
                await machine.wait_cycles(100)

    run(body)


def test_closed_channel_leaves_its_successor_alone():
    """Calls of a closed channel fail; they do not change the channel that another address space has
    opened under its number meanwhile."""

    async def body(device, machine):
        stream, space = await device.stream(), device.create_space("other")
        old, index = stream.channel, stream.channel.index
        await device.channels.close(index)
        new = await device.channel(index, space)
        await device.channel(index + 1)  # so that the stream's launches have a context
        before = await device.control.read_channel(index, "CONFIG")
        await new.submit(Pushbuffer().host(HostMethod.ILLEGAL))
        await machine.wait_cycles(100)
        for call in (
            lambda: stream.launch(SPIN, 1, 1, {"CYCLES": 1}, priority=9),
            lambda: old.raise_priority(9),
            lambda: old.set_slice(7),
            lambda: old.replace(HostMethod.NOP, 0),
            old.resume,
            old.skip,
        ):
            with pytest.raises(DeviceError, match=f"^channel {index} is closed$"):
                await call()
        assert await device.control.read_channel(index, "CONFIG") == before
        assert await device.control.read_channel(index, "SLICE") == new.settings.slice_cycles
        assert await new.check() is not None

    run(body)


def test_record_that_was_not_submitted():
    """A failed submission does not leave a fence value that is never released."""

    async def body(device, machine):
        stream, event = await device.stream(), device.event()
        await event.record(stream)
        await stream.synchronize()
        await stream.submit(Pushbuffer().host(HostMethod.ILLEGAL))
        with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
            for _ in range(10):
                await stream.submit(Pushbuffer().host(HostMethod.NOP))
        for submission in (stream.record_fence, lambda: event.record(stream)):
            with pytest.raises(ChannelError, match="METHOD_ILLEGAL"):
                await submission()
        assert event.query()
        await stream.channel.skip()
        await stream.channel.ring_doorbell()  # the model ignores it during a halt
        await stream.synchronize()

    run(body, settings=ChannelSettings(ring_entries=4))


def test_drain_times_out():
    async def body(device, machine):
        channel = await device.channel(1)
        await channel.submit(Pushbuffer().acquire(device.space.at(await device.allocate(16)), 1))
        with pytest.raises(ChannelTimeout, match=r"channel 1 made no progress for \d+ cycles; it"):
            await channel.drain(poll=10, patience=100)

    run(body)


def test_drain_beside_a_closing():
    """It does not wait for work that the closing has ended."""

    async def body(device, machine):
        channel = await device.channel(0)
        for _ in range(2):
            await channel.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        draining = asyncio.ensure_future(channel.drain())
        await machine.wait_cycles(100)
        await device.channels.close(0)
        with pytest.raises(DeviceError, match="channel 0 is closed"):
            await draining

    run(body)


def test_drain_of_a_closed_channel():
    """It does not wait for the channel's successor, which has halted."""

    async def body(device, machine):
        channel = await device.channel(0)
        await channel.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        draining = asyncio.ensure_future(channel.drain(poll=2000))
        await machine.wait_cycles(100)
        await device.channels.close(0)
        after = await device.channel(0)
        await after.submit(Pushbuffer().host(HostMethod.ILLEGAL))
        with pytest.raises(DeviceError, match="channel 0 is closed"):
            await asyncio.wait_for(draining, HANGS)

    run(body)


@pytest.mark.parametrize("all_", [True, False])
@pytest.mark.parametrize("waits_for", ["stream", "event", "device", "task"])
def test_waits_beside_a_closing(waits_for: str, all_: bool):
    """A wait for work of a channel ends with the closing of the channel, or of the device."""

    async def body(device, machine):
        stream, event = await device.stream(), device.event()
        await stream.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        await event.record(stream)
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        waited = {"stream": stream, "event": event, "device": device, "task": task}[waits_for]
        waiting = asyncio.ensure_future(waited.synchronize())
        await machine.wait_cycles(100)
        await (device.close() if all_ else device.channels.close(stream.channel.index))
        refusal = (
            (TaskLost, "has ended") if waits_for == "task" else (DeviceError, "channel 0 is closed")
        )
        with pytest.raises(refusal[0], match=refusal[1]):
            await asyncio.wait_for(waiting, HANGS)

    run(body)


@IN_PROCESS
def test_cpu_releases(way: Way):
    async def body(device, machine):
        stream = await device.stream()
        flag = await device.allocate(16)
        flag.fill(0)
        await stream.submit(Pushbuffer().acquire(device.space.at(flag), 5))
        waiting = asyncio.ensure_future(stream.synchronize())
        await machine.wait_cycles(50)
        assert not waiting.done()
        flag.write(np.array([5], np.uint32))
        await waiting

    way.run(body)


def test_semaphore_operations_by_copy():
    async def body(device, machine):
        stream = await device.stream()
        slot = device.semaphore_address(40)
        commands = Pushbuffer().reduce(slot, 9, Reduction.IMAX).reduce(slot, 3, Reduction.IXOR)
        await stream.submit(commands)
        await stream.synchronize()
        assert await device.control.read_semaphore(40) == 10

    run(body)


def test_channel_settings():
    assert ChannelSettings().acquire == 2 | 2 << 7
    timed = ChannelSettings(acquire_timeout_ns=10_000).acquire
    assert timed >> 31 == 1
    assert timed >> 15 & 0xFFFF == 10
    long = ChannelSettings(acquire_timeout_ns=1 << 40).acquire
    assert (long >> 15 & 0xFFFF) << (long >> 11 & 15) == 1 << 30
    settings: dict[str, Any] = {
        "slice_cycles": 0,
        "ring_entries": 3,
        "pushbuffer_bytes": 20,
        "priority": 64,
    }
    for name, wrong in settings.items():
        with pytest.raises(ValueError, match=name):
            ChannelSettings(**{name: wrong})
    for wrong in (-1, 1 << 60):
        with pytest.raises(ValueError, match=rf"acquire_timeout_ns = {wrong} is outside 0 … "):
            ChannelSettings(acquire_timeout_ns=wrong)


@pytest.mark.parametrize(
    ("make", "value", "name"),
    [
        (lambda x: ChannelSettings(slice_cycles=x), 1.5, "slice_cycles"),
        (lambda x: ChannelSettings(ring_entries=x), 4.0, "ring_entries"),
        (lambda x: GroupSettings(slice_ns=x), 1e6, "slice_ns"),
        (lambda x: ComputeSettings(slice_cycles=x), 1.5, "slice_cycles"),
        (lambda x: ServerSettings(depth=x), 1.5, "depth"),
        (lambda x: ServerSettings(memory_each=x), 8192.0, "memory_each"),
        (lambda x: ServerSettings(weights={"a": x}), 1.5, "weight of 'a'"),
        (lambda x: ServerSettings(priorities={"a": x}), 1.5, "priority of 'a'"),
        (lambda x: PriorityPolicy(x), 2.0, "levels"),
        (lambda x: PriorityPolicy(2, [x, 1]), 1.5, "channels_per_level"),
        (lambda x: PriorityPolicy(2, stream_priorities=x), 1.5, "stream_priorities"),
        (lambda x: Pushbuffer().immediate(0, 4, x), 1.5, "Header.count"),
        (lambda x: Pushbuffer().launch(flush=x), 0.5, "CopyLaunch.flush"),
    ],
)
def test_fractions_as_settings(make, value: float, name: str):
    with pytest.raises(TypeError, match=f"^{re.escape(name)} = {value} is not a whole number$"):
        make(value)


def test_numbers_of_numpy():
    """They become ints: those of numpy have no `bit_length`, and lose bits in shifts."""
    for kind in (np.int64, np.uint16):
        timeout: Any = kind(5000)
        turn: Any = kind(50_000)
        found = ChannelSettings(acquire_timeout_ns=timeout).acquire
        assert found == ChannelSettings(acquire_timeout_ns=5000).acquire
        assert GroupSettings(slice_ns=turn).units == GroupSettings(slice_ns=50_000).units

    async def body(device, machine):
        channel = await device.channel(3, priority=np.uint8(5), ring_entries=np.uint8(16))
        found = await device.control.read_channel_fields(3, "CONFIG")
        assert found["PRIORITY"] == 5
        await device.control.write_channel(3, "CONFIG", **found | {"PRIORITY": np.uint8(6)})
        assert (await device.control.read_channel_fields(3, "CONFIG"))["PRIORITY"] == 6
        await channel.submit(Pushbuffer().host(HostMethod.SET_REFERENCE, 7))
        await channel.drain()
        assert await device.control.read_channel(3, "REFERENCE") == 7
        buffers = [await device.allocate(np.uint8(200)), await device.allocate(np.int8(100))]
        assert [buffer.size for buffer in buffers] == [200, 100]
        with pytest.raises(TypeError, match=r"size = 0\.5 is not a whole number"):
            await device.allocate(0.5)

    run(body)


@IN_PROCESS
def test_copies_of_numpy_sizes(way: Way):
    """Sizes and addresses of numpy are checked, and submitted, like ints: they do not wrap."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst, expected = await data_of(device, 200)
        va = device.space.at(dst)
        await stream.memcpy_async(np.uint64(va), src, np.uint8(200))
        await stream.synchronize()
        assert np.array_equal(dst.read(), expected)
        await stream.fill_async(np.int64(va), np.uint8(7), np.uint8(100), unit=np.uint8(4))
        await stream.memcpy_2d_async(
            *(va + 100, np.uint8(50), src, np.uint8(50)), np.uint8(50), np.uint8(2)
        )
        await stream.synchronize()
        assert dst.read().tobytes() == bytes([7, 0, 0, 0] * 25) + expected[:100].tobytes()
        pitch, height = np.int32(1 << 16), np.int32((1 << 16) + 1)
        with pytest.raises(MemoryUseError, match="are not inside"):
            await stream.memcpy_2d_async(dst, pitch, src, pitch, 10, height)
        for call in (
            lambda: stream.memcpy_async(dst, src, 1.0),
            lambda: stream.memcpy_2d_async(dst, 1, src, 1, 1, 1.0),
            lambda: stream.fill_async(dst, 1, 1.0),
            lambda: stream.memcpy_async(1.0, src, 1),
        ):
            with pytest.raises(TypeError, match=r"1\.0 is not a whole number"):
                await call()

    way.run(body)


def test_fractions():
    """Neither priorities nor limits, numbers of channels and semaphores, or values of registers are
    rounded."""

    async def body(device, machine):
        stream, channel = await device.stream(), await device.channel(0)
        buffer = await device.allocate(4096)
        fences = device.fences.of(device.space)
        free = len(fences._free)

        def launch(**options):
            return stream.launch(SPIN, 1, 32, {"COUNT": 1}, **options)

        for call, what in (
            (lambda: device.stream(-0.5), "priority = -0.5"),
            (lambda: stream.set_priority(-1.0), "priority = -1.0"),
            (lambda: device.channel(1.0), "channel = 1.0"),
            (lambda: channel.set_slice(7.5), "SLICE = 7.5"),
            (lambda: device.control.write("SEM_COUNTING", COUNT=1.0), "SEM_COUNTING.COUNT = 1.0"),
            (lambda: launch(priority=1.5), "priority = 1.5"),
            (lambda: launch(shared=1.5), "shared = 1.5"),
        ):
            with pytest.raises(TypeError, match=f"^{re.escape(what)} is not a whole number$"):
                await call()
        for call, what in (
            (lambda: device.set_limit("nesting-depth", 1.5), "nesting-depth = 1.5"),
            (lambda: device.set_limit("pending-launches", 2.0), "pending-launches = 2.0"),
            (lambda: device.semaphore_address(1.5), "semaphore = 1.5"),
            (lambda: device.space.at(buffer, 4.5), "offset = 4.5"),
            (lambda: device.spaces.create(size=float(1 << 30)), "size = 1073741824.0"),
        ):
            with pytest.raises(TypeError, match=f"^{re.escape(what)} is not a whole number$"):
                call()
        assert len(fences._free) == free
        device.set_limit("nesting-depth", np.int64(2))
        await stream.set_priority(np.int64(-1))
        assert (stream.priority, stream.device_priority) == (-1, 2)

    run(body)


def test_options_are_all_settings():
    """The options of a channel have the names and types of the settings that they replace."""
    assert get_type_hints(ChannelOptions) == get_type_hints(ChannelSettings)

    async def body(device, machine):
        options = {"ring_entries": 4, "early_waits": False, "slice_cycles": 77}
        settings = (await device.channel(0, **options)).settings
        assert asdict(settings) == asdict(ChannelSettings()) | options

    run(body)


def test_machine_is_told_no_priorities():
    """COPY-21: writes to a channel's registers are the same for all priorities except for memory
    addresses. Apart from semaphores, the driver writes the same registers with priorities as in the
    baseline."""

    class Listening(FakeMachine):
        def __init__(self):
            super().__init__()
            self.written: list[tuple[int, int]] = []

        async def write32(self, offset, value):
            self.written.append((offset, value))
            await super().write32(offset, value)

    async def body(device, machine):
        for number in range(8):
            stream = await device.stream(-(number // 2))
            src, dst, expected = await data_of(device, 500, number)
            await stream.memcpy_async(dst, src, 500)
            await stream.synchronize()
            assert np.array_equal(dst.read(), expected)

    def told(policy) -> tuple[list[list[tuple[str, int]]], set[str]]:
        """Returns names and values per channel, and all names of other registers."""
        machine = Listening()
        run(body, machine=machine, policy=policy)
        places = {"GP_BASE", "GP_BASE_HI", "USERD", "USERD_HI"}
        channels: list[list[tuple[str, int]]] = [[] for _ in range(8)]
        others = set()
        for offset, value in machine.written:
            block, name, index = machine._where[offset]
            if block == "CHANNEL":
                channels[index].append((name, 0 if name in places else value))
            elif block != "SEMAPHORE":
                others.add(name)
        return channels, others

    channels, others = told(PriorityPolicy(4))
    assert channels[0] and all(one == channels[0] for one in channels)
    assert (channels, others) == told(NoPriorityPolicy(4))


def test_acquire_timeout_is_rounded_up():
    """The time-out is rounded up to the next value that the register can express."""
    longest = 0xFFFF << 15
    wanted = {1, longest}
    for bits in range(1, 31):
        wanted |= {(1 << bits) + more for more in (-1, 0, 1)}
        wanted |= {(0x1FFFF << bits >> 1) + more for more in (-1, 0, 1)}
    for units in (units for units in wanted if units <= longest):
        word = ChannelSettings(acquire_timeout_ns=units * 1024 - 1).acquire
        exponent, mantissa = word >> 11 & 15, word >> 15 & 0xFFFF
        assert word >> 31 == 1
        assert units <= mantissa << exponent < units + (1 << exponent)
        assert exponent == 0 or mantissa >= 1 << 15
    for units in (longest + 1, 1 << 31):
        with pytest.raises(ValueError, match="is outside 0 … "):
            ChannelSettings(acquire_timeout_ns=units * 1024)


def test_error_in_words():
    error = ChannelError(3, Cause.COPY_READ_FAULT, 0x300, 4, 0x182, 0x1000, held=False)
    assert "more of its copies" not in str(error)
    error.more = True
    assert "; address 0x1000; more of its copies or tasks have failed since." in str(error)


def test_close():
    async def body(device, machine):
        await (await device.stream()).synchronize()
        used = device.memory.free_bytes
        await device.close()
        assert device.memory.free_bytes > used
        assert not machine.line

    run(body)


def test_closed_streams():
    """Closed streams take no more work, although their channel is open for others; closing them
    again has no effect. Closing a stream does not disturb a wait for all streams."""

    async def body(device, machine):
        closed, other, third = [await device.stream(one) for one in (0, 0, -1)]
        assert closed.channel is other.channel
        target = await device.allocate(64)
        await asyncio.gather(closed.close(), closed.close(), device.synchronize())
        for call in (
            closed.fill_async(target, 1, 64),
            closed.launch(SPIN, 1, 1, {"CYCLES": 1}),
            closed.set_priority(-1),
            closed.synchronize(),
            closed.query(),
            device.event().record(closed),
        ):
            with pytest.raises(StreamError, match="stream 0 was closed"):
                await call
        assert {*device.channels.values()} == {other.channel, third.channel}
        await closed.close()
        await fills(device, other)
        await device.close()
        await third.close()
        with pytest.raises(StreamError, match="stream 2 was closed"):
            await third.synchronize()

    run(body, policy=PriorityPolicy(2, [1, 1]))


def test_waiting_for_all_beside_a_closing():
    """A wait for all streams skips a stream that is closed before its turn."""

    async def body(device, machine):
        first, second = await device.stream(0), await device.stream(-1)
        async with first.turn():
            waiting = asyncio.ensure_future(device.synchronize())
            await machine.wait_cycles(1)
            await second.close()
        await waiting

    run(body, policy=PriorityPolicy(2, [1, 1]))


@pytest.mark.parametrize("late", range(14))
def test_submissions_beside_a_closing(late: int):
    """Work that others submit while a stream is being closed is executed, or refused; a wait for
    all streams ends."""

    async def body(device, machine):
        await device.stream()
        for submits_to in (Stream.fill_async, lambda *_: device.synchronize()):
            stream, buffer = await device.stream(-1), await device.allocate(64)
            closing = asyncio.ensure_future(stream.close())
            for _ in range(late):
                await asyncio.sleep(0)
            beside = asyncio.ensure_future(submits_to(stream, buffer, 7, 64))
            await closing
            with suppress(StreamError):
                await asyncio.wait_for(beside, HANGS)
                assert submits_to is not Stream.fill_async or (buffer.read() == 7).all()

    run(body)


def test_closing_beside_a_full_ring():
    """A submission that waits for room is executed, or refused, if its stream is closed meanwhile,
    although the channel stays open for another stream."""

    async def body(device, machine):
        other, stream = await device.stream(), await device.stream()
        assert other.channel is stream.channel
        gate, buffer = await device.allocate(16), await device.allocate(64)
        acquire = Pushbuffer().acquire(device.space.at(gate), 1)
        await stream.submit(acquire)
        closing = asyncio.ensure_future(stream.close())
        await machine.wait_cycles(100)
        submissions = [asyncio.ensure_future(stream.submit(acquire)) for _ in range(4)]
        submissions.append(asyncio.ensure_future(stream.fill_async(buffer, 7, 64)))
        await machine.wait_cycles(100)
        assert not submissions[-1].done()
        gate.write(np.array([1], np.uint32))
        await asyncio.wait_for(closing, HANGS)
        refused = sum(isinstance(one.exception(), StreamError) for one in submissions)
        assert refused or (buffer.read() == 7).all()
        assert stream.fence.value == stream.fence.submitted

    run(body, policy=PriorityPolicy(1, [1]), settings=ChannelSettings(ring_entries=4))


@pytest.mark.parametrize("turns", [*MOMENTS, *range(45, 60)])
def test_interrupted_closing_of_the_device(turns: int):
    """It can be repeated, and frees all memory."""

    async def body(device, machine):
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        await interrupt(device.close(), turns)
        await device.close()
        assert device.memory.free_bytes == device.memory.size - device.memory.base

    run(body)


def test_closed_again_after_a_failure(monkeypatch):
    """A device whose last fault record does not end in time can be closed later."""
    monkeypatch.setattr(fault_registers, "_PATIENCE_CYCLES", 50)

    async def body(device, machine):
        machine.faults.landing = 20
        with pytest.raises(FaultBufferError, match="has not ended for"):
            await device.close()
        machine.faults.landing = 0
        await device.close()
        assert device.memory.free_bytes == device.memory.size - device.memory.base

    run(body)


def test_closed_twice():
    """Closing a closed device does not touch the machine, which may have another driver."""

    async def body(device, machine):
        await device.close()
        later = await Device.open(machine)
        await device.close()
        await fills(later, await later.stream())
        await later.close()

    run(body)


@pytest.mark.parametrize("turns", MOMENTS)
def test_closed_by_two_at_once(turns: int):
    """Each of two calls returns once the device is closed, even if the other is interrupted."""

    async def body(device, machine):
        await (await device.stream()).synchronize()
        first = asyncio.ensure_future(device.close())
        await asyncio.sleep(0)
        await interrupt(device.close(), turns)
        second = asyncio.ensure_future(device.close())
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert device.memory.free_bytes == device.memory.size - device.memory.base
        await asyncio.gather(first, second)

    run(body)


def test_close_waits():
    """Memory of a channel stays allocated while the hardware may still write it."""

    async def body(device, machine):
        await (await device.stream()).synchronize()
        used = device.memory.free_bytes
        machine.linger, end = 1000, machine.now() + 1000
        closing = asyncio.create_task(device.close())
        while not closing.done():
            assert machine.now() > end or device.memory.free_bytes == used
            await machine.wait_cycles(1)
        assert machine.now() > end
        assert device.memory.free_bytes > used

    run(body)


def test_start_waits_for_what_was_before():
    """A channel that was left running is enabled only once it is idle."""

    async def body(device, machine):
        await device.channel(0)
        machine.linger, began = 1000, machine.now()
        resources = ChannelResources(device.control, device.memory, device.spaces, device.faults)
        heir = Channel(resources, device.space, 0, device.channels.settings)
        await heir.open(Pushbuffer().set_object())
        assert 1000 <= machine.now() - began < 2000
        await heir.drain()
        machine.linger = 1 << 30
        with pytest.raises(ChannelActive, match=r"channel 0 still uses its memory 1\d+ cycles"):
            await device.close()

    run(body, policy=NoPriorityPolicy(1))


def test_channel_that_does_not_come_to_rest():
    """A channel that does not become idle cannot be opened; the other channels are closed
    nevertheless."""

    async def body(device, machine):
        await device.channel(0)
        await device.channel(1)
        resources = ChannelResources(device.control, device.memory, device.spaces, device.faults)
        stray = Channel(resources, device.space, 2, device.channels.settings)
        await stray.open(Pushbuffer().set_object())
        machine.linger = 1 << 30
        room = device.memory.free_bytes
        for _ in range(2):
            with pytest.raises(ChannelActive, match="channel 2"):
                await device.channel(2)
        assert device.memory.free_bytes == room
        with pytest.raises(ChannelActive):
            await device.close()
        for index in range(2):
            status = await device.control.read_channel_fields(index, "STATUS")
            assert not status["ENABLED"]

    run(body, policy=NoPriorityPolicy(1))


async def pending(device: Device) -> int:
    """Returns INTR: pending interrupts, enabled or not."""
    return await device.control.read("INTR")


async def halt(device: Device) -> None:
    """Halt channel 0 with an error."""
    stream = await device.stream()
    await stream.submit(Pushbuffer().host(HostMethod.ILLEGAL))
    with pytest.raises(ChannelError):
        await stream.synchronize()


def test_close_clears_interrupts():
    async def body(device, machine):
        await halt(device)
        stream = await device.stream(-1)
        await stream.record_fence()
        await machine.wait_cycles(100)
        assert await pending(device) == GLOBAL["INTR"].pack(ERROR=1, NOTIFY=1)
        await device.close()
        assert await pending(device) == 0

    run(body, policy=NoPriorityPolicy(2))


def test_takes_the_machine_over():
    """Opening a device ends all halts, running work and interrupts of an earlier owner."""

    async def body(device, machine):
        await halt(device)
        stream = await device.stream(-1)
        await stream.record_fence()
        await stream.submit(Pushbuffer().acquire(device.semaphore_address(40), 1))
        await machine.wait_cycles(100)
        machine.linger = 1000
        heir = await Device.open(machine, NoPriorityPolicy(2))
        assert await pending(heir) == 0
        for index in range(2):
            status = await heir.control.read_channel_fields(index, "STATUS")
            assert not status["ENABLED"] and not status["HALTED"] and not status["ACTIVE"]
        await (await heir.stream()).synchronize()

    run(body, policy=NoPriorityPolicy(2))


@IN_PROCESS
def test_close_while_another_waits(way: Way):
    """A wait for a stream, or for all streams, ends if the stream is closed meanwhile."""

    async def body(device, machine):
        for waits_for in (Stream.synchronize, lambda _: device.synchronize()):
            stream, buffer = await device.stream(), await device.allocate(64)
            await stream.fill_async(buffer, 1, 64)
            waiting = asyncio.ensure_future(waits_for(stream))
            for _ in range(3):
                await asyncio.sleep(0)
            await stream.close()
            await asyncio.wait_for(waiting, HANGS)

    way.run(body)


def test_fence_of_a_dropped_launch():
    """A new stream is idle, even if its fence was given back earlier with an unreleased value."""

    async def body(device, machine):
        fences = device.fences.of(device.space)
        fence = await fences.take()
        fence.advance()
        fences.give(fence)
        stream = await device.stream()
        assert stream.fence is fence and stream.fence.reached(stream.fence.submitted)
        await stream.synchronize()
        await stream.close()

    run(body)


async def fills(device: Device, stream: Stream) -> None:
    """Check that a stream completes work."""
    buffer = await device.allocate(64, space=stream.space)
    await stream.fill_async(buffer, 7, 64)
    await stream.synchronize()
    assert (buffer.read() == 7).all()
    await device.free(buffer)


@pytest.mark.parametrize("turns", MOMENTS)
def test_cancelled_opening(turns: int):
    """The next stream does not get a half-opened channel if the opening is cancelled; neither
    memory nor a use of the address space remains."""

    async def body(device, machine):
        stream = await device.stream()
        await fills(device, stream)
        await stream.close()
        room = device.memory.free_bytes
        await interrupt(device.stream(), turns)
        stream = await device.stream()
        await fills(device, stream)
        await stream.close()
        for index in list(device.channels):  # of a stream that was opened and then dropped
            await device.channels.close(index)
        assert device.memory.free_bytes == room
        assert not device.spaces.users(device.space)

    run(body, machine=FakeMachine(Config(channels=1, memory_bytes=SPACE)))


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("turns", MOMENTS)
def test_cancelled_opening_in_another_space(turns: int, explicit: bool):
    """A channel that a cancelled call has half opened gives back the only ASID when another space
    needs it."""

    async def body(device, machine):
        other = device.create_space("other")
        opening = device.channel(1, other) if explicit else device.stream(-1, space=other)
        await interrupt(opening, turns)
        if 1 in device.channels._ready:
            await device.close_space(other)
        stream = await device.stream()
        await fills(device, stream)

    config = Config(channels=2, asids=1, sms=0, memory_bytes=SPACE)
    run(body, machine=FakeMachine(config), policy=PriorityPolicy(2, [1, 1]))


@pytest.mark.parametrize("turns", MOMENTS)
def test_cancelled_closing(turns: int):
    """The next stream, of any space, does not get a half-closed channel if the closing is
    cancelled."""

    async def body(device, machine):
        other = device.create_space("other")
        for space in (other, device.space):
            stream = await device.stream(space=space)
            await fills(device, stream)
            await stream.close()
        room = device.memory.free_bytes
        stream = await device.stream()
        await interrupt(stream.close(), turns)
        if stream in device._streams:
            await stream.close()
        stream = await device.stream(space=other)
        await fills(device, stream)
        await stream.close()
        assert device.memory.free_bytes == room
        await device.close_space(other)

    run(body, machine=FakeMachine(Config(channels=1, memory_bytes=SPACE)))


@pytest.mark.parametrize("turns", MOMENTS)
@pytest.mark.parametrize("own", [True, False])
def test_opening_beside_a_closing(own: bool, turns: int):
    """A stream created while its channel is being closed for the last stream gets an open channel,
    even in another address space."""

    async def body(device, machine):
        space = device.space if own else device.create_space("other")
        stream = await device.stream()
        await stream.synchronize()
        closing = asyncio.ensure_future(device.channels.close(stream.channel.index))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        again = await device.stream(space=space)
        await closing
        await fills(device, again)
        await again.close()

    run(body, machine=FakeMachine(Config(channels=1, memory_bytes=SPACE)))


@pytest.mark.parametrize("all_", [True, False])
def test_closing_beside_another(all_: bool):
    """A device, or an address space, can be closed while one of its channels is being closed for
    its last stream. A channel that another space has got meanwhile is not closed with the space."""

    async def body(device, machine):
        space, other = device.create_space("space"), device.create_space("other")
        await device.channel(0, space)
        stream = await device.stream(-1, space=space)
        machine.linger = 1000
        closing = asyncio.ensure_future(stream.close())
        while stream in device._streams:
            await asyncio.sleep(0)
        if all_:
            await device.close()
            await closing
            return
        await machine.wait_cycles(100)
        machine.linger = 10_000  # of channel 0
        opening = asyncio.ensure_future(device.stream(-1, space=other))
        await device.close_space(space)
        await closing
        await fills(device, await opening)

    machine = FakeMachine(Config(channels=2, memory_bytes=SPACE))
    run(body, machine=machine, policy=PriorityPolicy(2, [1, 1]))


@pytest.mark.parametrize("turns", MOMENTS)
def test_opening_that_fails_for_another(turns: int):
    """A stream gets an open channel even if another call, which was opening the channel, fails."""

    async def body(device, machine):
        failing = asyncio.ensure_future(device.channel(0))
        opening = asyncio.ensure_future(device.stream())
        for _ in range(turns):
            await asyncio.sleep(0)
        failing.cancel()
        await asyncio.wait([failing, opening])
        await fills(device, await opening)

    run(body, machine=FakeMachine(Config(channels=1, memory_bytes=SPACE)))
