"""A server and its applications, on the fake machine (SHARE-1 … SHARE-8)."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from random import Random
from typing import Any
from unittest.mock import DEFAULT, AsyncMock, Mock, patch

import numpy as np
import pytest

from signalbox.driver.client.spaces import ClientSpaces
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.preemption import PreemptionError
from signalbox.driver.device import DeviceError
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.address_space import SpaceError
from signalbox.driver.memory.mmu_registers import MmuError
from signalbox.driver.memory.physical import OutOfMemory
from signalbox.driver.protocol.errors import ServerError
from signalbox.driver.protocol.messages import CALL_NUMBERS, IDS, Number, ReadTime
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.server.contexts import compute_settings
from signalbox.driver.server.journal import Kind
from signalbox.driver.server.server import POLL_CYCLES
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.status import status
from signalbox.hw.config import Config
from signalbox.hw.methods import HostMethod
from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.driver.compute_bodies import BODIES, Body, addition, check
from signalbox.tb.driver.fakes.machine import SPACE
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import MOMENTS, close_stream_only, interrupt
from signalbox.tb.driver.server.session import SMALL, Session, serve, session
from signalbox.tb.simulation.runner import choose_seed


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_driver_as_client(body: Body):
    """The driver's tests for its own machine run unchanged in a client (SHARE-1, SHARE-4)."""

    async def run(session: Session) -> None:
        device = await session.client()
        await body(device)
        await device.close()

    serve(run, applications=1, memory_each=5 << 20)


def test_one_universal_context():
    """The universal context is created with the first application; the others share it
    (SHARE-2)."""

    async def run(session: Session) -> None:
        server = session.server
        contexts = server.device.engine.contexts
        assert server.contexts.universal is None and not [*contexts]
        devices = []
        for number in range(3):
            devices.append(await session.client(f"app {number}"))
            await devices[-1].stream()
            assert [*contexts] == [server.contexts.universal]
        assert (
            server.contexts.universal is not None
            and len(contexts.spaces(server.contexts.universal)) == 3
        )
        for device in devices:
            await device.close()
        assert [*contexts] == [server.contexts.universal]

    serve(run)


@pytest.mark.parametrize(("each", "tasks"), [(False, 24), (True, 8)])
def test_room_in_the_lists(each: bool, tasks: int):
    """A context has room for the tasks of all its applications."""
    for launches in (8, 1000):
        settings = ServerSettings(applications=3, launches_each=launches, context_each=each)
        waiting = compute_settings(settings).waiting
        assert max(64, tasks * launches // 8) <= waiting < max(65, tasks * launches // 4)


def test_a_context_each():
    """The conventional way: each application has its own context, which is free again at its end,
    and its work completes (SHARE-11)."""

    async def run(session: Session) -> None:
        server = session.server
        contexts = server.device.engine.contexts
        devices = [await session.client(f"app {number}") for number in range(3)]
        streams = [await device.stream() for device in devices]
        other = await devices[0].stream(space=devices[0].create_space("other"))
        assert [len(contexts.spaces(one)) for one in contexts] == [2, 1, 1]
        assert all(one.level is PreemptionLevel.CTA for one in contexts)
        with pytest.raises(DeviceError, match="3 applications, and no more"):
            await session.client("late")
        for device, stream in zip(devices, streams, strict=True):
            await session.works(device, stream)
        await session.works(devices[0], other)
        await devices[0].close()
        session.kill(devices[1])
        await session.settle(1)
        assert len([*contexts]) == 1
        later = await session.client("late")
        await session.works(later)
        assert len([*contexts]) == 2 and server.contexts.universal is None

    serve(run, config={"contexts": 3}, context_each=True, level="cta")


def test_contexts_need_places():
    """CILP needs a machine that can save blocks."""
    with pytest.raises(PreemptionError):
        serve(lambda session: session.settle(), context_each=True)
    with pytest.raises(PreemptionError):
        ServerSettings(level="warp")


def test_what_each_has():
    """Each application has a queue, an ASID, an address space and a portion of memory of the
    requested size (SHARE-3)."""

    async def run(session: Session) -> None:
        sizes = 1 << 16, 3 << 14, 1 << 19
        devices = [await session.client(size=size) for size in sizes]
        streams = [await device.stream() for device in devices]
        applications = session.server.applications.values()
        assert session.machine.compute is not None
        session.machine.compute.hold = True
        for stream, count in zip(streams, (3, 1, 5), strict=True):
            for _ in range(count):
                await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, overlap=True)
        for _ in range(100):
            await session.machine.wait_cycles(10)
        assert [one.queued for one in applications] == [2, 0, 4]
        session.machine.compute.hold = False
        for stream in streams:
            await stream.synchronize()
        portions = sorted(
            (one.portion.memory.address, one.portion.memory.room) for one in applications
        )
        assert sorted(size for _, size in portions) == sorted(sizes)
        for (first, size), (second, _) in pairwise(portions):
            assert first + size <= second
        spaces = [space for one in applications for space in one.spaces.values()]
        assert len({space.asid for space in spaces} - {None}) == 3
        for device, size in zip(devices, sizes, strict=True):
            assert device.memory.free_bytes < size
            with pytest.raises(OutOfMemory):
                await device.allocate(size)
            await device.close()

    serve(run, launches_each=1)


def test_no_room():
    """One application too many, or one that requests too much memory, is refused; a later one is
    accepted."""

    async def run(session: Session) -> None:
        devices = [await session.client() for _ in range(2)]
        with pytest.raises(DeviceError, match="the server has 2 applications, and no more"):
            await session.client()
        await devices[0].close()
        with pytest.raises(ValueError, match="are more than the 524288 of one application"):
            await session.client(size=1 << 20)
        again = await session.client()
        for device in (again, devices[1]):
            await device.close()

    serve(run, applications=2)


def test_portions_are_cleared():
    """The memory of each new application is zero (SHARE-9)."""

    async def run(session: Session) -> None:
        for _ in range(3):
            device = await session.client()
            buffer = device.memory.allocate(1 << 17)
            assert not buffer.read().any()
            buffer.fill(0xA5)
            buffer.free()
            application = next(iter(session.server.applications.values()))
            system = application.portion.system
            assert not any(session.machine.memory_read(system.address, system.room))
            await session.works(device)
            await device.close()

    serve(run)


async def _work(session: Session, number: int, count: int) -> None:
    """An application that adds and copies."""
    device = await session.client(f"app {number}")
    stream = await device.stream()
    for seed in range(count):
        task, args = await addition(device, stream, 100 * number + seed)
        copy = await device.allocate(300)
        await stream.memcpy_async(copy, args["C"], 300)
        await stream.synchronize()
        await task.synchronize()
        check(args)
        assert np.array_equal(copy.read(), args["C"].read())
        for buffer in (copy, *(args[name] for name in "ABC")):
            await device.free(buffer)
    await device.close()


def test_several_at_once():
    """Applications that work at the same time do not affect each other (SHARE-7)."""

    async def run(session: Session) -> None:
        await asyncio.gather(*(_work(session, number, 4) for number in range(5)))

    serve(run)


def test_queues_in_turn():
    """Pointers that are on the queues together are handed on in turns, one of each queue, and each
    turn begins with another queue, whatever the order in which they came (SHARE-5)."""

    async def run(session: Session) -> None:
        devices = [await session.client(f"app {number}") for number in range(3)]
        streams = [await device.stream() for device in devices]
        await session.machine.wait_cycles(1000)
        session.journal.entries.clear()
        for stream in streams:
            for _ in range(6):  # without a pause, so that the server takes all at once
                await stream.channel.submit(Pushbuffer().host(HostMethod.NOP, 0))
        assert not session.journal.entries
        for stream in streams:
            await stream.synchronize()
        taken = [one.application for one in session.journal.entries if one.kind is Kind.HANDED_ON]
        turns = [taken[first : first + 3] for first in range(0, 18, 3)]
        assert turns == [[0, 1, 2], [1, 2, 0], [2, 0, 1]] * 2

    serve(run)


def test_held_back_pointers():
    """At most two tasks of an application are on the machine; the others wait in its queue, and
    none is lost or overtaken (SHARE-5)."""

    async def run(session: Session) -> None:
        compute = session.machine.compute
        assert compute is not None
        devices = [await session.client(f"app {number}") for number in range(3)]
        streams = [await device.stream() for device in devices]
        compute.hold = True
        tasks = []
        for _ in range(6):
            for stream in streams:
                tasks.append(await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, overlap=True))
        for _ in range(100):
            await session.machine.wait_cycles(10)
        applications = session.server.applications.values()
        assert [one.tasks for one in applications] == [2, 2, 2]
        assert [one.queued for one in applications] == [4, 4, 4]
        compute.hold = False
        most = 0
        waits = asyncio.gather(*(task.synchronize() for task in tasks))
        while not waits.done():
            most = max(most, len(compute.running))
            await session.machine.wait_cycles(1)
        await waits
        assert most == 6 and len(compute.over) == 18
        for number, stream in enumerate(streams):
            mine = [task.va for task in compute.over if task.channel == stream.channel.index]
            assert mine == [task.record for task in tasks[number::3]]
        ended = {stream.channel.index: 0 for stream in streams}
        for task in compute.over:
            ended[task.channel] += 1
            # Applications notice free places one after another, so some may be a task ahead.
            assert max(ended.values()) - min(ended.values()) <= 3, ended
        for device in devices:
            await device.close()

    serve(run, launches_each=2)


@pytest.mark.parametrize("waits_for", ["stream", "event", "device"])
def test_waits_beside_a_closing(waits_for: str):
    """A wait for work of a channel ends with the closing of the channel."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, event, gate = await device.stream(), device.event(), await device.allocate(16)
        await stream.submit(Pushbuffer().acquire(device.space.at(gate), 1))
        await event.record(stream)
        waited = {"stream": stream, "event": event, "device": device}[waits_for]
        waiting = asyncio.ensure_future(waited.synchronize())
        await session.machine.wait_cycles(100)
        await device.channels.close(stream.channel.index)
        with pytest.raises(DeviceError, match="is closed"):
            await asyncio.wait_for(waiting, HANGS)

    serve(run)


def test_closed_channel():
    """Submissions that wait for room in the queue fail once their channel is closed, and so do
    later ones."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, never = await device.stream(), await device.allocate(16)
        channel, nops = stream.channel, Pushbuffer().raw(*[0] * stream.channel.largest_segment)
        await channel.submit(Pushbuffer().acquire(device.space.at(never), 1))
        calls = [asyncio.ensure_future(channel.submit(nops)) for _ in range(12)]
        for _ in range(20):
            await session.machine.wait_cycles(100)
        waiting = [one for one in calls if not one.done()]
        assert 1 < len(waiting) < len(calls)
        await device.channels.close(channel.index)
        for one in (*waiting, channel.submit(nops)):
            with pytest.raises(DeviceError, match="channel 0 is closed"):
                await asyncio.wait_for(one, HANGS / 4)

    serve(run)


def test_many_calls_at_once():
    """A device can be used by any number of tasks at once; calls are made in order, and no more at
    a time than the server allows."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, machine = await device.stream(), device.machine
        nop = Pushbuffer().host(HostMethod.NOP, 0)
        calls = [asyncio.ensure_future(machine.wait_cycles(16)) for _ in range(300)]
        calls += [asyncio.ensure_future(stream.submit(nop)) for _ in range(300)]
        numbers = [session.links[device].connection.call(ReadTime(), Number) for _ in range(300)]
        times = [one.value for one in await asyncio.gather(*numbers)]
        await asyncio.gather(*calls)
        assert times == sorted(times)
        await session.works(device, stream)

    serve(run)


def test_values_that_fit_no_message():
    """They are refused by the client itself, and its connection stays. Numbers of numpy become
    ints."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, buffer = await device.stream(), device.memory.allocate(4096, align=4096)
        for call, why in (
            (device.space.map(buffer, page_size=-4096), "Map: .*>= 1 - at .*page"),
            (device.space.map(1 << 50, 4096), "Map: .*at .*pa"),
            (device.space.map(-4096, 4096), "Map: .*>= 0 - at .*pa"),
            (device.machine.wait_cycles(1 << 70), "Wait: "),
            (stream.channel.raise_priority(64), "RaisePriority: .*<= 63"),
            (session.client("less than nothing", -1), "Hello: .*>= 0 - at .*memory"),
        ):
            with pytest.raises(ValueError, match=why):
                await call
        await device.machine.wait_cycles(0)
        cycles = np.uint8(7)
        await device.machine.wait_cycles(cycles)  # pyright: ignore[reportArgumentType]
        await session.works(device, stream)

    serve(run)


def test_a_halted_channel_holds_only_itself():
    """After a failed copy, pointers of the application's other channels are still served."""

    async def run(session: Session) -> None:
        device = await session.client()
        first, second = await device.stream(), await device.stream()
        assert first.channel is not second.channel
        target = await device.allocate(64)
        await first.memcpy_async(target, 0x7000_0000, 64)
        for _ in range(3):
            await first.fill_async(target, 1, 64)
        for value in range(20):
            await second.fill_async(target, value, 64)
        await second.synchronize()
        assert (target.read() == 19).all()
        await device.close()

    serve(run)


@pytest.mark.parametrize("cycles", [0, 1, 5, 20, 100, 1000])
def test_left_by_two_at_once(cycles: int):
    """Each of two calls of `Device.close` returns once the application has left."""

    async def run(session: Session) -> None:
        device = await session.client()
        await session.works(device)

        async def close(after: int) -> None:
            await session.machine.wait_cycles(after)
            await device.close()
            assert not session.server.applications

        await asyncio.gather(close(1), close(1 + cycles))

    serve(run)


@pytest.mark.parametrize("drain", [True, False])
def test_leaving(drain: bool):
    """An application that leaves has its queued work executed or dropped, as it asks (SHARE-8)."""

    async def run(session: Session) -> None:
        other = await session.client("other")
        watching = await other.stream()
        device = await session.client("leaves")
        compute, stream = session.machine.compute, await device.stream()
        assert compute is not None
        compute.hold = True
        for _ in range(5):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, overlap=True)
        leaving = asyncio.ensure_future(device.close(drain=drain))
        for _ in range(50):
            await session.machine.wait_cycles(10)
        assert leaving.done() is not drain
        compute.hold = False
        await leaving
        completed = [task for task in compute.over if not task.failed]
        assert len(completed) == (5 if drain else 0)
        await session.works(other, watching)

    serve(run, launches_each=2)


def test_dying():
    """If an application's connection ends without notice, its tasks are killed and everything is
    returned (SHARE-8)."""

    async def run(session: Session) -> None:
        other = await session.client("other")
        device = await session.client("dies")
        stream, watching = await device.stream(), await other.stream()
        compute = session.machine.compute
        assert compute is not None
        compute.hold = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        for _ in range(30):
            await session.machine.wait_cycles(10)
        session.kill(device)
        with pytest.raises(ServerError, match="the connection has ended"):
            await task.synchronize()
        await session.settle(1)
        compute.hold = False
        await session.works(other, watching)

    serve(run)


def test_limits():
    """The server limits the nesting depth; clients have no access to registers, hardware channels
    and contexts."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream = await device.stream()
        device.set_limit(Limit.NESTING_DEPTH, 3)
        with pytest.raises(DeviceError, match="depth of 3 is more than the 2 of the server"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        device.set_limit(Limit.NESTING_DEPTH, 2)
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        with pytest.raises(DeviceError, match="registers are the server's"):
            await device.machine.read32(0)
        with pytest.raises(DeviceError, match="registers are the server's"):
            _ = device.control
        with pytest.raises(DeviceError, match="hardware channels are the server's"):
            await device.channel(0)
        with pytest.raises(DeviceError, match="contexts of a server's"):
            _ = device.engine.contexts
        await device.close()

    serve(run, depth=2)


def test_stream_priorities():
    """Launches have the device priority of their stream, as on a machine of one's own."""

    async def run(session: Session) -> None:
        device, compute = await session.client(), session.machine.compute
        assert compute is not None
        assert device.stream_priority_range() == (0, -5)
        device.set_limit(Limit.NESTING_DEPTH, 2)
        for priority, wanted in ((0, 0), (-1, 2), (-5, 10), (-9, 10)):
            stream = await device.stream(priority)
            assert stream.priority == max(priority, -5)
            await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
            assert compute.over[-1].priority == wanted

    serve(run, depth=2)


def test_time():
    """Events have the machine's time, which passes during waits."""

    async def run(session: Session) -> None:
        device = await session.client()
        before = await device.time_ns()
        await device.machine.wait_cycles(500)
        assert await device.time_ns() >= before + 500 * device.clock.cycle_ns
        stream, event = await device.stream(), device.event()
        await event.record(stream)
        await event.synchronize()
        assert before < event.time_ns <= await device.time_ns()
        assert abs(device.cycle_of(event.time_ns) - session.machine.now()) < 2000
        await device.close()

    serve(run)


def test_cancelling():
    """A client cancels its own task; its stream continues (PREEMPT-7)."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, compute = await device.stream(), session.machine.compute
        assert compute is not None
        compute.hold = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await task.cancel()
        compute.hold = False
        with pytest.raises(Exception, match="TASK_KILLED"):
            await task.synchronize()
        task, args = await addition(device, stream, 5)
        await task.synchronize()
        check(args)
        await device.close()

    serve(run)


def test_patience():
    """Tasks that never end are killed once they keep others waiting; alone they may run
    (SHARE-9)."""

    async def run(session: Session) -> None:
        compute = session.machine.compute
        assert compute is not None
        device, other = await session.client("endless"), await session.client("other")
        stream, waiting = await device.stream(), await other.stream()
        compute.hold = True
        endless = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        for _ in range(500):
            await session.machine.wait_cycles(10)
        assert compute.running
        late = await waiting.launch(SPIN, 1, 1, {"CYCLES": 1})
        for _ in range(100):
            await session.machine.wait_cycles(10)
        assert [task.channel for task in compute.over] == [stream.channel.index]
        compute.hold = False
        await late.synchronize()
        with pytest.raises(Exception, match="TASK_KILLED"):
            await endless.synchronize()
        for one in (device, other):
            await one.close()

    serve(run, patience_cycles=2000)


def test_priorities_do_not_block():
    """A blocked application of high priority does not block others (SHARE-6)."""

    async def run(session: Session) -> None:
        urgent, other = await session.client("urgent"), await session.client("other")
        stuck = await urgent.stream()
        target = await urgent.allocate(64)
        await stuck.memcpy_async(target, 0x7000_0000, 64)
        for _ in range(200):
            await session.machine.wait_cycles(5)
        for _ in range(4):
            await stuck.fill_async(target, 1, 64)
        await session.works(other)
        compute, held = session.machine.compute, await urgent.stream()
        assert compute is not None and held.channel is not stuck.channel
        compute.hold = True
        for _ in range(4):
            await held.launch(SPIN, 1, 1, {"CYCLES": 1}, overlap=True)
        copies = await other.stream()
        source, back = await other.allocate(64), await other.allocate(64)
        await copies.memcpy_async(back, source, 64)
        await copies.synchronize()
        compute.hold = False

    serve(run, policy="priority", priorities={"urgent": 5}, launches_each=2, patience_cycles=0)


def test_status():
    async def run(session: Session) -> None:
        assert "0 applications of 0 applications so far" in status(session.server)
        device = await session.client("first")
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        text = status(session.server)
        assert "1 application of 1 application so far" in text
        assert text.splitlines()[-1].startswith("0 'first'"), text
        await device.close()

    serve(run)


def left_alone(visit: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
    """Check that a server ends by itself after the visit."""

    async def main() -> None:
        config = Config(memory_bytes=SPACE, channels=16, contexts=1)
        async with session(ServerSettings(**SMALL), config, until_left=True) as one:
            await one.machine.wait_cycles(1000)
            assert not one.running.done()
            await visit(one)
            await asyncio.wait_for(one.running, HANGS)

    asyncio.run(main())


def test_until_the_last_has_left():
    """The server continues while one application is left, and ends after the last."""

    async def visit(one: Session) -> None:
        first, second = await one.client("first"), await one.client("second")
        await one.works(first)
        await first.close()
        await one.works(second)
        assert not one.running.done()
        one.kill(second)

    left_alone(visit)


def test_until_one_was_refused():
    """A refused client counts as a visit, after which the server ends."""

    async def visit(one: Session) -> None:
        with pytest.raises((OutOfMemory, ValueError)):
            await one.client("large", 1 << 40)

    left_alone(visit)


def test_until_only_lost_ones_are_left(monkeypatch: pytest.MonkeyPatch):
    """An application that cannot be stopped does not keep the server running."""

    async def visit(one: Session) -> None:
        device = await one.client()
        await one.works(device)

        monkeypatch.setattr(one.server, "_close", AsyncMock(side_effect=DeviceError("runs on")))
        one.kill(device)

    left_alone(visit)


def test_access_that_ends_at_the_second_try():
    """An application's memory is free again, although withdrawing the client's access failed at
    first."""

    async def run(one: Session) -> None:
        device = await one.client()
        peer = one.server.applications[0].peer
        withdraw = Mock(side_effect=[OSError("no mappings left"), DEFAULT], wraps=peer.withdraw)
        peer.withdraw = withdraw
        one.kill(device)
        await one.settle()
        assert withdraw.call_count == 2

    serve(run)


def test_access_that_does_not_end():
    """If withdrawing a client's access keeps failing, the memory stays reserved, because the client
    can still change it; the ending server still ends the others, in order."""

    async def run() -> None:
        config = Config(memory_bytes=SPACE, channels=16, contexts=1)
        async with session(ServerSettings(**SMALL), config) as one:
            for _ in range(3):
                await one.works(await one.client())
            first, *others = one.server.applications.values()
            first.peer.withdraw = Mock(side_effect=OSError("no mappings left"))
        assert [*one.server.applications.values()] == [first] and first.lost
        assert not first.portion.memory.freed and not first.channels
        ended = [entry.application for entry in one.journal.entries if entry.kind is Kind.GONE]
        assert ended == [other.number for other in others]
        assert all(other.portion.memory.freed for other in others)

    asyncio.run(run())


def test_pointers_are_taken_in_soon():
    """However many others are busy, a new pointer is passed on after at most one of them is
    polled."""

    async def run(one: Session) -> None:
        for number in range(24):
            device = await one.client(f"busy {number}")
            stream, gate = await device.stream(), await device.allocate(4096)
            await stream.submit(Pushbuffer().acquire(device.space.at(gate), 1))
        device = await one.client("quick")
        print(f"SIGNALBOX_SEED={(seed := choose_seed())}")
        stream, numbers, waits = await device.stream(), Random(seed), []
        for _ in range(30):
            await one.machine.wait_cycles(numbers.randrange(200))
            sent, before = one.machine.now(), len(one.journal.entries)
            await stream.submit(Pushbuffer().set_object())
            while Kind.HANDED_ON not in {entry.kind for entry in one.journal.entries[before:]}:
                await one.machine.wait_cycles(1)
            waits.append(one.machine.now() - sent)
        assert max(waits) < POLL_CYCLES + 80, waits
        assert max(waits) > 20, "always at once"

    each = {"memory_each": 1 << 14, "system_each": 1 << 16}
    serve(run, config={"channels": 32, "memory_bytes": SPACE}, applications=25, **each)


@pytest.mark.parametrize("turns", MOMENTS)
def test_interrupted_changes_of_a_space(turns: int):
    """After a change whose caller is cancelled, client and server agree on the mappings."""

    async def run(session: Session) -> None:
        device, va = await session.client(), 1 << 21
        room = device.memory.free_bytes
        await interrupt(device.allocate(4096), turns)
        buffer = await device.allocate(4096)
        space = device.create_space()
        await interrupt(space.map(buffer, va=va), turns)
        mapping = space.find(va) or await space.map(buffer, va=va)
        await interrupt(space.protect(mapping, read_only=True), turns)
        await space.protect(mapping, read_only=False)
        await interrupt(space.unmap(mapping), turns)
        if not mapping.unmapped:
            await space.unmap(mapping)
        await space.settle()
        await space.map(buffer, va=va)
        await interrupt(device.free(buffer), turns)
        if not buffer.freed:
            await device.free(buffer)
        await interrupt(device.close_space(space), turns)
        if not space.closed:
            await device.close_space(space)
        for own in list(device.space):  # of the call that ended before it could be cancelled
            assert own.buffer is not None
            await device.free(own.buffer)
        assert device.memory.free_bytes == room
        await session.works(device)

    serve(run)


@pytest.mark.parametrize("bits", [22, 32, 39, 40])
def test_size_of_a_space(bits: int):
    """A space of any size has addresses for the server's mappings, and for the client's own behind
    these."""

    async def run(session: Session) -> None:
        device = await session.client()
        space = device.spaces.create(size=1 << bits)
        stream, event = await device.stream(space=space), device.event()
        data = np.arange(100, dtype=np.uint32)
        source, target = (
            await device.upload(data, space=space),
            await device.allocate(400, space=space),
        )
        await stream.memcpy_async(target, source, data.nbytes, done=event)
        await event.synchronize()
        assert (target.read(np.uint32, 100) == data).all()

    serve(run, applications=1)


@pytest.mark.parametrize("interrupted", [False, True])
def test_refused_unmapping(monkeypatch: pytest.MonkeyPatch, interrupted: bool):
    """If the server refuses an unmapping because the machine does not answer, a later call frees
    the buffer."""

    async def run(session: Session) -> None:
        device = await session.client()
        await device.stream()
        room = device.memory.free_bytes
        buffer = await device.allocate(4096)
        with monkeypatch.context() as silent:
            mmu = session.server.owner.spaces._mmu
            silent.setattr(mmu, "invalidate_page", AsyncMock(side_effect=MmuError("silent")))
            silent.setattr(mmu, "invalidate_asid", mmu.invalidate_page)
            if interrupted:
                await interrupt(device.free(buffer), 1)
            for _ in range(2):
                with pytest.raises(ServerError, match="silent"):
                    await device.free(buffer)
        await device.free(buffer)
        assert device.memory.free_bytes == room
        await session.works(device)

    serve(run)


def test_interrupted_closing_behind_another():
    """If the closing of a channel is cancelled before it begins, the next opening closes the
    channel."""

    async def run(session: Session) -> None:
        device = await session.client()
        stream, other = await device.stream(), device.create_space("other")
        await close_stream_only(device, stream)
        await device.stream(space=other)

    serve(run, applications=1, channels_each=1)


@pytest.mark.parametrize("turns", MOMENTS)
def test_interrupted_opening_in_another_space(turns: int):
    """If the opening of a channel is cancelled, the next opening in another space closes the
    channel, the only one of the application."""

    async def run(session: Session) -> None:
        device = await session.client()
        other = device.create_space("other")
        await interrupt(device.stream(space=other), turns)
        if any(stream.space is other for stream in device._streams):
            await device.close_space(other)
        await session.works(device)

    serve(run, applications=1, channels_each=1)


@pytest.mark.parametrize("turns", MOMENTS)
def test_interrupted_changes_of_channels(turns: int):
    """After an opening or closing whose caller is cancelled, client and server agree on the open
    channels."""

    async def run(session: Session) -> None:
        device = await session.client()
        await interrupt(device.stream(), turns)
        stream = await device.stream()
        await session.works(device, stream)
        await interrupt(stream.close(), turns)
        other = await device.stream()
        await session.works(device, other)
        for one in list(device._streams):
            await one.close()
        for index in list(device.channels):
            await device.channels.close(index)
        assert not session.server.owner.channels

    serve(run, applications=1, channels_each=1)


def test_numbers_come_round():
    """A client that runs for long finds numbers for its address spaces and calls: those of ended
    ones are given again, those of open spaces are not."""

    async def run(session: Session) -> None:
        device = await session.client()
        spaces = device.spaces
        assert isinstance(spaces, ClientSpaces)
        streams = [await device.stream(space=spaces.create())]
        spaces._last, spaces._connection._count = IDS - 2, CALL_NUMBERS - 2
        for _ in range(3):
            streams.append(await device.stream(space=spaces.create()))
        assert len({stream.space.base for stream in streams}) == len(streams)
        for stream in streams:
            await session.works(device, stream)
        with patch.object(spaces, "_spaces", dict.fromkeys(range(IDS))):
            with pytest.raises(SpaceError, match="'much': 65536 address spaces are open already"):
                spaces.create("much")

    serve(run)
