"""Cancelled tasks, streams and contexts, and work that continues (PREEMPT-7)."""

import asyncio
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from signalbox.driver.channel.channel import Channel
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.contexts import ContextError
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError, ChannelTimeout
from signalbox.driver.faults.task_error import TaskError, TaskLost
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.errors import Cause
from signalbox.tb.driver.fakes.compute import Refused
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.driver.interruption import interrupt
from signalbox.tb.driver.test_task_errors import STORE, goes_on, run

NOTHING = Kernel("nothing", "exit", {})


async def launch(stream: Stream, count: int = 1, *, overlap: bool = False) -> list[Task]:
    return [await stream.launch(NOTHING, 1, 1, {}, overlap=overlap) for _ in range(count)]


async def held(
    device: Device, machine: FakeMachine, count: int = 1, *, overlap: bool = False
) -> tuple[Stream, list[Task]]:
    """A stream with `count` tasks, on a machine that executes nothing until `compute.hold` ends."""
    assert machine.compute is not None
    stream = await device.stream()
    machine.compute.hold = True
    tasks = await launch(stream, count, overlap=overlap)
    await settle(machine)
    return stream, tasks


async def settle(machine: FakeMachine) -> None:
    """Wait until the machine can do nothing more."""
    await machine.wait_cycles(2000)


def killed(task: Task) -> bool:
    """Whether the task was killed and is over."""
    assert task.over
    try:
        task.query()
    except TaskError as error:
        assert error.cause is Cause.TASK_KILLED and error.record == task.record
        return True
    return False


def test_running_task():
    """A cancelled task ends with its own error, and the stream continues after it."""

    async def body(device, machine):
        stream, (first, second) = await held(device, machine, 2)
        await first.cancel()
        assert killed(first) and not second.over
        with pytest.raises(TaskError, match="a kill request named the task"):
            await first.synchronize()
        machine.compute.hold = False
        await second.synchronize()
        assert stream.channel.failure is None
        await goes_on(device, stream)

    run(body)


def test_ended_task():
    """Cancelling a task that has ended changes nothing."""

    async def body(device, machine):
        stream = await device.stream()
        (task,) = await launch(stream)
        await task.synchronize()
        await task.cancel()
        assert not killed(task)

    run(body)


@pytest.mark.parametrize("overlap", [False, True])
def test_stream(overlap: bool):
    """All tasks of a cancelled stream end, including those still in the channel. Tasks of another
    stream in the same channel do not, and waits for them are not disturbed."""

    async def body(device, machine):
        stream, other = await device.stream(), await device.stream()
        assert stream.channel is other.channel
        machine.compute.hold = True
        (before,) = await launch(other)
        mine = await launch(stream, 5, overlap=overlap)
        (behind,) = await launch(other)
        await settle(machine)
        waits = asyncio.ensure_future(behind.synchronize())
        cancels = asyncio.ensure_future(stream.cancel())
        await settle(machine)
        assert not before.over
        machine.compute.hold = overlap
        await cancels
        assert all(task.over for task in mine)
        assert not overlap or all(map(killed, mine))
        machine.compute.hold = False
        await waits
        assert not killed(before) and not killed(behind)
        await stream.synchronize()

    run(body, channels=1)


def test_refused_launch(monkeypatch):
    """A launch refused because a kill request names its task is not repeated."""

    async def body(device, machine):
        stream, (first, second, third) = await held(device, machine, 3, overlap=True)

        def refuse(*launch: object) -> None:
            monkeypatch.undo()
            raise Refused(Cause.TASK_KILLED)

        await first.cancel()
        await second.cancel()
        monkeypatch.setattr(machine.compute, "accept", refuse)
        late = (await launch(stream, overlap=True))[0]
        await late.cancel()
        assert killed(late) and not third.over
        machine.compute.hold = False
        await third.synchronize()
        assert len(machine.compute.over) == 3
        await goes_on(device, stream)

    run(body)


def test_moved_stream():
    """Cancelling a stream also cancels its tasks in an earlier channel."""

    async def body(device, machine):
        stream, (first,) = await held(device, machine)
        old = stream.channel
        await stream.set_priority(-1)
        assert stream.channel is not old
        await stream.cancel()
        assert killed(first)
        machine.compute.hold = False
        await goes_on(device, stream)

    run(body, levels=2)


def test_context():
    """Killing a context ends the tasks of all its spaces, but not those of another context."""

    async def body(device, machine):
        contexts = [await device.engine.contexts.create(name) for name in ("mine", "other")]
        spaces = [device.create_space(str(n), context=contexts[n == 2]) for n in range(3)]
        streams = [await device.stream(space=space) for space in spaces]
        machine.compute.hold = True
        tasks = [(await launch(stream))[0] for stream in streams]
        await settle(machine)
        await device.kill(contexts[0])
        assert [task.over for task in tasks] == [True, True, False]
        assert all(map(killed, tasks[:2]))
        machine.compute.hold = False
        await tasks[2].synchronize()
        for stream in streams:
            await goes_on(device, stream)
            await stream.close()
        for space in spaces:
            await device.close_space(space)
        for context in contexts:
            await device.engine.contexts.end(context)
        with pytest.raises(ContextError):
            await device.kill(contexts[0])

    run(body)


def test_more_failures_than_records():
    """A channel records two errors; further tasks killed by the same request end nevertheless."""

    async def body(device, machine):
        stream, tasks = await held(device, machine, 5, overlap=True)
        await device.kill(next(iter(device.engine.contexts)))
        assert all(task.over for task in tasks)
        for task in tasks:
            with pytest.raises((TaskError, TaskLost)):
                task.query()
        machine.compute.hold = False
        await goes_on(device, stream)

    run(body)


def test_record_is_kept():
    """While a task is being cancelled, its record is not given to another task."""

    async def body(device, machine):
        stream, (first, second) = await held(device, machine, 2, overlap=True)
        records = {first.record, second.record}
        cancels = asyncio.ensure_future(stream.cancel())
        while not first.over:
            await machine.wait_cycles(1)
        with pytest.raises(TaskError):
            first.query()
        assert not cancels.done()
        (third,) = await launch(stream, overlap=True)
        assert third.record not in records
        await cancels
        assert killed(second) and not third.over
        machine.compute.hold = False
        await third.synchronize()

    run(body)


def test_cancelled_twice():
    """A task may be cancelled while its stream is being cancelled."""

    async def body(device, machine):
        stream, tasks = await held(device, machine, 3, overlap=True)
        await asyncio.gather(stream.cancel(), tasks[2].cancel(), tasks[0].cancel())
        assert all(map(killed, tasks))
        machine.compute.hold = False
        await goes_on(device, stream)

    run(body)


def test_drain():
    """Polling a channel is not disturbed by a cancelled task."""

    async def body(device, machine):
        stream, (task,) = await held(device, machine)
        assert isinstance(stream.channel, Channel)
        drains = asyncio.ensure_future(stream.channel.drain(poll=1))
        await task.cancel()
        await drains
        machine.compute.hold = False

    run(body)


def test_halted_channel():
    """Cancelling raises the error of another task; once that is handled, the rest can be
    cancelled."""

    async def body(device, machine):
        stream = await device.stream()
        wrong = await stream.launch(STORE, 1, 1, {"TO": 0x1234_5000})
        (task,) = await launch(stream)
        await settle(machine)
        with pytest.raises(ChannelError) as raised:
            await task.cancel()
        assert raised.value.cause is Cause.TASK_KERNEL
        machine.compute.hold = True
        await stream.channel.resume()
        await stream.cancel()
        assert killed(task) and wrong.over
        machine.compute.hold = False

    run(body)


def test_out_of_reach():
    """If a channel waits before the launch of a task, cancelling the task fails with the channel's
    name."""

    async def body(device, machine):
        stream = await device.stream()
        gate = await device.upload(np.zeros(4, np.uint32))
        await stream.submit(Pushbuffer().acquire(device.space.at(gate), 1))
        (task,) = await launch(stream)
        for cancel in (
            task.cancel,
            stream.cancel,
            partial(device.kill, next(iter(device.engine.contexts))),
        ):
            for options, least in (({"patience": 2000}, 2000), ({}, 100_000)):
                with pytest.raises(ChannelTimeout, match="channel 0 made no progress") as found:
                    await cancel(**options)
                assert least <= found.value.cycles < least + 2000
        gate.write(np.ones(1, np.uint32))
        await stream.synchronize()

    run(body)


@pytest.mark.parametrize("how", ["ended", "failed", "interrupted"])
def test_context_killed_twice(how: str):
    """A kill of a context that has ended, failed or been interrupted does not disturb another kill
    of it in progress."""

    async def body(device, machine):
        context = await device.engine.contexts.create("mine")
        stream = await device.stream(space=device.create_space("mine", context=context))
        machine.compute.hold = True
        (first,) = await launch(stream)
        await settle(machine)
        early = [asyncio.ensure_future(device.kill(context)) for _ in range(how == "ended")]
        begun = asyncio.ensure_future(device.kill(context))
        await asyncio.sleep(0)
        match how:
            case "ended":
                await early[0]
            case "failed":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(device.engine, "kill_context", Mock(side_effect=OSError))
                    with pytest.raises(OSError):
                        await device.kill(context)
            case "interrupted":
                await interrupt(device.kill(context), 1)
        assert not begun.done()
        await begun
        assert killed(first)
        machine.compute.hold = False
        await goes_on(device, stream)

    run(body)


def test_interrupted_beside_another():
    """An interrupted cancellation of a stream does not disturb another one in progress."""

    async def body(device, machine):
        stream, tasks = await held(device, machine, 2, overlap=True)
        begun = asyncio.ensure_future(stream.cancel())
        await interrupt(stream.cancel(), 1)
        await begun
        assert all(map(killed, tasks))
        machine.compute.hold = False
        await goes_on(device, stream)

    run(body)
