"""The driver's runlists: order, lists in memory, errors (HOST-7)."""

import asyncio
import itertools
from collections.abc import Coroutine
from random import Random
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.interleave import GroupSettings, Interleave, interleaved
from signalbox.driver.channel.runlist import RunlistRefused
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelTimeout
from signalbox.hw.config import WINDOW_BASE, Config
from signalbox.hw.registers import GLOBAL
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine

LOW, MEDIUM, HIGH = Interleave


def machine(entries: int = 16) -> FakeMachine:
    """A machine with runlists of `entries` TSGs."""
    return FakeMachine(Config(memory_bytes=SPACE, runlist_entries=entries, sms=0))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


@pytest.mark.parametrize(("low", "medium", "high"), [*itertools.product(range(4), repeat=3)])
def test_levels(low: int, medium: int, high: int) -> None:
    """Turns per round of each level (spec 7); a group never has two turns in a row."""
    levels = {LOW: low, MEDIUM: medium, HIGH: high}
    groups = {
        (level, number): GroupSettings(level=level)
        for level, count in levels.items()
        for number in range(count)
    }
    order = interleaved(groups)
    wanted = {LOW: 1, MEDIUM: low or 1, HIGH: (medium + 1) * low or medium or 1}
    for group, settings in groups.items():
        assert order.count(group) == wanted[settings.level]
    if low or medium:
        for first, second in itertools.pairwise([*order, order[0]]):
            assert first != second or len({*order}) == 1


@pytest.mark.parametrize("seed", range(20))
def test_slices(seed: int) -> None:
    """A slice is rounded up to a value that can be expressed, by less than 1 in 128 plus one
    unit."""
    wanted = Random(seed).randrange(1, (255 << 15) * 1024) >> Random(seed).randrange(33) or 1
    timeout, scale = GroupSettings(wanted).slice_fields
    assert 0 < timeout < 256
    assert 0 <= scale < 16
    assert wanted <= (timeout << scale) * 1024 < wanted * 129 / 128 + 1024


@pytest.mark.parametrize("wanted", [0, -1, (255 << 15) * 1024 + 1])
def test_slice_out_of_range(wanted: int) -> None:
    with pytest.raises(ValueError, match=f"slice_ns = {wanted} is outside 1 … "):
        GroupSettings(wanted)


def test_level_out_of_range() -> None:
    """A group of an unknown level would have no turns."""
    one: Any = np.int64(1)
    assert GroupSettings(level=one).level is MEDIUM
    refused: dict[Any, type[Exception]] = {3: ValueError, -1: ValueError, 1.0: TypeError}
    for wanted, error in refused.items():
        with pytest.raises(error, match=f"{wanted} is not a"):
            GroupSettings(level=wanted)


def test_longest_slices() -> None:
    assert GroupSettings((255 << 15) * 1024).slice_fields == (255, 15)
    assert GroupSettings(255 * 1024 + 1).slice_fields == (128, 1)
    assert GroupSettings().slice_fields == (128, 3)


def test_spaces_are_groups() -> None:
    """Each address space with open channels is one TSG; closing the space ends the TSG."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        other = device.create_space("other")
        await device.channel(0)
        await device.channel(3, other)
        await device.channel(5)
        words = fake.runlist.groups
        assert [word.channels for word in words] == [0b100001, 0b1000]
        assert len({word.tsgid for word in words}) == 2
        assert all((word.timeout, word.scale) == (128, 3) for word in words)
        await device.close_space(other)
        assert [word.channels for word in fake.runlist.groups] == [0b100001]
        again = device.create_space("again")
        await device.channel(3, again)
        assert len({word.tsgid for word in fake.runlist.groups}) == 2
        await device.close()
        assert fake.runlist.words["RUNLIST_CONTROL"] == 0

    run(test())


def test_pause_of_polls() -> None:
    """HOST-5: the pause between polls is rounded up to one that the register can express; a new
    owner of the machine begins with the public one."""

    async def test() -> None:
        fake = machine()
        for _ in range(2):
            device = await Device.open(fake, scheduling="runlist")
            assert fake.runlist.words["RUNLIST_ACQ_PRETEST"] == 8
            cases: list[tuple[Any, int, int]] = [
                (0, 0, 0),
                (255, 255, 0),
                (np.int64(511), 128, 2),
                (800, 200, 2),
                (255 << 15, 255, 15),
            ]
            for wanted, timeout, scale in cases:
                await device.runlist.pause_polls(wanted)
                assert fake.runlist.words["RUNLIST_ACQ_PRETEST"] == scale << 12 | timeout
            for wrong in (-1, (255 << 15) + 1):
                with pytest.raises(ValueError, match=f"cycles = {wrong} is outside 0 … 8355840"):
                    await device.runlist.pause_polls(wrong)
            await device.close()

    run(test())


def test_configured() -> None:
    """Slice and level of a group take effect at once, and can be set before it has channels."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        first, second = device.create_space("first"), device.create_space("second")
        await device.runlist.configure(second, level=HIGH)
        for index, space in enumerate((device.space, first, second)):
            await device.channel(index, space)
        assert [word.channels for word in fake.runlist.groups] == [4, 1, 4, 2]
        await device.runlist.configure(first, slice_ns=5 * 1024)
        assert fake.runlist.groups[-1].timeout == 5
        assert device.runlist.settings(first) == GroupSettings(5 * 1024)
        assert device.runlist.settings(second).level is HIGH
        assert await device.runlist.turn() in {device.space, first, second}
        await device.close()

    run(test())


@pytest.mark.parametrize("seed", range(5))
def test_streams(seed: int) -> None:
    """Streams of several spaces work as with flat scheduling, while lists change."""

    async def test() -> None:
        numbers = Random(seed)
        device = await Device.open(machine(), scheduling="runlist")
        spaces = [device.space, *(device.create_space(name) for name in ("one", "two"))]
        streams = [await device.stream(-number, space=s) for number, s in enumerate(spaces)]
        work = []
        for _ in range(12):
            stream, size = numbers.choice(streams), numbers.randrange(1, 500)
            data = np.frombuffer(numbers.randbytes(size), np.uint8)
            src = await device.upload(data, space=stream.space)
            dst = await device.allocate(size, space=stream.space)
            await stream.memcpy_async(dst, src, size)
            level = numbers.choice([*Interleave])
            await device.runlist.configure(stream.space, level=level)
            work.append((dst, data))
        await device.synchronize()
        assert all(np.array_equal(dst.read(), data) for dst, data in work)
        await device.close()

    run(test())


def test_no_room() -> None:
    """A list that does not fit is refused before it is written, and changes nothing."""

    async def test() -> None:
        fake = machine(entries=2)
        device = await Device.open(fake, scheduling="runlist")
        spaces = [device.space, device.create_space("one"), device.create_space("two")]
        for index, space in enumerate(spaces[:2]):
            await device.channel(index, space)
        lists = len(fake.runlist.lists)
        with pytest.raises(
            DeviceError, match="has 3 turns of 3 groups, the machine has room for 2"
        ):
            await device.channel(2, spaces[2])
        assert 2 not in device.channels
        for space in spaces[:2]:
            await device.runlist.configure(space, level=MEDIUM)
        await device.runlist.configure(spaces[0], level=HIGH)
        with pytest.raises(DeviceError, match="room for 2"):
            await device.runlist.configure(spaces[2], level=LOW)
            await device.channel(2, spaces[2])
        assert len(fake.runlist.lists) == lists
        await device.close()

    run(test())


def test_refused() -> None:
    """A list that the machine refuses raises an error with the code and the entry; the channel is
    not opened."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        await device.channel(0)
        fake.runlist._config = Config(channels=1, runlist_entries=16, memory_bytes=SPACE)
        with pytest.raises(RunlistRefused, match="entry 2 of the runlist: CHANNEL"):
            await device.channel(1)
        assert 1 not in device.channels
        assert [word.channels for word in fake.runlist.groups] == [1]

    run(test())


def test_cancelled() -> None:
    """A cancelled call keeps the memory of a list that is being read, and leaves the settings
    unchanged; the next call waits for the reading."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        await device.channel(0)
        free = device.memory.free_bytes
        fake.runlist.stuck = True
        call = asyncio.create_task(device.runlist.configure(device.space, slice_ns=7 * 1024))
        while not device.runlist._reading:
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert device.memory.free_bytes < free
        assert device.runlist.settings(device.space) == GroupSettings()
        fake.runlist.stuck = False
        await device.runlist.configure(device.space, slice_ns=9 * 1024)
        assert fake.runlist.groups[0].timeout == 9
        assert device.memory.free_bytes == free
        await device.close()

    run(test())


@pytest.mark.parametrize("late", range(16, 28))
def test_closing_beside_an_opening(late: int) -> None:
    """The memory of a list that is being submitted is not freed by the closing of the device."""

    class Watched(FakeMachine):
        device: Device

        async def write32(self, offset: int, value: int) -> None:
            await super().write32(offset, value)
            if offset == GLOBAL.address("RUNLIST_SUBMIT") and value:
                reading = self.device.runlist._reading
                assert reading is not None and not reading.freed

    async def test() -> None:
        fake = Watched(Config(memory_bytes=SPACE, runlist_entries=16, sms=0))
        fake.device = await Device.open(fake, scheduling="runlist")
        opening = asyncio.ensure_future(fake.device.channel(0))
        for _ in range(late):
            await asyncio.sleep(0)
        await fake.device.close()
        await opening

    run(test())


def test_patience() -> None:
    """The patience with a channel includes the turns of other groups."""

    async def waited(channel: Channel) -> int:
        """Cycles after which a wait for a channel that waits for a semaphore is given up."""
        await channel.submit(Pushbuffer().acquire(WINDOW_BASE, 1))
        with pytest.raises(ChannelTimeout) as error:
            await channel.drain(poll=20, patience=500)
        return error.value.cycles

    async def test() -> None:
        device = await Device.open(machine(), scheduling="runlist")
        other = device.create_space("other")
        channels = [await device.channel(0), await device.channel(1, other)]
        slice_cycles = 103 * GroupSettings().units
        assert device.runlist.round_cycles == 2 * slice_cycles
        assert channels[0].turn_cycles == 4 * slice_cycles
        await device.runlist.configure(other, slice_ns=1)
        assert device.runlist.round_cycles == slice_cycles + 103
        await device.runlist.configure(device.space, slice_ns=9 * 1024)
        assert await waited(channels[0]) == 500 + 2 * (9 + 1) * 103
        flat = await Device.open(machine())
        channel = await flat.channel(0)
        assert channel.turn_cycles == 0 and await waited(channel) == 500

    run(test())


def test_hung() -> None:
    """The driver reports a machine that never reads the list."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        await device.channel(0)
        fake.runlist.stuck = True
        fake.wait_cycles = _fast(fake)
        with pytest.raises(RunlistRefused, match="has not been read for 1000000 cycles"):
            await device.runlist.configure(device.space, slice_ns=2048)

    run(test())


def _fast(fake: FakeMachine) -> Any:
    """A wait that takes no time."""

    async def wait(cycles: int) -> None:
        fake.cycle += cycles
        await asyncio.sleep(0)

    return wait


def test_flat() -> None:
    """Without "runlist" channels are scheduled flat, even after an owner that used a list; on a
    machine without runlists "runlist" is an error."""

    async def test() -> None:
        fake = machine()
        fake.runlist.write("RUNLIST_CONTROL", 1)
        fake.runlist.words["RUNLIST_STATUS"] = 0xC1
        device = await Device.open(fake, scheduling="runlist")
        assert fake.runlist.words["RUNLIST_STATUS"] == 0
        await device.close()
        fake.runlist.write("RUNLIST_CONTROL", 1)
        device = await Device.open(fake)
        assert fake.runlist.words["RUNLIST_CONTROL"] == 0
        with pytest.raises(DeviceError, match="scheduling is flat"):
            _ = device.runlist
        await device.close()
        with pytest.raises(DeviceError, match="the machine has no runlists"):
            await Device.open(FakeMachine(), scheduling="runlist")

    run(test())


def test_starved() -> None:
    """RUNLIST_ACQUIRE is reported once, also if it is set during a call."""

    async def test() -> None:
        fake = machine()
        device = await Device.open(fake, scheduling="runlist")
        assert not await device.runlist.starved()
        fake.runlist.words["RUNLIST_STATUS"] = 0xC0
        assert await device.runlist.starved()
        assert not await device.runlist.starved()
        looking = asyncio.ensure_future(device.runlist.starved())
        await fake.wait_cycles(1)
        await fake.wait_cycles(1)
        fake.runlist.words["RUNLIST_STATUS"] = 0xC0  # between reading and clearing
        assert [await looking, await device.runlist.starved()] == [False, True]
        await device.close()

    run(test())
