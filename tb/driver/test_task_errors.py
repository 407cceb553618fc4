"""Refused and failed tasks: the error raised, and the channel's recovery (HOST-10, ASID-5)."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.contexts import ContextBroken
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.task_lists import TaskListError
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import TaskError, TaskLost
from signalbox.driver.kernels.library import SPIN, VECTOR_ADD, Kernel
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import Config
from signalbox.hw.errors import Cause, CoreCause
from signalbox.hw.page_tables import FaultType
from signalbox.hw.qmd import SkedCheck
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import interrupt

Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]

STORE = Kernel(
    "store",
    """
    ldc   r0, [TO]
    ldc   r1, [4]
    mov   r2, 1
    stg   [r0], r2      # the only access
    exit
    """,
    {"TO": 8},
)

HOLE = 0x3456_7000

WRONG = Kernel("wrong", "mov r0, 1\n push r0\n pop\n pop\n exit", {"N": 4})


def run(
    body: Body, *, compute: ComputeSettings | None = None, levels: int = 1, **config: Any
) -> None:
    """Run `body` on a fresh machine with this many stream priorities."""
    machine = FakeMachine(Config(memory_bytes=SPACE, **config))

    async def main():
        device = await Device.open(machine, NoPriorityPolicy(levels), compute=compute)
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()
        assert machine.compute is not None and not machine.compute.running

    asyncio.run(main())


def test_every_cause_has_a_meaning() -> None:
    """Each cause of an error has an explanation."""
    for cause in set(Cause) - {Cause.NONE}:
        error = ChannelError(0, cause, method=None, subchannel=0, data=0, va=0)
        assert "unknown" not in error.reason, cause


async def error_of(waiting: Stream | Task) -> TaskError:
    """Returns the error raised by `waiting.synchronize`."""
    with pytest.raises(ChannelError) as raised:
        await waiting.synchronize()
    assert isinstance(raised.value, TaskError)
    return raised.value


async def goes_on(device: Device, stream: Stream) -> None:
    """Check that the stream's next task completes."""
    flag = await device.allocate(4, space=stream.space)
    flag.fill(0)
    await (await stream.launch(STORE, 1, 1, {"TO": flag})).synchronize()
    assert flag.read(np.uint32)[0] == 1


def test_kernel_fault():
    """The error names task, warp, instruction, line and access; other spaces are not affected."""

    async def body(device, machine):
        space = device.create_space("other")
        stream, other = await device.stream(), await device.stream(space=space)
        task = await stream.launch(STORE, (2, 3), 64, {"TO": 0x1234_5000})
        behind = await stream.launch(STORE, 1, 1, {"TO": await device.allocate(4)})
        await goes_on(device, other)
        error = await error_of(task)
        assert error.cause is Cause.TASK_KERNEL and not error.held
        assert (error.kernel, error.record, error.place) == (
            "store",
            task.record,
            "line 5 of 'store': stg [r0], r2",
        )
        assert error.warp is not None and error.warp.cause is CoreCause.MEMORY_FAULT
        assert (error.warp.va, error.warp.at) == (0x1234_5000, task.program.va + 24)
        assert error.fault is not None and error.fault.cause is FaultType.PDE
        assert (error.fault.va, error.fault.space) == (0x1234_5000, "device")
        for words in (
            "channel 0 halted with TASK_KERNEL (DEVICE): a warp of the task faulted",
            f"at SEND_PCAS_A = {task.record >> 8:#010x} of subchannel 1",
            f"task 'store' (record {task.record:#x})",
            "had MEMORY_FAULT at",
            "(line 5 of 'store': stg [r0], r2), accessing 0x12345000",
            "Channel.resume() continues after it.",
        ):
            assert words in str(error), str(error)
        await stream.channel.resume()
        await behind.synchronize()
        with pytest.raises(TaskError) as again:
            task.query()
        assert again.value is error and task.time_ns == 0
        assert not device.compute.warp_faults.unclaimed
        assert device.faults.unclaimed == ()

    run(body)


@pytest.mark.parametrize("turns", range(20, 40))
def test_interrupted_check(turns: int):
    """A wait that is cancelled while it finds out about a failed task does not keep the cause from
    the next wait."""

    async def body(device, machine):
        stream = await device.stream()
        task = await stream.launch(STORE, 1, 1, {"TO": 0x1234_5000})
        await machine.wait_cycles(200)
        with suppress(ChannelError):
            await interrupt(task.synchronize(), turns)
        error = await error_of(task)
        assert error.warp is not None and error.warp.va == 0x1234_5000
        assert error.fault is not None and error.fault.va == 0x1234_5000

    run(body)


def test_read_only():
    async def body(device, machine):
        stream = await device.stream()
        fixed = await device.upload(np.zeros(4, np.uint32), read_only=True)
        error = await error_of(await stream.launch(STORE, 1, 1, {"TO": fixed}))
        assert error.fault is not None and error.fault.cause is FaultType.RO
        await stream.channel.skip()
        await goes_on(device, stream)

    run(body)


def test_without_address():
    """Causes within the core have neither an address nor a translation fault."""

    async def body(device, machine):
        stream = await device.stream()
        error = await error_of(await stream.launch(WRONG, 1, 1, {"N": 0}))
        assert error.warp is not None and error.warp.cause is CoreCause.MASK_STACK
        assert error.warp.va is None and error.fault is None
        assert "line 4 of 'wrong': pop: overflow or underflow" not in str(error)
        assert "(line 4 of 'wrong': pop)" in str(error)
        await stream.channel.resume()
        assert "accessing" not in str(error)
        error = await error_of(await stream.launch(STORE, 1, 1, {"TO": 2}))
        assert error.warp is not None and error.warp.cause is CoreCause.MEMORY_ALIGNMENT
        assert error.warp.va == 2
        await stream.channel.resume()
        await goes_on(device, stream)

    run(body)


def test_somebody_elses_fault():
    """An access beyond the address range has no fault record and does not claim an unrelated
    one."""

    async def body(device, machine):
        stream = await device.stream()
        machine.faults.translate(stream.space.asid, HOLE, 1, 8)
        error = await error_of(await stream.launch(STORE, 1, 1, {"TO": 1 << 50 | HOLE + 4096}))
        assert error.warp is not None and error.warp.va == HOLE + 4096
        assert error.fault is None and len(device.faults.unclaimed) == 1
        await stream.channel.resume()
        error = await error_of(await stream.launch(STORE, 1, 1, {"TO": HOLE}))
        assert error.fault is not None and not device.faults.unclaimed
        await stream.channel.resume()

    run(body)


def test_several_fail():
    """Two tasks that fail at once raise one error each, one after the other."""

    async def body(device, machine):
        stream = await device.stream()
        machine.compute.hold = True
        first = await stream.launch(STORE, 1, 1, {"TO": 1 << 30}, overlap=True)
        second = await stream.launch(WRONG, 1, 1, {"N": 0}, overlap=True)
        good = await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, overlap=True)
        await machine.wait_cycles(1500)
        machine.compute.hold = False
        await machine.wait_cycles(20)
        error = await error_of(first)
        assert error.record == first.record and error.more
        assert "more of its copies or tasks have failed since" in str(error)
        await stream.channel.resume()
        error = await error_of(second)
        assert (error.record, error.kernel, error.more) == (second.record, "wrong", False)
        # The machine kept only the first warp's fault.
        assert error.warp is None
        await stream.channel.resume()
        await good.synchronize()
        await stream.synchronize()

    run(body)


@pytest.mark.parametrize(
    ("low", "value", "cause", "check", "words"),
    [
        (580, 4, Cause.TASK_MODEL, SkedCheck.NONE, "has another version or an empty grid"),
        (384, 0, Cause.TASK_MODEL, SkedCheck.NONE, "or an empty grid"),
        (648, 0, Cause.TASK_CHECK, SkedCheck.REGISTER_COUNT, "SKEDCHECK 6 REGISTER_COUNT"),
        (736, 1, Cause.TASK_CHECK, SkedCheck.LOCAL_MEMORY_LOW, "SKEDCHECK 2 LOCAL_MEMORY_LOW: si"),
        (1600, 1, Cause.TASK_CHECK, SkedCheck.LOCAL_MEMORY_HIGH, "SKEDCHECK 3 LOCAL_MEMORY_HIGH"),
        (
            736,
            16,
            Cause.TASK_CHECK,
            SkedCheck.LOCAL_MEMORY,
            "SKEDCHECK 4 LOCAL_MEMORY: the chann",
        ),
        (1536, 4, Cause.TASK_CHECK, SkedCheck.PROGRAM, "SKEDCHECK 13 PROGRAM: the program addre"),
        (544, 0x3FFFF, Cause.TASK_CHECK, SkedCheck.SHARED_MEMORY, "SKEDCHECK 14 SHARED_MEMORY"),
        (
            592,
            0,
            Cause.TASK_CHECK,
            SkedCheck.THREAD_DIMENSION_ZERO,
            "SKEDCHECK 16 THREAD_DIMENSION_ZERO",
        ),
        (142, 1, Cause.TASK_CHECK, SkedCheck.DEPENDENCE, "SKEDCHECK 36 DEPENDENCE"),
    ],
)
def test_refused_records(low, value, cause, check, words):
    """A record damaged after its submission is refused; once repaired, it is launched again."""

    async def body(device, machine):
        stream = await device.stream()
        machine.paused = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        chunk, offset = task.memory.chunk.buffer, task.memory.offset
        good = chunk.read(shape=256, offset=offset).tobytes()
        width = {580: 4, 648: 9, 736: 24, 384: 32, 1600: 24, 1536: 32, 544: 18, 592: 16, 142: 16}[
            low
        ]
        word = int.from_bytes(good, "little") & ~((1 << width) - 1 << low) | value << low
        task.memory.write(word.to_bytes(256, "little"))
        machine.paused = False
        error = await error_of(task)
        assert (error.cause, error.check, error.record) == (cause, check, task.record)
        assert error.held and error.kernel == "spin" and words in str(error), str(error)
        assert "SEND_SIGNALING_PCAS2_B = 0x00000002 (SCHEDULE)" in str(error)
        task.memory.write(good)
        await stream.channel.resume()
        await task.synchronize()

    run(body)


def test_given_up():
    """Skipping a refused launch ends the task, and the channel continues."""

    async def body(device, machine):
        stream = await device.stream()
        machine.paused = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        task.memory.write(bytes(256))
        machine.paused = False
        error = await error_of(stream)
        assert error.cause is Cause.TASK_MODEL and not task.over
        await stream.channel.skip()
        await goes_on(device, stream)
        with pytest.raises(TaskError):
            await task.synchronize()

    run(body)


def test_record_not_mapped():
    async def body(device, machine):
        stream = await device.stream()
        await stream.submit(Pushbuffer().launch_task(0x77_0000_0100))
        error = await error_of(stream)
        assert error.cause is Cause.TASK_FAULT and error.fault is not None
        assert error.fault.va == 0x77_0000_0000 and error.kernel == ""
        assert "a task (record 0x7700000100)" in str(error)
        await stream.channel.skip()
        await stream.submit(Pushbuffer().launch_inline(0x77_0000_0100, bytes(256)))
        with pytest.raises(ChannelError, match="INLINE_FAULT") as raised:
            await stream.synchronize()
        assert raised.value.fault is not None and raised.value.va == 0x77_0000_0100
        await stream.channel.skip()
        await goes_on(device, stream)

    run(body)


def test_inline_record_repaired():
    """If the page of an inline record is mapped after the fault, resuming the launch writes the
    record; this one has an unknown version and is skipped."""

    async def body(device, machine):
        stream = await device.stream()
        record = bytes(range(256))
        await stream.submit(Pushbuffer().launch_inline(0x77_0000_0100, record))
        with pytest.raises(ChannelError, match="INLINE_FAULT"):
            await stream.synchronize()
        page = await device.upload(np.zeros(4096, np.uint8), name="page")
        await device.space.map(page, va=0x77_0000_0000)
        await stream.channel.resume()
        assert (await error_of(stream)).cause is Cause.TASK_MODEL
        assert page.read()[256:512].tobytes() == record
        await stream.channel.skip()
        await goes_on(device, stream)

    run(body)


def test_release_refused():
    async def body(device, machine):
        stream = await device.stream()
        machine.compute.hold = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await machine.wait_cycles(500)
        mapping = task.fence.page.home
        machine.translator.forget_all()
        await device.space.protect(mapping, read_only=True)
        machine.compute.hold = False
        error = await error_of(task)
        assert error.cause is Cause.TASK_RELEASE and error.fault is not None
        assert error.fault.cause is FaultType.RO
        await device.space.protect(mapping, read_only=False)
        await stream.channel.resume()
        await goes_on(device, stream)
        with pytest.raises(TaskError):
            task.query()

    run(body)


def test_broken_context():
    """Waiting tasks of a broken context raise an error and continue after its repair; tasks of
    other contexts are not delayed."""

    async def body(device, machine):
        own = await device.compute.contexts.create("own")
        space = device.create_space("bad", context=own)
        stream, other = await device.stream(space=space), await device.stream()
        flag = await device.allocate(4, space=space)
        machine.compute.hold = True
        task = await stream.launch(STORE, 1, 1, {"TO": flag})
        machine.compute.contexts[0]["INSTANCE_HI"] = 0x100
        machine.compute.hold = False
        with pytest.raises(ContextBroken, match=r"context 0 'own' cannot run: .* 'bad' \(ASID 0\)"):
            await task.synchronize()
        await goes_on(device, other)
        with pytest.raises(ContextBroken):
            await stream.synchronize()
        machine.compute.contexts[0]["INSTANCE_HI"] = 0
        await device.compute.contexts.mend(own)
        await task.synchronize()
        assert flag.read(np.uint32)[0] == 1
        # The context must not be broken for its next owner.
        machine.compute.words["CONTEXT_BROKEN"] = 1
        await device.compute.serve()
        assert own.broken is not None
        await device.channels.close(stream.channel.index)
        await device.compute.contexts.end(own)
        assert not machine.compute.words["CONTEXT_BROKEN"]

    run(body)


def test_leaving_beside_a_broken_context():
    """Address spaces leave other contexts at once while tasks of a broken one wait (ASID-22)."""

    async def body(device, machine):
        own = await device.compute.contexts.create("own")
        space = device.create_space("bad", context=own)
        stream, other = await device.stream(space=space), await device.stream()
        await goes_on(device, other)
        machine.compute.contexts[0]["INSTANCE_HI"] = 0x100
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        with pytest.raises(ContextBroken):
            await task.synchronize()
        begun = machine.now()
        await device.channels.close(other.channel.index)
        assert machine.now() - begun < 1000
        machine.compute.contexts[0]["INSTANCE_HI"] = 0
        await device.compute.contexts.mend(own)
        await task.synchronize()

    run(body)


def test_lost_task():
    """A lost task is reported once, and ends without its release."""

    async def body(device, machine):
        stream = await device.stream()
        machine.compute.broken_lists = True
        task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        with pytest.raises(TaskListError, match="lost a task"):
            await task.synchronize()
        machine.compute.broken_lists = False
        with pytest.raises(TaskLost, match=r"task 'spin' \(record 0x.*\) has ended without"):
            await task.synchronize()
        await goes_on(device, stream)

    run(body)


def test_lists_not_mapped():
    """The translation fault of TASK_LISTS is in the system's address space."""

    async def body(device, machine):
        stream = await device.stream()
        (system,) = [space for space in device.spaces if space.name == "system"]
        (mapping,) = system
        buffer, va = mapping.buffer, mapping.va
        await system.unmap(mapping)
        args = {"A": 0, "B": 0, "C": 0, "N": 0}
        error = await error_of(await stream.launch(VECTOR_ADD, 1, 1, args))
        assert error.cause is Cause.TASK_LISTS and error.fault is not None
        assert error.fault.space == "system"
        await system.map(buffer, va=va)
        await stream.channel.resume()
        await goes_on(device, stream)

    run(body)
