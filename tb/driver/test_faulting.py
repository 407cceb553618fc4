"""Faults of channels: the access, and the channel's recovery (ASID-5)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.copy_replay import RepeatError
from signalbox.driver.channel.priority_policy import NoPriorityPolicy, PriorityPolicy
from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.fault_buffer import FaultBufferError, FaultBufferOverflow
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, LaunchTransfer, Reduction
from signalbox.hw.page_tables import AccessType, FaultType
from signalbox.hw.registers import GLOBAL
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import interrupt

PAGE = 4096
Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]


def run(body: Body, *, policy=None, config: Config | None = None) -> None:
    """Run `body` on a fresh machine. The device must close afterwards."""
    machine = FakeMachine(config)

    async def main():
        device = await Device.open(machine, policy or NoPriorityPolicy(2))
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()

    asyncio.run(main())


async def caught(stream: Stream) -> ChannelError:
    """Returns the error raised by `stream.synchronize`."""
    with pytest.raises(ChannelError) as info:
        await stream.synchronize()
    return info.value


def random(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def unmapped(device: Device, size: int) -> Buffer:
    """Returns a buffer without a mapping."""
    buffer = device.memory.allocate_pages(size)
    buffer.fill(0xEE)
    return buffer


async def map_page(space: AddressSpace, buffer: Buffer, at: int, page: int) -> None:
    """Map one page of a buffer that starts at `at`."""
    offset = page * PAGE
    await space.map(buffer.at(offset), PAGE, va=at + offset)


AT = 0x7000_0000
"""Address without a mapping at first."""


def test_copy_faults_name_the_access():
    async def body(device, machine):
        stream = await device.stream(name="mine")
        src, dst = await device.upload(random(64)), await device.allocate(64)
        kept = await device.upload(random(64), read_only=True, name="kept")
        cases = [
            (dst, AT, Cause.COPY_READ_FAULT, AccessType.READ, FaultType.PDE),
            (AT + 5, src, Cause.COPY_WRITE_FAULT, AccessType.WRITE, FaultType.PDE),
            (kept, src, Cause.COPY_WRITE_FAULT, AccessType.WRITE, FaultType.RO),
        ]
        for to, source, cause, access, why in cases:
            await stream.memcpy_async(to, source, 64)
            error = await caught(stream)
            assert error.cause is cause and error.repeatable and not error.held
            fault = error.fault
            assert fault is not None
            assert (fault.asid, fault.access, fault.cause) == (device.space.asid, access, why)
            assert (fault.space, fault.requester) == ("device", "copy engine 0 (client 3 of HUB)")
            assert fault.va == error.va // PAGE * PAGE
            for part in (str(fault), "resume() repeats the copy", "(ASID 0)", why.name):
                assert part in str(error)
            assert ("lies in mapping 'kept'" in str(error)) == (to is kept)
            await stream.channel.skip()
            await stream.synchronize()
        assert device.faults.unclaimed == ()
        assert not machine.faults.pending

    run(body)


@pytest.mark.parametrize("policy", [PriorityPolicy(2), NoPriorityPolicy(2)])
def test_fault_repair_resume(policy):
    """With the missing pages mapped one by one, all bytes arrive, and later work waits for the
    copy."""

    async def body(device, machine):
        stream, other = await device.stream(-1), await device.stream(0)
        data = random(3 * PAGE)
        src, dst = await device.upload(data), unmapped(device, 3 * PAGE)
        behind, done = await device.allocate(PAGE), device.event()
        behind.fill(0)
        await stream.memcpy_async(AT + 100, src, 3 * PAGE - 200, done=done)
        await stream.memcpy_async(behind, src, PAGE)
        await done.wait(other)
        for page in range(3):
            error = await caught(stream)
            assert error.cause is Cause.COPY_WRITE_FAULT
            assert error.fault is not None and error.fault.va // PAGE == AT // PAGE + page
            assert not behind.read().any() and not done.query()
            await stream.channel.resume()
            again = await caught(stream)
            assert again.fault is not None and again.fault.va // PAGE == AT // PAGE + page
            await map_page(device.space, dst, AT, page)
            await stream.channel.resume()
        await device.synchronize()
        assert done.query() and done.time_ns <= await device.time_ns()
        assert (dst.read(shape=100) == 0xEE).all() and (
            dst.read(offset=3 * PAGE - 100) == 0xEE
        ).all()
        assert np.array_equal(dst.read(offset=100, shape=3 * PAGE - 200), data[:-200])
        assert np.array_equal(behind.read(), data[:PAGE])
        assert machine.model.semaphores.values[0] == 0

    run(body, policy=policy)


def test_lines_are_repeated():
    async def body(device, machine):
        stream = await device.stream()
        data = random(10 * 300)
        src, dst = await device.upload(data), unmapped(device, PAGE)
        await stream.memcpy_2d_async(AT, 400, src, 300, 200, 10)
        await caught(stream)
        await map_page(device.space, dst, AT, 0)
        await stream.channel.resume()
        await stream.synchronize()
        image = dst.read(shape=4000).reshape(10, 400)
        assert np.array_equal(image[:, :200], data.reshape(10, 300)[:, :200])
        assert (image[:, 200:] == 0xEE).all()

    run(body)


@pytest.mark.parametrize("turns", range(24))
@pytest.mark.parametrize("first", [Channel.resume, Channel.skip])
def test_cancelled_resume(
    monkeypatch: pytest.MonkeyPatch,
    first: Callable[[Channel], Coroutine[Any, Any, None]],
    turns: int,
):
    """After a cancelled call, `resume` repeats the copy, or knows that its error may have been
    cleared."""

    async def body(device, machine):
        stream = await device.stream()
        source, target = (
            await device.upload(np.arange(64, dtype=np.uint8)),
            await device.allocate(64),
        )
        (mapping,) = target.mappings
        await device.space.unmap(mapping)
        await stream.memcpy_async(mapping.va, source, 64)
        with pytest.raises(ChannelError, match="COPY_WRITE_FAULT"):
            await stream.synchronize()
        await device.space.map(target, va=mapping.va)
        channel, clearing = device.channels[stream.channel.index], False
        write = device.control.write_channel

        async def note(index: int, name: str, value: int = 0, **fields: int) -> None:
            nonlocal clearing
            clearing |= name.startswith("INTR_")
            await write(index, name, value, **fields)

        monkeypatch.setattr(device.control, "write_channel", note)
        await interrupt(first(channel), turns)
        cleared = clearing
        try:
            await channel.resume()
        except RepeatError:
            assert cleared
            await channel.skip()
        await stream.synchronize()
        assert cleared or np.array_equal(target.read(), source.read())

    run(body)


def test_right_copy_is_repeated():
    """The right copy is repeated after many others and after refused and replaced methods."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), await device.allocate(64)
        late = unmapped(device, 64)
        for _ in range(40):
            await stream.memcpy_async(dst, src, 64)
        await stream.submit(Pushbuffer().copy(AT, AT, 0))
        assert (await caught(stream)).cause is Cause.COPY_ZERO
        await stream.channel.skip()
        await stream.submit(Pushbuffer().raw(0xC000_0000))
        assert (await caught(stream)).cause is Cause.HEADER_RESERVED
        await stream.channel.resume()
        await stream.memcpy_async(AT, src, 64)
        await stream.memcpy_async(AT + 64, dst, 64)
        await caught(stream)
        await map_page(device.space, late, AT, 0)
        await stream.channel.resume()
        await stream.synchronize()
        assert np.array_equal(late.read(), src.read())
        assert len(machine.copies()) == 41, "the second one was the machine's"

    run(body)


@pytest.mark.parametrize("slot", [None, 40])
def test_release_of_a_copy(slot: int | None):
    """A repeated copy performs its release, in memory and on chip; a copy with a reduction cannot
    be repeated."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), unmapped(device, 64)
        flag = await device.allocate(16)
        flag.fill(0)
        source = device.space.at(src)
        place = device.space.at(flag) if slot is None else device.semaphore_address(slot)
        await stream.submit(Pushbuffer().copy(AT, source, 64, CopyFence(place, 9, timestamp=False)))
        reduction = CopyFence(place, 1, timestamp=False, reduction=Reduction.IADD)
        await stream.submit(Pushbuffer().copy(AT + PAGE, source, 64, reduction))
        await caught(stream)
        await map_page(device.space, dst, AT, 0)
        await stream.channel.resume()
        error = await caught(stream)
        assert error.va == AT + PAGE
        await device.space.map(dst, va=AT + PAGE)
        with pytest.raises(RepeatError, match="ends with a reduction"):
            await stream.channel.resume()
        await stream.channel.skip()
        await stream.synchronize()
        found = (
            flag.read("<u4", 1)[0] if slot is None else await device.control.read_semaphore(slot)
        )
        assert found == 9

    run(body)


@pytest.mark.parametrize(
    ("slot", "beyond", "stamped", "wide", "unit"),
    [
        (None, 4095, False, False, 4),
        (None, 4092, False, True, 8),
        (None, 4088, True, False, 16),
        (40, 4, False, False, 16),
    ],
)
def test_misaligned_release(slot: int | None, beyond: int, stamped: bool, wide: bool, unit: int):
    """A copy is not repeated if the machine would refuse its release: nothing is written, in
    particular not beyond the semaphore's page."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), unmapped(device, 64)
        page = await device.allocate(2 * PAGE)
        page.fill(0)
        start = device.space.at(page) if slot is None else device.semaphore_address(slot)
        fence = CopyFence(start + beyond, 0x0101_0101, timestamp=stamped)
        await stream.submit(Pushbuffer().copy(AT, device.space.at(src), 64, fence, wide=wide))
        await caught(stream)
        before = dst.read()
        await map_page(device.space, dst, AT, 0)
        with pytest.raises(RepeatError, match=f"is not at a multiple of {unit} bytes"):
            await stream.channel.resume()
        assert not page.read().any() and np.array_equal(dst.read(), before)
        await stream.channel.skip()
        await stream.synchronize()

    run(body)


def test_release_that_faults():
    """If only a copy's release faults, the copy is complete, and the release follows once the page
    is mapped."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), await device.allocate(64)
        flag = unmapped(device, 16)
        await stream.submit(
            Pushbuffer().copy(device.space.at(dst), device.space.at(src), 64, CopyFence(AT, 7))
        )
        error = await caught(stream)
        assert error.cause is Cause.COPY_SEMAPHORE and error.fault is not None
        assert error.fault.requester == "semaphore unit (client 2 of HUB)"
        await map_page(device.space, flag, AT, 0)
        await stream.channel.resume()
        await stream.synchronize()
        assert flag.read("<u8", 1)[0] == 7 and flag.read("<u8", 1, 8)[0] > 0

    run(body)


def test_semaphore_fault_is_tried_again():
    async def body(device, machine):
        stream = await device.stream()
        flag = unmapped(device, 16)
        await stream.submit(Pushbuffer().release(AT, 5))
        error = await caught(stream)
        assert error.cause is Cause.SEM_FAULT and error.held and not error.repeatable
        assert error.fault is not None and error.fault.access is AccessType.WRITE
        await map_page(device.space, flag, AT, 0)
        await stream.channel.resume()
        await stream.synchronize()
        assert flag.read("<u4", 1)[0] == 5

    run(body)


def test_pushbuffer_that_is_not_mapped():
    async def body(device, machine):
        stream = await device.stream()
        await stream.channel.submit_segment(AT, Pushbuffer().host(HostMethod.NOP).dwords)
        error = await caught(stream)
        assert error.cause is Cause.FETCH_FAULT and error.fault is not None
        assert (error.fault.va, error.fault.requester) == (AT, "host (client 1 of HUB)")
        await stream.channel.resume()
        await stream.channel.ring_doorbell()
        await stream.synchronize()

    run(body)


def test_internals_are_read_only():
    """A stray copy cannot overwrite a ring or pushbuffers."""

    async def body(device, machine):
        stream = await device.stream()
        src = await device.upload(random(64))
        for mapping in [each for each in device.space if "channel 0" in each.name]:
            await stream.memcpy_async(mapping, src, 64)
            if mapping.name.startswith("USERD"):
                continue
            error = await caught(stream)
            assert error.fault is not None and error.fault.cause is FaultType.RO
            assert mapping.name in str(error)
            await stream.channel.skip()

    run(body)


def test_others_go_on():
    async def body(device, machine):
        bad, good = await device.stream(0), await device.stream(-1)
        src, dst = await device.upload(random(64)), await device.allocate(64)
        await bad.memcpy_async(AT, src, 64)
        await good.memcpy_async(dst, src, 64)
        await good.synchronize()
        assert np.array_equal(dst.read(), src.read())
        assert (await caught(bad)).fault is not None
        await bad.channel.skip()

    run(body)


def test_two_channels_fault():
    """Each channel gets its own record, even in one address space."""

    async def body(device, machine):
        streams = [await device.stream(-number) for number in range(2)]
        src = await device.upload(random(64))
        for number, stream in enumerate(streams):
            await stream.memcpy_async(AT + number * PAGE, src, 64)
        for number, stream in enumerate(streams):
            fault = (await caught(stream)).fault
            assert fault is not None and fault.va == AT + number * PAGE
            await stream.channel.skip()

    run(body)


def test_bursts_of_one_copy():
    """A copy with several faults claims all of its own and no others."""

    async def body(device, machine):
        stream, asid = await device.stream(), device.space.asid
        src = await device.upload(random(3 * PAGE))
        await stream.memcpy_async(AT, src, 3 * PAGE)
        while not machine.model.channels[0].halted:
            await machine.wait_cycles(1)
        for page, access, client in ((1, 1, 3), (2, 1, 3), (3, 1, 3), (1, 1, 4), (2, 1, 2)):
            machine.faults.translate(asid, AT + page * PAGE, access, client)
        fault = (await caught(stream)).fault
        assert fault is not None and fault.va == AT
        left = [(fault.va - AT) // PAGE for fault in device.faults.unclaimed]
        assert left == [3, 1, 2]
        await stream.channel.skip()

    run(body)


def test_lost_record():
    """A copy can be repeated without its fault record."""

    async def body(device, machine):
        stream = await device.stream()
        src, dst = await device.upload(random(64)), unmapped(device, 64)
        machine.faults.words["FAULT_SIZE"] &= (1 << 31) - 1
        await stream.memcpy_async(AT, src, 64)
        error = await caught(stream)
        assert error.fault is None and error.repeatable
        await map_page(device.space, dst, AT, 0)
        await stream.channel.resume()
        await stream.synchronize()
        assert np.array_equal(dst.read(), src.read())

    run(body)


def test_overflow():
    """An overflow is reported once, and later faults are recorded again."""

    async def body(device, machine):
        stream = await device.stream()
        machine.paused = True
        for page in range(200):
            machine.faults.translate(5, page * PAGE, 0, 3)
        machine.paused = False
        with pytest.raises(FaultBufferOverflow, match="of 128 records was full"):
            await stream.synchronize()
        await stream.synchronize()
        assert len(device.faults.unclaimed) == 64, "the newest records are kept"
        assert not machine.faults.pending
        await stream.memcpy_async(AT, AT, 64)
        assert (await caught(stream)).fault is not None
        await stream.channel.skip()

    run(body)


def test_record_that_could_not_be_written():
    async def body(device, machine):
        stream = await device.stream()
        machine.faults.words["FAULT_STATUS"] = GLOBAL["FAULT_STATUS"].pack(FAULT=1, BUS=1)
        with pytest.raises(FaultBufferError, match="could not write a fault record"):
            await stream.synchronize()
        await stream.synchronize()

    run(body)


def test_unbound():
    """An access through an unbound ASID faults."""

    async def body(device, machine):
        stream = await device.stream()
        asid = device.space.asid
        machine.translator.unbind(asid)
        await stream.channel.ring_doorbell()
        error = await stream.channel.check()
        assert error is not None and error.cause is Cause.FETCH_FAULT
        fault = error.fault
        assert fault is not None and (fault.space, fault.base) == (None, None)
        assert "ASID 0, to which no address space is bound," in str(error)
        machine.translator.bind(asid, device.space.base, device.space.limit)
        await stream.channel.resume()
        await stream.synchronize()

    run(body, config=Config(memory_bytes=SPACE, asids=4))


def test_faults_stay_with_their_space():
    """An unclaimed fault of a closed space is not reported to the next holder of its ASID."""

    async def body(device, machine):
        first = device.create_space("first")
        stream = await device.stream(space=first)
        asid = first.asid
        await stream.synchronize()
        for page in range(2):
            machine.faults.translate(asid, AT + page * PAGE, 1, 3)
            if not page:
                await device.faults.read()
        await device.close_space(first)
        asids = []
        while asid not in asids:
            assert len(asids) < device.info.asids
            space = device.create_space("later")
            await device.stream(space=space)
            asids.append(space.asid)
            if space.asid != asid:
                await device.close_space(space)
        assert device.faults.unclaimed == ()

    run(body)


def test_resume_behind_a_pipelined_copy_of_the_same_page():
    """Of pipelined copies that access the faulting page, the one with the failed kind of access is
    repeated: the first one reads the page, which it may; the second one writes it."""

    async def body(device, machine):
        channel = await device.channel(1, device.space)
        content, others = random(PAGE), random(2 * PAGE)[:PAGE]
        page = await device.upload(content, read_only=True)
        source, copied = await device.upload(others), await device.allocate(PAGE)
        at, src, dst = (device.space.at(one) for one in (page, source, copied))
        await channel.submit(
            Pushbuffer()
            .copy(dst, at, PAGE, transfer=LaunchTransfer.PIPELINED)
            .copy(at, src, PAGE, transfer=LaunchTransfer.PIPELINED)
        )
        with pytest.raises(ChannelError) as info:
            await channel.drain()
        assert info.value.cause is Cause.COPY_WRITE_FAULT
        await device.space.protect(device.space.mapping(page), read_only=False)
        await channel.resume()
        await channel.drain()
        assert (copied.read() == content).all()
        assert (page.read() == others).all(), "the failed copy was not repeated"

    run(body)
