"""Applications that wait only for themselves: their waits do not harm others (SHARE-9)."""

import pytest

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.methods import SemOp
from signalbox.tb.driver.fakes.compute import FakeCompute, FakeTask
from signalbox.tb.driver.server.session import SMALL, Session, serve

PATIENCE = 4000
URGENT = 40
"""Priority of kernels that the fake engine completes first."""

ABSENT = 0x7000_0000
"""An address without a page."""


async def passes(session: Session, cycles: int) -> None:
    """Let time pass in small steps, so that other tasks of the event loop see it pass."""
    end = session.machine.now() + cycles
    while session.machine.now() < end:
        await session.machine.wait_cycles(10)


async def spin(stream: Stream, priority: int = 0) -> Task:
    """Launch a kernel that ends when the fake engine continues."""
    return await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, priority=priority, overlap=True)


async def flag(device: Device) -> tuple[Buffer, Pushbuffer]:
    """A word with value 0, and commands that wait until it is 1."""
    word = await device.allocate(64)
    word.fill(0)
    return word, Pushbuffer().acquire(device.space.at(word), 1, SemOp.ACQ_CIRC_GEQ)


def engine(session: Session) -> FakeCompute:
    compute = session.machine.compute
    assert compute is not None
    return compute


def one_ends(session: Session) -> FakeTask:
    """Let the engine complete one task."""
    compute, count = engine(session), len(engine(session).over)
    compute.hold = False
    while len(compute.over) == count:
        compute.step()
    compute.hold = True
    return compute.over[count]


def test_waits_for_itself():
    """An application has more launches than places, behind an acquire that never passes: another,
    always busy, continues."""

    async def run(session: Session) -> None:
        device, other = await session.client("waits"), await session.client("works")
        own, stream = await device.stream(), await other.stream()
        _, acquire = await flag(device)
        await own.submit(acquire)
        for _ in range(SMALL["launches_each"] + 1):
            await spin(own)
        engine(session).hold = True
        await spin(stream)
        for _ in range(10):
            await spin(stream)
            await passes(session, PATIENCE // 2)
            assert not one_ends(session).failed
        engine(session).hold = False
        await stream.synchronize()
        session.kill(device)
        await session.settle(1)

    serve(run, patience_cycles=PATIENCE)


async def _both_go_on(session: Session) -> None:
    """The two tasks on the machine have just begun: neither is killed soon."""
    await passes(session, PATIENCE // 2)
    assert len(engine(session).running) == 2 and not engine(session).over
    engine(session).hold = False


def test_late_launch():
    """The patience with a kernel begins when it runs: here after an acquire that passes late."""

    async def run(session: Session) -> None:
        device, other = await session.client("late"), await session.client("other")
        own, stream = await device.stream(), await other.stream()
        word, acquire = await flag(device)
        await own.submit(acquire)
        await spin(own)
        await passes(session, 3 * PATIENCE)
        engine(session).hold = True
        await spin(stream)
        await passes(session, 200)
        word.fill(1)
        await passes(session, 200)
        await _both_go_on(session)
        await own.synchronize()

    serve(run, patience_cycles=PATIENCE)


def test_halted_beside():
    """A pointer behind an error on another stream does not start the patience either."""

    async def run(session: Session) -> None:
        device, other = await session.client("halted"), await session.client("other")
        halted, own, stream = await device.stream(), await device.stream(), await other.stream()
        target = await device.allocate(64)
        await halted.memcpy_async(target, ABSENT, 64)
        await passes(session, 600)
        await halted.fill_async(target, 1, 64)
        await passes(session, 3 * PATIENCE)
        engine(session).hold = True
        await spin(stream)
        await spin(own)
        await passes(session, 200)
        await _both_go_on(session)
        await own.synchronize()
        session.kill(device)
        await session.settle(1)

    serve(run, patience_cycles=PATIENCE)


def test_repaired():
    """A late repair of a copy gets no other application killed."""

    async def run(session: Session) -> None:
        device, other = await session.client("repairs"), await session.client("other")
        own, stream = await device.stream(), await other.stream()
        target, source = await device.allocate(64), device.memory.allocate_pages(4096)
        await own.memcpy_async(target, ABSENT, 64)
        await passes(session, 600)
        await own.memcpy_async(target, target, 64)
        await passes(session, 3 * PATIENCE)
        engine(session).hold = True
        await spin(stream)
        await passes(session, 200)
        await device.space.map(source, va=ABSENT)
        await own.channel.resume()
        await own.synchronize()
        await passes(session, PATIENCE // 2)
        assert engine(session).running and not engine(session).over
        engine(session).hold = False
        await stream.synchronize()

    serve(run, patience_cycles=PATIENCE)


def _killed(session: Session) -> list[FakeTask]:
    return [task for task in engine(session).over if task.failed]


async def _short_ones(session: Session, stream: Stream) -> None:
    """Launch urgent kernels that end, until another kernel is killed."""
    while not _killed(session):
        assert session.machine.now() < 10 * PATIENCE
        await spin(stream, priority=URGENT)
        await passes(session, PATIENCE // 2)
        if any(task.priority == URGENT for task in engine(session).running):
            assert not one_ends(session).failed


async def _endless_is_killed(session: Session, short: Stream, endless: Task, on: Stream) -> None:
    """While kernels on the stream `short` end, only the kernel `endless`, on the stream `on`, is
    killed."""
    await _short_ones(session, short)
    assert [task.channel for task in _killed(session)] == [on.channel.index]
    with pytest.raises(TaskError, match="TASK_KILLED"):
        await endless.synchronize()
    engine(session).hold = False


@pytest.mark.parametrize("streams", [1, 2])
def test_endless_beside_short_ones(streams: int):
    """An endless kernel does not hide among kernels of its application that end, on the same stream
    or on another: it is killed, not the work waiting behind it."""

    async def run(session: Session) -> None:
        device, other = await session.client("hides"), await session.client("starves")
        first, *_, last = [await device.stream() for _ in range(streams)] * 2
        stream = await other.stream()
        engine(session).hold = True
        endless = await spin(first)
        await passes(session, 200)
        late = await spin(stream)
        await _endless_is_killed(session, last, endless, first)
        await late.synchronize()
        await session.works(device)

    serve(run, patience_cycles=PATIENCE)


def test_held_back_for_one_that_leaves():
    """An application that is held back continues once those that waited for it are gone, even if
    its own older kernel waits for its next launches."""

    async def run(session: Session) -> None:
        device, other = await session.client("held"), await session.client("leaves")
        own, again = await device.stream(), await device.stream()
        engine(session).hold = True
        waiting = await spin(own)
        await passes(session, 200)
        await spin(await other.stream())
        application = session.server.applications[0]
        while not application.held:
            await spin(again, priority=URGENT)
            await passes(session, PATIENCE // 2)
            assert not one_ends(session).failed
        session.kill(other)
        await session.settle(1)
        await spin(again, priority=URGENT)
        await passes(session, PATIENCE // 2)
        assert [task.priority for task in engine(session).running if task.priority] == [URGENT]
        engine(session).hold = False
        await waiting.synchronize()

    serve(run, patience_cycles=PATIENCE)


def test_short_ones_beside_endless():
    """An application that is never idle, but has kernels that end, does not suffer for another's
    endless kernel."""

    async def run(session: Session) -> None:
        device, other = await session.client("short"), await session.client("endless")
        own, stream = await device.stream(), await other.stream()
        engine(session).hold = True
        await spin(own, priority=URGENT)
        await passes(session, 200)
        endless = await spin(stream)
        await _endless_is_killed(session, own, endless, stream)
        await own.synchronize()

    serve(run, patience_cycles=PATIENCE)


def test_launches_together():
    """Launches of one submission are not overtaken by later launches, which may depend on them."""

    async def run(session: Session) -> None:
        device = await session.client()
        running, together, later = [await device.stream() for _ in range(3)]
        word, acquire = await flag(device)
        engine(session).hold = True
        for _ in range(6):
            await spin(running)
        await passes(session, 600)
        commands = Pushbuffer()
        for _ in range(4):
            launch = KernelLaunch(kernel=SPIN, grid=(1, 1, 1), block=(1, 1, 1), args={"CYCLES": 1})
            task = await device.engine.prepare(launch, device.space)
            commands.launch_task(task.record)
        await together.submit(commands.release(device.space.at(word), 1))
        for _ in range(SMALL["launches_each"]):
            await later.submit(acquire)
            await spin(later)
        await passes(session, 600)
        while engine(session).running:
            one_ends(session)
            await passes(session, 600)
        assert len(engine(session).over) == 6 + 4 + SMALL["launches_each"]
        engine(session).hold = False

    serve(run)
