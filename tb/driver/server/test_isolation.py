"""Wrong behaviour of applications, by mistake or on purpose, that others must not notice
(SHARE-9)."""

import asyncio
import random
from unittest.mock import Mock

import numpy as np
import pytest

from signalbox.driver.channel.channel import STOP_CYCLES, Channel
from signalbox.driver.channel.copy_replay import RepeatError
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.physical import MemoryUseError
from signalbox.driver.protocol.errors import CommandsRefused, ServerError
from signalbox.driver.protocol.messages import (
    PROTOCOL,
    Call,
    CloseChannel,
    CloseSpace,
    Done,
    Hello,
    Kill,
    Leave,
    Look,
    Map,
    Number,
    OpenChannel,
    Opened,
    OpenSpace,
    Protect,
    ReadTime,
    Resume,
    Settle,
    Submit,
    Unmap,
    Wait,
    Welcome,
    encode,
)
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.server.in_process import LocalLink
from signalbox.hw.errors import Cause
from signalbox.hw.methods import ComputeMethod, HostMethod
from signalbox.tb.driver.compute_bodies import addition, check
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.server.session import Session, serve
from signalbox.tb.simulation.runner import choose_seed

SEEDS = range(6)


async def both(session: Session) -> tuple[Device, Device, Stream]:
    """An attacker, and a well-behaved application with a stream."""
    attacker, victim = await session.client("attacker"), await session.client("victim")
    await attacker.stream()
    return attacker, victim, await victim.stream()


def test_memory_of_others():
    """An application can map, and submit commands from, only its own memory."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        call = session.links[attacker].connection.call
        own, other = attacker.memory, victim.memory
        for first, size in (
            (other.base, 4096),
            (0, 4096),
            (own.base - 4096, 4096),
            (own.end - 4096, 8192),
            (own.end, 4096),
            (1 << 40, 4096),
        ):
            request = Map(1, 0x5000_0000, first, size, 4096, read_only=False, atomics=True)
            with pytest.raises(MemoryUseError, match="are not memory of application 0 'attacker'"):
                await call(request, Done)
            with pytest.raises(MemoryUseError, match="are not memory of application 0"):
                await call(Submit(0, first, size // 4), Done)
        await session.works(victim, stream)

    serve(run)


def test_what_belongs_to_the_server():
    """Rings and checked commands lie in the client's space, but cannot be unmapped or changed."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        call = session.links[attacker].connection.call
        (space,) = session.server.applications[0].spaces.values()
        owned = [mapping for mapping in space if mapping.buffer is not None]
        assert len(owned) == 3
        for mapping in owned:
            for request in (Unmap(1, mapping.va), Protect(1, mapping.va, read_only=False)):
                with pytest.raises(MemoryUseError, match="has mapped nothing at"):
                    await call(request, Done)
        await session.works(victim, stream)
        await session.works(attacker, await attacker.stream())

    serve(run)


def test_channels_and_spaces_of_others():
    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        call, index = session.links[attacker].connection.call, stream.channel.index
        for request in (
            CloseChannel(index),
            Look(index),
            Resume(index, skip=True),
            Submit(index, attacker.memory.base, 1),
        ):
            with pytest.raises(DeviceError, match=f"'attacker'.* has no channel {index}"):
                await call(request, Done)
        for request in (CloseSpace(9), Kill(9, 0x100), Unmap(9, 0), Settle(9)):
            with pytest.raises(DeviceError, match="has no address space 9"):
                await call(request, Done)
        assert attacker.space.base == 1
        with pytest.raises(ValueError, match=r"priority = -6 is outside -5 … 0"):
            await call(OpenChannel(1, -6), Opened)
        for number in range(2, 9):
            await call(OpenSpace(number, 1 << 40), Done)
        with pytest.raises(DeviceError, match="has 8 address spaces already"):
            await call(OpenSpace(9, 1 << 40), Done)
        await session.works(victim, stream)

    serve(run)


@pytest.mark.parametrize(
    ("commands", "why"),
    [
        (Pushbuffer().limit_slots(1), "SET_CWD_SLOT_COUNT: it limits the slots of all"),
        (Pushbuffer().raw(0x2004_0001), "lacks 4 of its 4 dwords"),
        (Pushbuffer().raw(0xC000_0000), "dword 0"),
        (
            Pushbuffer().non_inc(1, ComputeMethod.SEND_SIGNALING_PCAS2_B, *[0] * 100),
            "100 launches, more than the 8",
        ),
    ],
)
def test_refused_commands(commands: Pushbuffer, why: str):
    """The sender of refused commands gets an error; its channel continues."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        own = await attacker.stream()
        await own.submit(commands)
        with pytest.raises(CommandsRefused, match=why) as refused:
            await own.synchronize()
        assert refused.value.cause is Cause.NONE
        await own.channel.resume()
        await session.works(attacker, own)
        await session.works(victim, stream)

    serve(run)


def test_refused_submissions_leave_the_queue(monkeypatch: pytest.MonkeyPatch):
    """However many submissions are refused, their queue places and memory are free for later
    ones."""

    async def run(session: Session) -> None:
        device = await session.client()
        own = await device.stream()
        refusing = Mock(side_effect=DeviceError("not now"))
        for _ in range(2 * session.server.settings.queue_each):
            with monkeypatch.context() as patch:
                patch.setattr(session.server._calls, "_submit", refusing)
                await own.submit(Pushbuffer().raw(*[0] * own.channel.largest_segment))
                with pytest.raises(CommandsRefused, match="not now") as refused:
                    await own.synchronize()
                assert refused.value.cause is Cause.NONE
            await own.channel.skip()
        await session.works(device, own)

    serve(run, queue_each=16)


def test_commands_that_change_behind_the_check():
    """The machine executes the checked commands, from a copy that the application cannot reach."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        served = next(iter(session.server.applications[0].channels.values()))
        own = await attacker.stream()
        commands = attacker.memory.allocate(4096)
        commands.write(Pushbuffer().host(HostMethod.SET_REFERENCE, 7).to_bytes())
        session.machine.paused = True
        connection = session.links[attacker].connection
        await connection.call(Submit(own.channel.index, commands.address, 2), Done)
        for _ in range(50):
            await session.machine.wait_cycles(10)
        assert served.taken or own.channel.index != served.channel.index
        commands.write(Pushbuffer().limit_slots(1).to_bytes())
        session.machine.paused = False
        for _ in range(50):
            await session.machine.wait_cycles(10)
        reference = session.machine.model.channels[own.channel.index].reference
        assert reference == 7
        commands.free()
        await session.works(victim, stream)

    serve(run)


def test_faults_halt_their_sender():
    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        own = await attacker.stream()
        target = await attacker.allocate(64)
        await own.memcpy_async(target, 0x6000_0000, 64)
        with pytest.raises(ChannelError, match=r"COPY_READ_FAULT.*'device'"):
            await own.synchronize()
        await session.works(victim, stream)
        await own.channel.skip()
        await session.works(attacker, own)

    serve(run)


@pytest.mark.parametrize("sizes", [(5, 5), (5, 16), (16, 5)])
def test_channels_are_kept_for_others(sizes: tuple[int, int]):
    """One application's streams and address spaces never take another's last channel or ASID."""

    async def run(session: Session) -> None:
        greedy = await session.client("greedy")
        taken = 0
        with pytest.raises(DeviceError, match="can have no channel for another address space"):
            while taken < 7:
                await greedy.stream(space=greedy.create_space(f"space {taken}"))
                taken += 1
        assert taken <= 3
        others = [await session.client(f"other {number}") for number in range(2)]
        for seed, device in enumerate(others):
            await session.works(device, await device.stream(), seed)

    channels, asids = sizes
    serve(run, config={"channels": channels, "asids": asids}, applications=3, channels_each=16)


def test_asids_are_kept_for_others():
    """If two applications ask for the last spare ASID at the same time, only one gets it."""

    async def run(session: Session) -> None:
        first, second = await session.client("first"), await session.client("second")
        for device in (first, second):
            await device.stream()
        again = [device.stream(space=device.create_space("other")) for device in (first, second)]
        found = await asyncio.gather(*again, return_exceptions=True)
        assert sum(isinstance(one, DeviceError) for one in found) == 1, found
        await session.works(await session.client("third"))

    serve(run, config={"channels": 16, "asids": 5}, applications=3)


@pytest.mark.parametrize(("channels", "asids"), [(4, 16), (16, 5)])
def test_slow_openings(monkeypatch: pytest.MonkeyPatch, channels: int, asids: int):
    """While the first channel of an application opens slowly, others open theirs, and no more than
    before. Channels or ASIDs are few."""

    async def run(session: Session) -> None:
        greedy = await session.client("greedy")
        await greedy.stream()
        slow, third = await session.client("slow"), await session.client("third")
        start, gate, waits = Channel._start, asyncio.Event(), asyncio.Event()

        async def slowly(channel: Channel) -> None:
            if "'slow'" in str(channel.space):
                waits.set()
                await gate.wait()
            await start(channel)

        monkeypatch.setattr(Channel, "_start", slowly)
        opening = asyncio.ensure_future(slow.stream())
        try:
            async with asyncio.timeout(HANGS / 4):
                await waits.wait()
                await greedy.stream(space=greedy.create_space("second"))
                with pytest.raises(DeviceError, match="no channel for another address space"):
                    await greedy.stream(space=greedy.create_space("third"))
                await session.works(third)
            assert not opening.done()
        finally:
            gate.set()
        await session.works(slow, await opening)

    serve(run, config={"channels": channels, "asids": asids}, applications=3)


def test_channel_that_does_not_close():
    """A channel whose closing has failed is given to no stream, and takes no submission; the other
    channels of its application go on, and a further call closes it."""

    async def run(session: Session) -> None:
        device, other = await session.client("first"), await session.client("other")
        streams = [await one.stream() for one in (other, device, device)]
        call, index = session.links[device].connection.call, streams[2].channel.index
        session.machine.linger = 4 * STOP_CYCLES
        with pytest.raises(ServerError, match=f"ChannelActive: channel {index} still"):
            await call(CloseChannel(index), Done)
        session.machine.linger = 0
        await session.machine.wait_cycles(4 * STOP_CYCLES)
        for _ in range(8):
            opened = await device.stream()
            assert opened.channel.index != index
            await session.works(device, opened)
            await opened.close()
        with pytest.raises(DeviceError, match=f"channel {index} is closed"):
            await call(Submit(index, device.memory.base, 1), Done)
        await call(CloseChannel(index), Done)
        assert [len(one.channels) for one in session.server.applications.values()] == [1, 1]
        await session.works(device, streams[1])
        await session.works(other, streams[0])

    serve(run, config={"channels": 4}, applications=2)


def test_calls_at_the_wrong_time():
    """The error names the application and the call."""

    async def run(session: Session) -> None:
        device = await session.client("early")
        call = session.links[device].connection.call
        with pytest.raises(ServerError, match=r"Hello came again: this is application 0 'early'"):
            await call(Hello(PROTOCOL, "early", 1), Welcome)
        early = session.server.applications[0]
        leaving = asyncio.ensure_future(call(Leave(drain=False), Done))
        while not early.leaving:
            await session.machine.wait_cycles(1)
        for _ in range(3):  # before it has left, and afterwards
            with pytest.raises(ServerError, match=r"ReadTime: application 0 'early' .* is leaving"):
                await call(ReadTime(), Number)
        assert await leaving == Done()
        session.kill(device)
        link = LocalLink(session.machine, session.inbox)
        with pytest.raises(ServerError, match="ReadTime came before Hello, the first call"):
            await link.connection.call(ReadTime(), Number)
        link.close()

    serve(run)


def test_too_many_calls():
    """An application with hundreds of calls in progress is ended."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        for number in range(300):
            session.links[attacker].send(encode(Call(10_000 + number, Wait(1))))
        await session.settle(1)
        await session.works(victim, stream)

    serve(run)


def test_long_repeats():
    """A copy that would keep the server busy is not repeated."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        own = await attacker.stream()
        await own.fill_async(0x7000_0000, 0, 1 << 21)
        with pytest.raises(ChannelError, match="COPY_WRITE_FAULT"):
            await own.synchronize()
        with pytest.raises(RepeatError, match="is not repeated"):
            await own.channel.resume()
        await own.channel.skip()
        source, target = attacker.memory.allocate_pages(4096), await attacker.allocate(64)
        lines = Pushbuffer().copy_2d(attacker.space.at(target), 0, 0x7000_0000, 0, 1, 4097)
        await own.submit(lines)
        with pytest.raises(ChannelError, match="COPY_READ_FAULT"):
            await own.synchronize()
        await attacker.space.map(source, va=0x7000_0000)
        with pytest.raises(RepeatError, match="4096 lines is not repeated"):
            await own.channel.resume()
        await own.channel.skip()
        await session.works(attacker, own)
        await session.works(victim, stream)

    serve(run)


def test_privileged_methods():
    """Channels of clients are not privileged."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        own = await attacker.stream()
        await own.submit(Pushbuffer().invalidate())
        with pytest.raises(ChannelError, match="METHOD_PRIVILEGED"):
            await own.synchronize()
        await session.works(victim, stream)

    serve(run)


def test_flood():
    """Pointers that do not fit an application's queue are refused; other applications get their
    turn."""

    async def run(session: Session) -> None:
        attacker, victim, stream = await both(session)
        own = await attacker.stream()
        commands = attacker.memory.allocate(4096)
        commands.write(Pushbuffer().host(HostMethod.NOP, 0).to_bytes())
        connection, refused = session.links[attacker].connection, 0
        session.machine.paused = True
        for _ in range(200):
            try:
                await connection.call(Submit(own.channel.index, commands.address, 2), Done)
            except DeviceError as error:
                assert "pointers on its queue" in str(error)
                refused += 1
        assert refused
        session.machine.paused = False
        await session.works(victim, stream)
        await session.works(attacker, own)

    serve(run, queue_each=32)


def test_long_waits_end_with_their_client():
    async def run(session: Session) -> None:
        device = await session.client()
        waiting = asyncio.ensure_future(
            session.links[device].connection.call(Wait((1 << 32) - 1), Done)
        )
        for _ in range(20):
            await session.machine.wait_cycles(10)
        session.kill(device)
        with pytest.raises(ServerError):
            await waiting
        await session.settle()

    serve(run)


def _request(rng: random.Random) -> bytes:
    """A message with random contents."""
    requests = (
        Submit(rng.randrange(20), rng.randrange(1 << 23), rng.randrange(1, 2000)),
        Map(
            rng.randrange(3),
            rng.randrange(1 << 49),
            rng.randrange(1, 1 << 24),
            4096,
            4096,
            False,
            True,
        ),
        Unmap(1, rng.randrange(1 << 49)),
        OpenSpace(rng.randrange(9), rng.randrange(1, 1 << 49)),
        CloseChannel(rng.randrange(20)),
        Resume(rng.randrange(20), skip=bool(rng.randrange(2))),
        Kill(rng.randrange(3), rng.randrange(1 << 40)),
        Look(rng.randrange(20)),
        ReadTime(),
    )
    return encode(Call(rng.randrange(1 << 32), rng.choice(requests)))


def _damaged(rng: random.Random, message: bytes) -> bytes:
    """The message, damaged or not, or other bytes."""
    if not rng.randrange(4):
        return rng.randbytes(40)
    data = bytearray(message)
    for _ in range(rng.choice((0, 0, 1, 2, 8))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.choice((len(data), len(data), rng.randrange(len(data))))])


@pytest.mark.parametrize("number", SEEDS)
def test_garbage(number: int):
    """Whatever an application sends, others continue to work. It has answers after senseless
    requests, and its connection ends after bytes that are no request."""
    rng = random.Random(seed := choose_seed() + number)
    print(f"seed {seed}")

    async def run(session: Session) -> None:
        victim = await session.client("victim")
        stream = await victim.stream()
        for attempt in range(10):
            attacker = await session.client("attacker")
            await attacker.stream()
            link, whole = session.links[attacker], attempt % 2 == 0
            try:
                for _ in range(rng.randrange(1, 20)):
                    request = _request(rng)
                    link.send(request if whole else _damaged(rng, request))
                    await session.machine.wait_cycles(rng.randrange(1, 50))
                if not whole:
                    link.send(b"\xff" * 40)
                await link.connection.call(ReadTime(), Number)
            except ServerError:
                assert not whole and not link.open
            else:
                assert whole, "it is still there"
            await session.works(victim, stream, attempt)
            session.kill(attacker)
            await session.settle(1)

    serve(run)


async def _busy(session: Session, device: Device, rng: random.Random) -> None:
    """An application with random work, until it is killed or has done enough."""
    space = device.create_space("other") if rng.randrange(2) else device.space
    streams = [await device.stream(space=one) for one in (device.space, space)]
    for _ in range(rng.randrange(3, 12)):
        stream = rng.choice(streams)
        match rng.randrange(4):
            case 0:
                task, args = await addition(device, stream, rng.randrange(1 << 20))
                if rng.randrange(2):
                    await task.synchronize()
                    check(args)
            case 1:
                bytes_ = np.frombuffer(rng.randbytes(rng.randrange(1, 5000)), np.uint8)
                source = await device.upload(bytes_, space=stream.space)
                target = await device.allocate(len(bytes_), space=stream.space)
                await stream.memcpy_async(target, source, len(bytes_))
                await stream.synchronize()
                assert np.array_equal(target.read(), bytes_)
                await device.free(source)
                await device.free(target)
            case 2:
                await stream.fill_async(await device.allocate(64, space=stream.space), 1, 64)
            case 3:
                await device.machine.wait_cycles(rng.randrange(1, 300))


@pytest.mark.parametrize("number", SEEDS)
def test_killed_at_any_moment(number: int):
    """Applications come, work, and are killed or leave; the others' results are right, and nothing
    remains of those that are gone (SHARE-8)."""
    rng = random.Random(seed := choose_seed() + number)
    print(f"seed {seed}")

    async def one(session: Session, own: random.Random, index: int) -> None:
        for _ in range(3):
            device = await session.client(f"app {index}")
            work = asyncio.ensure_future(_busy(session, device, own))
            if own.randrange(2):
                for _ in range(own.randrange(300)):
                    if work.done():
                        break
                    await session.machine.wait_cycles(own.randrange(1, 20))
                session.kill(device)
                try:
                    await work
                except ServerError:
                    pass
                await session.machine.wait_cycles(1)
            else:
                await work
                await device.close(drain=bool(own.randrange(2)))
            while any(a.name == f"app {index}" for a in session.server.applications.values()):
                await session.machine.wait_cycles(10)

    async def run(session: Session) -> None:
        seeds = [random.Random(rng.random()) for _ in range(4)]
        await asyncio.gather(*(one(session, own, n) for n, own in enumerate(seeds)))
        await session.settle()

    serve(run)
