"""Tests of compute through the driver, common to the RTL and the Python model."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.occupancy import BlockError
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.kernels.library import VECTOR_ADD, Kernel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.errors import Cause, CoreCause
from signalbox.hw.page_tables import AccessType, FaultType
from signalbox.hw.qmd import SkedCheck

__all__ = ["BODIES", "Body", "address_limit", "local_memory", "physical"]

COUNT, BLOCK = 75, 20
HOLE = 0x7654_3000

SMALL = 1 << 41
"""Bytes of a small address space."""

STORE = Kernel(
    "store",
    """
    ldc   r0, [TO]
    ldc   r1, [4]
    mov   r2, 1
    stg   [r0], r2
    exit
    """,
    {"TO": 8},
)

TABLES = Kernel(
    "tables",
    """
    ldc   r0, [TO]
    ldc   r1, [4]
    ldc   r3, [1][4]
    ldc   r2, [7][28]
    stg   [r0], r3
    stg   [r0 + 4], r2
    exit
    """,
    {"TO": 8},
)


def local_kernel(size: int) -> Kernel:
    """Kernel that computes OUT[i] = SEED + i. Before the store, the value is kept in the last word
    of `size` bytes of local memory."""
    return Kernel(
        f"local {size}",
        f"""
        s2r   r0, ctaid.x
        s2r   r1, ntid.x
        s2r   r2, tid.x
        mad   r0, r0, r1, r2
        ldc   r1, [N]
        sltu  r1, r0, r1
        push  r1
        ldc   r4, [SEED]
        add   r5, r4, r0
        mov   r6, 0
        stl   [r6 + {size - 4}], r5
        wait  100
        ldl   r7, [r6 + {size - 4}]
        ldc   r2, [OUT]
        ldc   r3, [4]
        lea   r2, r2, r0, 2
        stg   [r2], r7
        exit
        """,
        {"OUT": 8, "SEED": 4, "N": 4},
        local=size,
    )


async def addition(
    device: Device, stream: Stream, seed: int, **options: Any
) -> tuple[Task, dict[str, Any]]:
    """Launch a vector addition. Returns its task and its arguments."""
    numbers, space = np.random.default_rng(seed), stream.space
    words = numbers.integers(0, 1 << 32, (2, COUNT), np.uint32)
    out = await device.allocate(4 * COUNT, space=space)
    out.fill(0)
    args = {
        name: await device.upload(each, space=space) for name, each in zip("AB", words, strict=True)
    }
    args |= {"C": out, "N": COUNT}
    return await stream.launch(VECTOR_ADD, -(-COUNT // BLOCK), BLOCK, args, **options), args


def check(args: dict[str, Any]) -> None:
    """Check the sums."""
    a, b, c = (args[name].read(np.uint32) for name in "ABC")
    assert np.array_equal(c, a + b)


async def failure(waiting: Stream | Task) -> TaskError:
    """Returns the error raised by `waiting.synchronize`. Raises `AssertionError` if there is
    none."""
    try:
        await waiting.synchronize()
    except ChannelError as error:
        assert isinstance(error, TaskError), str(error)
        return error
    raise AssertionError("no error was raised")


async def vector_adds(device: Device) -> None:
    """Example 1 of page 20: two address spaces with the same addresses if the machine has enough
    ASIDs."""
    spaces: list[AddressSpace] = [device.space]
    if device.info.channels > 1 and device.info.asids > 2:
        spaces.append(device.create_space("second"))
    streams = [await device.stream(space=space) for space in spaces]
    work = [await addition(device, stream, n) for n, stream in enumerate(streams)]
    for task, args in work:
        await task.synchronize()
        check(args)
        assert 0 < task.time_ns <= await device.time_ns()
    places = {stream.space.at(args["C"]) for stream, (_, args) in zip(streams, work, strict=True)}
    assert len(places) == 1


async def in_order(device: Device) -> None:
    """A copy, a launch and a copy in one stream, followed by an event."""
    stream, done = await device.stream(), device.event()
    _, args = await addition(device, stream, 3)
    await stream.memcpy_async(args["A"], args["C"], 4 * COUNT)
    task = await stream.launch(VECTOR_ADD, 4, BLOCK, args)
    await stream.memcpy_async(args["B"], args["C"], 4 * COUNT)
    await done.record(stream)
    await done.synchronize()
    assert task.query() and task.time_ns <= done.time_ns
    a, b, c = (args[name].read(np.uint32) for name in "ABC")
    first, second = np.random.default_rng(3).integers(0, 1 << 32, (2, COUNT), np.uint32)
    assert np.array_equal(a, first + second)
    assert np.array_equal(c, first + 2 * second) and np.array_equal(b, c)


async def kernel_fault(device: Device) -> None:
    """A store to an unmapped page raises an error with all details, and the channel continues."""
    stream = await device.stream()
    task = await stream.launch(STORE, 2, 32, {"TO": HOLE})
    error = await failure(task)
    assert error.cause is Cause.TASK_KERNEL and not error.held, str(error)
    assert (error.kernel, error.record) == ("store", task.record)
    warp, fault = error.warp, error.fault
    assert warp is not None and warp.cause is CoreCause.MEMORY_FAULT, str(error)
    assert (warp.at, warp.va) == (task.program.va + 24, HOLE)
    assert warp.sm < device.info.sms
    assert stream.space.asid in {None, warp.asid}  # None: a server's client does not know it
    assert error.place == "line 5 of 'store': stg [r0], r2"
    assert fault is not None and fault.va == HOLE, str(error)
    assert fault.access in {AccessType.WRITE, AccessType.READ} and fault.space == "device"
    await stream.channel.resume()
    task, args = await addition(device, stream, 1)
    await task.synchronize()
    check(args)


async def address_limit(device: Device) -> None:
    """Accesses past the limit of a small address space fault before its first kernel and after it,
    although the page tables map them (ASID-5). For machines with two channels and three ASIDs."""
    space = device.spaces.create("small", size=SMALL)
    stream = await device.stream(space=space)
    source, target = [await device.allocate(64, space=space) for _ in range(2)]
    _map_again(device, space)
    await past_limit(device, stream, source, target)
    for _ in range(2):
        await (await stream.launch(STORE, 1, 1, {"TO": target})).synchronize()
        await past_limit(device, stream, source, target)
        error = await failure(await stream.launch(STORE, 1, 1, {"TO": SMALL + space.at(target)}))
        assert error.cause is Cause.TASK_KERNEL, str(error)
        assert error.fault is not None and error.fault.cause is FaultType.VA_LIMIT, str(error)
        await stream.channel.resume()


async def past_limit(device: Device, stream: Stream, source: Buffer, target: Buffer) -> None:
    """Check that a copy from the duplicate of `source` past the limit faults."""
    at = stream.space.at(source) + SMALL
    await stream.submit(Pushbuffer().copy(stream.space.at(target), at, 64))
    try:
        await stream.synchronize()
    except ChannelError as error:
        assert error.cause is Cause.COPY_READ_FAULT, str(error)
        assert error.fault is not None and error.fault.cause is FaultType.VA_LIMIT, str(error)
    else:
        raise AssertionError("no error was raised")
    await stream.channel.skip()


def _map_again(device: Device, space: AddressSpace) -> None:
    """Duplicate the PD2 entry of the lowest addresses past the limit."""
    read, write = device.machine.memory_read, device.machine.memory_write
    above = int.from_bytes(read(space.base, 8), "little") >> 8 << 12
    write(above + 8 * (SMALL >> 38), read(above, 8))


async def refused(device: Device) -> None:
    """The driver refuses a block that is too big; the machine reports an invalid record, and
    accepts the launch again once the record is corrected."""
    stream = await device.stream()
    try:
        await stream.launch(STORE, 1, 1, {"TO": 0}, shared=device.info.sm_shared + 1)
    except BlockError as refusal:
        assert refusal.check is SkedCheck.SHARED_MEMORY
    else:
        raise AssertionError("no error was raised")
    # A waiting acquire, so that the record can be changed before its launch.
    gate = await device.allocate(4096)
    gate.fill(0)
    await stream.submit(Pushbuffer().acquire(device.space.at(gate), 0x0101_0101))
    flag = await device.allocate(4)
    flag.fill(0)
    task = await stream.launch(STORE, 1, 1, {"TO": flag})
    good = device.machine.memory_read(physical(task), 256)
    word = int.from_bytes(good, "little") | 4 << 1536
    task.memory.write(word.to_bytes(256, "little"))
    gate.fill(1)
    error = await failure(task)
    assert (error.cause, error.check) == (Cause.TASK_CHECK, SkedCheck.PROGRAM), str(error)
    assert error.held and error.record == task.record
    task.memory.write(good)
    await stream.channel.resume()
    await task.synchronize()
    assert flag.read(np.uint32)[0] == 1


def physical(task: Task) -> int:
    """Physical address of the task's record."""
    return task.memory.chunk.buffer.at(task.memory.offset)


async def constant_buffers(device: Device) -> None:
    """Two kernels at once, each with its own constant buffers (HOST-15). A read of a missing buffer
    is an error of the kernel."""
    stream, numbers = await device.stream(), np.random.default_rng(9)
    tables = [numbers.integers(0, 1 << 32, 8, np.uint32) for _ in range(3)]
    given = [await device.upload(each) for each in tables]
    out = await device.upload(np.zeros(6, np.uint32))
    pairs = [{1: given[0], 7: given[1]}, {1: given[1], 7: given[2]}, {1: given[2]}]
    tasks = [
        await stream.launch(
            TABLES, 1, 1, {"TO": stream.space.at(out, 8 * n)}, constants=pair, overlap=True
        )
        for n, pair in enumerate(pairs[:2])
    ]
    for task in tasks:
        await task.synchronize()
    expected = [word for n in range(2) for word in (tables[n][1], tables[n + 1][7])]
    assert out.read(np.uint32)[:4].tolist() == expected
    error = await failure(await stream.launch(TABLES, 1, 1, {"TO": out}, constants=pairs[2]))
    assert error.warp is not None and error.warp.cause is CoreCause.INSTRUCTION, str(error)
    assert error.place == "line 5 of 'tables': ldc r2, [7][28]"
    await stream.channel.resume()
    for constants, message in (
        ({0: given[0]}, "constant buffer 0: 1 … 7; 0 holds the arguments"),
        ({8: given[0]}, "constant buffer 8: 1 … 7"),
        ({1: await device.allocate(12)}, "constant buffer 1 of 12 bytes: a multiple of 16"),
    ):
        with pytest.raises(ValueError, match=message):
            await stream.launch(TABLES, 1, 1, {"TO": out}, constants=constants)


async def local_memory(device: Device) -> None:
    """Kernels of two address spaces, if there are enough ASIDs, and then a kernel with more local
    memory, read back the contents that their threads stored there (HOST-15)."""
    spaces: list[AddressSpace] = [device.space]
    if device.info.channels > 1 and device.info.asids > 2:
        spaces.append(device.create_space("second"))
    streams = [await device.stream(space=space) for space in spaces]
    small, large = local_kernel(32), local_kernel(1024)
    work = []
    for kernel, stream in [*((small, stream) for stream in streams), (large, streams[0])]:
        out = await device.upload(np.zeros(COUNT, np.uint32), space=stream.space)
        seed = len(work) * 1000 + 7
        args = {"OUT": out, "SEED": seed, "N": COUNT}
        task = await stream.launch(kernel, -(-COUNT // BLOCK), BLOCK, args, overlap=True)
        work.append((task, out, seed))
    for task, out, seed in work:
        await task.synchronize()
        assert np.array_equal(out.read(np.uint32), np.arange(COUNT) + seed), seed
    args = {"OUT": work[0][1], "SEED": 0, "N": COUNT}
    error = await failure(await streams[0].launch(replace(large, local=1008), 1, 1, args))
    assert error.warp is not None and error.warp.cause is CoreCause.LOCAL_RANGE, str(error)
    assert error.place == f"line 12 of '{large.name}': stl [r6 + 1020], r5", str(error)
    await streams[0].channel.resume()


Body = Callable[[Device], Coroutine[Any, Any, None]]

BODIES: tuple[Body, ...] = (
    vector_adds,
    in_order,
    kernel_fault,
    address_limit,
    refused,
    constant_buffers,
    local_memory,
)
