"""Tests of kernels that launch kernels, through the driver; common to the RTL and the Python model
unless stated otherwise."""

import numpy as np
import pytest

from signalbox.driver.compute.child import Child
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import Ancestor, TaskError, TaskLost
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.errors import Cause, CoreCause, Refusal
from signalbox.tb.driver.compute_bodies import failure

__all__ = [
    "LEAVE",
    "STORE",
    "WRAP",
    "cancelled_trees",
    "chain_of_a_fault",
    "chain_of_a_refusal",
    "line_of",
]

HOLE = 0x7654_3000

STORE = """
    ldc    r2, [OUT]
    ldc    r3, [OUT + 4]
    stg    [r2], r6
    stg    [r2 + 4], r7
    stg    [r2 + 8], r8
    exit
"""
"""Stores three words, and ends."""

WRAP = Kernel(
    "wrap",
    f"""
    ldc    r2, [CHILD]
    ldc    r3, [CHILD + 4]
    launch r6, [r2]
    join   r7
    ldc    r2, [IN]             # its first result
    ldc    r3, [IN + 4]
    ldg    r8, [r2]
    {STORE}
    """,
    {"CHILD": 8, "IN": 8, "OUT": 8},
)
"""Launches CHILD and waits for it. Stores to OUT the answer, whether a descendant has failed, and
the word at IN."""

BAD = Kernel(
    "bad leaf",
    """
    s2r    r0, ctaid.x
    seq    r0, r0, 1
    s2r    r1, ctaid.y
    seq    r1, r1, 2
    and    r0, r0, r1
    s2r    r1, warp
    seq    r1, r1, 3
    and    r0, r0, r1
    bnone  r0, fine
    ldc    r2, [TO]
    ldc    r3, [TO + 4]
    stg    [r2], r0
fine:
    exit
    """,
    {"TO": 8},
)
"""Warp 3 of block (1, 2) stores to TO."""

COUNT = Kernel(
    "count",
    """
    ldc    r2, [TO]
    ldc    r3, [TO + 4]
    mov    r0, 0
again:
    add    r0, r0, 1
    stg    [r2], r0
    bra    again
    """,
    {"TO": 8},
)
"""Increments the word at TO endlessly."""

LEAVE = Kernel(
    "leave",
    """
    ldc    r2, [CHILD]
    ldc    r3, [CHILD + 4]
    launch r6, [r2]
    exit
    """,
    {"CHILD": 8},
)
"""Launches CHILD and does not wait for it."""


async def line_of(
    device: Device, stream: Stream, leaf: Child, length: int, out: Buffer
) -> list[Child]:
    """`leaf`, followed by `length` kernels WRAP. Each of these launches the one before it."""
    line = [leaf]
    for _ in range(length):
        args = {"CHILD": line[-1], "IN": out, "OUT": out}
        line.append(await stream.child(WRAP, 1, 32, args))
    return line


async def chain_of_a_fault(device: Device) -> None:
    """A warp of a great-grandchild faults. The error names its kernel, block, warp and source line,
    and each kernel above it; the root sees that a descendant has failed, and continues. Depth 4."""
    stream, out = await device.stream(), await device.allocate(16)
    leaf = await stream.child(BAD, (2, 3), 128, {"TO": HOLE})
    line = await line_of(device, stream, leaf, 2, out)
    for _ in range(2):
        task = await stream.launch(WRAP, 1, 32, {"CHILD": line[-1], "IN": out, "OUT": out})
        error = await failure(task)
        assert error.cause is Cause.TASK_KERNEL and not error.held, str(error)
        assert (error.kernel, error.record, error.root) == ("bad leaf", leaf.record, task.record)
        records = line[1].record, line[2].record, task.record
        assert error.parents == tuple(Ancestor("wrap", record) for record in records)
        assert error.place == "line 13 of 'bad leaf': stg [r2], r0"
        warp = error.warp
        assert warp is not None and warp.cause is CoreCause.MEMORY_FAULT and warp.va == HOLE
        assert (warp.index, warp.block) == (3, (1, 2, 0)), str(error)
        assert error.fault is not None and error.fault.va == HOLE, str(error)
        above = ", launched by ".join(f"'wrap' (record {record:#x})" for record in records)
        assert f"task 'bad leaf' (record {leaf.record:#x}), launched by {above}" in str(error)
        assert f"warp 3 of block (1, 2, 0) on SM {warp.sm} had MEMORY_FAULT" in str(error)
        await stream.channel.resume()
        assert await failure(task) == error
        assert out.read(np.uint32, 2).tolist() == [0, 1]
        assert stream.channel.failure is None
    for one in line:
        one.free()


async def chain_of_a_refusal(device: Device) -> None:
    """A grandchild at the depth limit launches a kernel: the report names all kernels above it; no
    error is raised. Depth 3."""
    stream, out = await device.stream(), await device.allocate(16)
    leaf = await stream.child(BAD, 1, 32, {"TO": HOLE})
    line = await line_of(device, stream, leaf, 2, out)
    task = await stream.launch(WRAP, 1, 32, {"CHILD": line[-1], "IN": out, "OUT": out})
    await task.synchronize()
    found = await device.engine.refused_child()
    assert found is not None and found.reason is Refusal.DEPTH
    assert (found.kernel, found.record, found.launcher) == ("bad leaf", leaf.record, line[1].record)
    records = line[1].record, line[2].record, task.record
    assert found.parents == tuple(Ancestor("wrap", record) for record in records)
    assert f"'bad leaf', record {leaf.record:#x} of ASID" in str(found)
    assert f"launched by 'wrap' (record {records[0]:#x}), launched by 'wrap'" in str(found)
    for one in line:
        one.free()


async def cancelled_trees(device: Device, rng: np.random.Generator, *, waits: bool) -> None:
    """Trees with endless leaves are cancelled at random times: afterwards no part of them runs or
    writes, another stream's kernels are undisturbed, and the next tree can run. Parents wait for
    their children, or have already ended. On the RTL only. Depth 4."""
    stream, other = await device.stream(), await device.stream()
    out, counter, beside = [await device.allocate(16) for _ in range(3)]
    leaf = await stream.child(COUNT, 2, 32, {"TO": counter})
    line = await line_of(device, stream, leaf, 2, out)
    if not waits:
        line = [leaf, await stream.child(LEAVE, 1, 32, {"CHILD": leaf})]
        line.append(await stream.child(LEAVE, 1, 32, {"CHILD": line[-1]}))
    root = {"CHILD": line[-1], "IN": out, "OUT": out} if waits else {"CHILD": line[-1]}
    for _ in range(3):
        counter.fill()
        task = await stream.launch(WRAP if waits else LEAVE, 1, 32, root)
        endless = await other.launch(COUNT, 1, 32, {"TO": beside}, overlap=True)
        while not counter.read(np.uint32, 1)[0]:
            await device.machine.wait_cycles(100)
        await device.machine.wait_cycles(int(rng.integers(0, 500)))
        await task.cancel()
        await _ended(task)
        assert not endless.over
        seen, running = (one.read(np.uint32, 1)[0] for one in (counter, beside))
        await device.machine.wait_cycles(2000)
        assert counter.read(np.uint32, 1)[0] == seen, "a descendant runs on"
        assert beside.read(np.uint32, 1)[0] > running, "another kernel has stopped"
        await endless.cancel()
        await _ended(endless)
        assert (await device.control.read_fields("TASK_STATE"))["IDLE"], "kernels are left"
    for one in line:
        one.free()


async def _ended(task: Task) -> None:
    """Check that the task, or a descendant of it, has been killed."""
    with pytest.raises((TaskError, TaskLost)) as raised:
        await task.synchronize()
    error = raised.value
    assert not isinstance(error, ChannelError) or error.cause is Cause.TASK_KILLED, str(error)
