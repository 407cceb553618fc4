"""Launches on a machine in plain Python: results, order, contexts, priorities, memory (ASID-22)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.commands.pushbuffer import InlineFence, Pushbuffer
from signalbox.driver.compute.contexts import ContextError, OutOfContexts
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.occupancy import BlockError
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.kernels.library import (
    MATMUL,
    REDUCE,
    SAXPY,
    SCAN,
    SPIN,
    VECTOR_ADD,
    Kernel,
)
from signalbox.driver.memory.physical import Buffer, MemoryUseError
from signalbox.driver.runtime.stream import Stream, StreamError
from signalbox.hw.config import Config
from signalbox.hw.qmd import Placement, SkedCheck
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import interrupt

Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]


def run(body: Body, *, compute: ComputeSettings | None = None, policy=None, **config: Any) -> None:
    """Run `body` on a fresh machine. All memory except its buffers must be free again
    afterwards."""
    machine = FakeMachine(Config(memory_bytes=SPACE, **config))

    async def main():
        device = await Device.open(machine, policy or NoPriorityPolicy(1), compute=compute)
        before = set(allocated)
        await asyncio.wait_for(body(device, machine), HANGS)
        mine = [each for each in allocated if each not in before and not each.freed]
        own = [each for each in mine if each.name == "mine"]
        assert machine.compute is None or not machine.compute.running
        await device.close()
        for buffer in own:
            buffer.free()
        assert device.memory.free_bytes == device.memory.size - device.memory.base

    allocated: list[Buffer] = []
    with pytest.MonkeyPatch.context() as patch:
        made = Buffer.__post_init__
        patch.setattr(Buffer, "__post_init__", lambda self: (made(self), allocated.append(self)))
        asyncio.run(main())


async def vectors(device: Device, stream: Stream, count: int, seed: int = 0) -> dict[str, Any]:
    """Returns arguments of a vector addition."""
    numbers, space = np.random.default_rng(seed), stream.space
    a, b = (numbers.integers(0, 1 << 32, count, np.uint32) for _ in range(2))
    c = await device.allocate(4 * count, space=space, name="mine")
    c.fill(0xEE)
    upload = [await device.upload(each, space=space, name="mine") for each in (a, b)]
    return {"A": upload[0], "B": upload[1], "C": c, "N": count}


def check(args: dict[str, Any]) -> None:
    """Check the sums."""
    a, b, c = (args[name].read(np.uint32) for name in "ABC")
    assert np.array_equal(c, a + b)


def test_vector_add():
    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 150)
        task = await stream.launch(VECTOR_ADD, 3, 50, args)
        assert not task.query() and task.time_ns == 0
        await task.synchronize()
        check(args)
        assert task.query() and 0 < task.time_ns <= await device.time_ns()
        await task.synchronize()
        assert "task 'vector add' (record 0x80" in str(task)

    run(body)


def test_closed_stream():
    """A launch on a closed stream is refused as such, also if no stream of its space is left."""

    async def body(device, machine):
        stream = await device.stream(name="gone")
        await stream.close()
        with pytest.raises(StreamError, match="gone was closed"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1})

    run(body)


def test_kernels_with_one_text():
    """Kernels with the same instructions keep their names; a program is loaded once."""

    async def body(device, machine):
        stream = await device.stream()
        first, second = (Kernel(name, "exit", {}) for name in ("first", "second"))
        tasks = [await stream.launch(kernel, 1, 1, {}) for kernel in (first, second, first)]
        assert [task.name for task in tasks] == ["first", "second", "first"]
        assert tasks[0].program is tasks[2].program
        await stream.synchronize()

    run(body)


def test_all_shapes():
    """Grids and blocks of two dimensions, shared memory, barriers and scalar arguments give correct
    results."""

    async def body(device, machine):
        stream = await device.stream()
        a, b = (np.random.default_rng(n).integers(0, 99, (7, 7), np.uint32) for n in (1, 2))
        left, right = [await device.upload(each, name="mine") for each in (a, b)]
        out = await device.allocate(196, name="mine")
        args = {
            "A": left,
            "B": device.space.at(right),
            "C": device.space.mapping(out),
            "N": np.int32(7),
        }
        await stream.launch(MATMUL, (2, 2), (4, 5), args)
        await stream.launch(SCAN, 1, 49, {"X": out, "Y": left})
        sums = await device.allocate(4, name="mine")
        await stream.launch(REDUCE, 1, 64, {"X": right, "SUMS": sums, "N": 49})
        await stream.launch(SAXPY, [1, 1, 1], [49], {"X": out, "Y": right, "N": 49, "ALPHA": -3})
        await stream.synchronize()
        product = a @ b
        assert np.array_equal(out.read(np.uint32, (7, 7)), product)
        assert np.array_equal(left.read(np.uint32), np.cumsum(product, dtype=np.uint32))
        assert sums.read(np.uint32)[0] == b.sum()
        assert np.array_equal(right.read(np.uint32, (7, 7)), b - 3 * product)

    run(body)


def test_stream_order():
    """Copies and launches of a stream execute in order, except launches that ask for overlap."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 64)
        again = await device.allocate(256, name="mine")
        machine.compute.hold = True
        for _ in range(3):
            await stream.launch(VECTOR_ADD, 2, 32, args)
            await stream.memcpy_async(args["A"], args["C"], 256)
        await stream.memcpy_async(again, args["C"], 256)
        before, b = args["A"].read(np.uint32), args["B"].read(np.uint32)
        await machine.wait_cycles(2000)
        assert len(machine.compute.running) == 1 and not machine.copies()
        machine.compute.hold = False
        await stream.synchronize()
        assert np.array_equal(again.read(np.uint32), before + 3 * b)
        machine.compute.hold = True
        tasks = [await stream.launch(VECTOR_ADD, 2, 32, args, overlap=True) for _ in range(3)]
        await machine.wait_cycles(2000)
        assert len(machine.compute.running) == 3
        machine.compute.hold = False
        for task in reversed(tasks):
            await task.synchronize()

    run(body)


def test_launches_of_a_stream():
    """A launch waits for the previous launch unless the latter is known to have ended."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 32)
        machine.compute.hold = True
        await stream.launch(VECTOR_ADD, 1, 32, args)
        last = await stream.launch(VECTOR_ADD, 1, 32, args)
        await machine.wait_cycles(1000)
        assert len(machine.compute.running) == 1
        machine.compute.hold = False
        await last.synchronize()
        await stream.synchronize()
        executed = await device.control.read_channel(stream.channel.index, "METHODS")
        await stream.launch(VECTOR_ADD, 1, 32, args)
        await stream.synchronize()
        methods = await device.control.read_channel(stream.channel.index, "METHODS") - executed
        # SEND_PCAS_A, SEND_SIGNALING_PCAS2_B; the release of five, the interrupt.
        assert methods == 8

    run(body)


def test_channel_has_tasks():
    """A channel with tasks makes progress and is not drained."""

    async def body(device, machine):
        stream = await device.stream()
        machine.compute.hold = True
        await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await machine.wait_cycles(1000)
        assert await stream.channel.progress() < await stream.channel.progress()
        drained = asyncio.ensure_future(stream.channel.drain(patience=500))
        for _ in range(500):
            await machine.wait_cycles(10)
        assert not drained.done()
        machine.compute.hold = False
        await drained
        assert len(machine.compute.over) == 1

    run(body)


def test_streams_of_a_channel():
    """A stream's first work does not wait for another stream of the channel; an event waits for its
    own stream's work."""

    async def body(device, machine):
        one, two = await device.stream(), await device.stream()
        assert one.channel is two.channel
        first, second = await vectors(device, one, 32), await vectors(device, two, 32, 1)
        machine.compute.hold = True
        await one.launch(VECTOR_ADD, 1, 32, first)
        await two.launch(VECTOR_ADD, 1, 32, second)
        done = device.event()
        await done.record(one)
        await machine.wait_cycles(2000)
        assert len(machine.compute.running) == 2 and not done.query()
        machine.compute.hold = False
        await done.synchronize()
        check(first)
        await two.synchronize()
        check(second)

    run(body, channels=1, counters=1)


def test_several_spaces():
    """Example 1 of page 20: several address spaces use the same addresses side by side."""

    async def body(device, machine):
        spaces = [device.create_space(name) for name in "abc"]
        streams = [await device.stream(space=space) for space in spaces]
        work = [await vectors(device, stream, 96, n) for n, stream in enumerate(streams)]
        assert len({spaces[n].at(args["C"]) for n, args in enumerate(work)}) == 1
        machine.compute.hold = True
        for stream, args in zip(streams, work, strict=True):
            await stream.launch(VECTOR_ADD, 3, 32, args)
        await machine.wait_cycles(1000)
        machine.compute.hold = False
        await device.synchronize()
        for args in work:
            check(args)
        assert {task.context for task in machine.compute.over} == {0}
        assert {task.asid for task in machine.compute.over} == {0, 1, 2}
        placed = {task.asid: task.placement for task in machine.compute.over}
        assert placed == {0: Placement.WIDE, 1: Placement.DEEP, 2: Placement.DEEP}

    run(body)


def test_more_spaces_than_asids():
    """ASID reuse (ASID-8): a later space sees nothing of its predecessor, and the instance block
    names the ASID's current owner."""

    async def body(device, machine):
        for number in range(6):
            space = device.create_space(f"space {number}")
            stream = await device.stream(space=space)
            args = await vectors(device, stream, 40, number)
            await stream.launch(VECTOR_ADD, 2, 20, args)
            await stream.synchronize()
            check(args)
            await stream.close()
        assert len(machine.compute.over) == 6

    run(body, asids=3)


def test_asid_of_another_context():
    """A context that is selected again does not bind a space that has left it; the space's former
    ASID may have a new owner in another context."""

    async def body(device, machine):
        first, second = [await device.compute.contexts.create(name) for name in ("one", "two")]
        a, b = [device.create_space(name, context=first) for name in "ab"]
        c = device.create_space("c", context=second)
        streams = {space: await device.stream(space=space) for space in (a, b)}
        work = {space: await vectors(device, streams[space], 8) for space in (a, b)}

        async def add(space):
            await streams[space].launch(VECTOR_ADD, 1, 8, work[space])
            await streams[space].synchronize()
            check(work[space])

        await add(a)
        await add(b)
        await streams[a].close()
        streams[c] = await device.stream(space=c)
        assert c.asid == 0 and a.asid is None
        work[c] = await vectors(device, streams[c], 8, 1)
        for space in (c, b, c, b):
            await add(space)
        await streams[c].memcpy_async(work[c]["A"], work[c]["C"], 32)
        await streams[c].synchronize()
        assert np.array_equal(work[c]["A"].read(), work[c]["C"].read())

    run(body, asids=3)


def test_one_asid():
    """Without an ASID for the system, the lists move to the space in use."""

    async def body(device, machine):
        for number in range(3):
            space = device.create_space()
            stream = await device.stream(space=space)
            args = await vectors(device, stream, 40, number)
            await stream.launch(VECTOR_ADD, 2, 20, args)
            await stream.close()
            check(args)
        stream = await device.stream()
        args = await vectors(device, stream, 40)
        await (await stream.launch(VECTOR_ADD, 2, 20, args)).synchronize()
        check(args)

    run(body, asids=1, channels=1, contexts=1)


def test_contexts():
    """Spaces of different contexts run one context at a time."""

    async def body(device, machine):
        contexts = device.compute.contexts
        own = await contexts.create("own", wanted="affinity")
        a, b = device.create_space("a", context=own), device.create_space("b")
        one, two = await device.stream(space=a), await device.stream(space=b)
        assert (contexts.of(a), contexts.of(b).name) == (own, "context 1")
        work = [await vectors(device, stream, 64) for stream in (one, two)]
        machine.compute.hold = True
        await two.launch(VECTOR_ADD, 2, 32, work[1])
        await machine.wait_cycles(500)
        await one.launch(VECTOR_ADD, 2, 32, work[0])
        await machine.wait_cycles(500)
        machine.compute.hold = False
        await device.synchronize()
        for args in work:
            check(args)
        assert [task.context for task in machine.compute.over] == [0, 1]
        assert [asid for asid, _ in machine.compute.order] == [a.asid, a.asid, b.asid, b.asid]
        found = {task.context: task.placement for task in machine.compute.over}
        assert found == {0: Placement.AFFINITY, 1: Placement.WIDE}
        with pytest.raises(ContextError, match=r"space 'a' .* is in context 0 'own' and in use"):
            contexts.choose(a, own)
        with pytest.raises(ContextError, match=r"context 0 'own' is in use by address space 'a'"):
            await contexts.end(own)
        await one.close()
        await contexts.end(own)
        assert [context.number for context in contexts] == [1]

    run(body)


def test_packing():
    """Each space gets its own context while one is free; after that, launches are refused and
    copies still work."""

    async def body(device, machine):
        contexts = device.compute.contexts
        spaces = [device.create_space(name) for name in "abc"]
        streams = [await device.stream(space=space) for space in spaces]
        assert [contexts.of(space).number for space in spaces[:2]] == [0, 1]
        args = await vectors(device, streams[2], 8)
        with pytest.raises(
            OutOfContexts, match=r"'c' .*: of 2 contexts context 0 'context 0' has 1"
        ):
            await streams[2].launch(VECTOR_ADD, 1, 8, args)
        await streams[2].memcpy_async(args["C"], args["A"], 32)
        await streams[2].synchronize()
        with pytest.raises(OutOfContexts, match="no context for 'x'"):
            await contexts.create("x")
        await streams[0].close()
        await streams[2].close()
        again = await device.stream(space=spaces[2])
        assert contexts.of(spaces[2]).number == 0
        await again.launch(VECTOR_ADD, 1, 8, args)
        await again.synchronize()
        check(args)

    run(body, contexts=2, compute=ComputeSettings(spaces_each=1))


def test_priorities():
    """Urgent tasks overtake waiting ones; the stream's priority applies unless the launch has its
    own."""

    async def body(device, machine):
        low, high = await device.stream(0), await device.stream(-1)
        args = {"CYCLES": 5}
        machine.compute.hold = True
        tasks = [await low.launch(SPIN, 1, 32, args, overlap=True) for _ in range(2)]
        tasks.append(await high.launch(SPIN, 1, 32, args))
        tasks.append(await low.launch(SPIN, 1, 32, args, priority=63, overlap=True))
        await machine.wait_cycles(1500)
        machine.compute.hold = False
        await device.synchronize()
        assert [task.priority for task in machine.compute.over] == [63, 1, 0, 0]
        with pytest.raises(ValueError, match=r"priority = 64: 0 … 63"):
            await low.launch(SPIN, 1, 32, args, priority=64)

    run(body, policy=NoPriorityPolicy(2))


def test_priority_of_channels():
    """The host sends a channel's launches to the engine with the highest priority among its
    launches so far."""

    async def body(device: Device, machine: FakeMachine) -> None:
        first, second = await device.stream(), await device.stream()

        async def config(stream: Stream) -> dict[str, int]:
            return await device.control.read_channel_fields(stream.channel.index, "CONFIG")

        before = await config(first)
        assert before["PRIORITY"] == 0 and before["EARLY_WAITS"] == 1
        for priority, highest in ((None, 0), (5, 5), (2, 5), (63, 63)):
            await first.launch(SPIN, 1, 32, {"CYCLES": 1}, priority=priority)
            assert await config(first) == before | {"PRIORITY": highest}
        assert first.channel is not second.channel and (await config(second))["PRIORITY"] == 0
        await device.synchronize()

    run(body)


def test_cancelled_raise_of_a_priority():
    """A launch that is cancelled while it raises the channel's priority does not keep later ones
    from that."""

    async def body(device: Device, machine: FakeMachine) -> None:
        args = {"CYCLES": 1}
        for turns in range(4):
            stream = await device.stream()
            await stream.launch(SPIN, 1, 32, args)
            await interrupt(stream.launch(SPIN, 1, 32, args, priority=5), turns)
            await stream.launch(SPIN, 1, 32, args, priority=5)
            index = stream.channel.index
            assert (await device.control.read_channel_fields(index, "CONFIG"))["PRIORITY"] == 5
            await stream.synchronize()
            await stream.close()

    run(body)


def test_memory_is_reused():
    """Records, arguments and fences of finished tasks are reused."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 8)
        await stream.launch(VECTOR_ADD, 1, 8, args)
        await stream.synchronize()
        free = device.memory.free_bytes
        for _ in range(100):
            await stream.launch(VECTOR_ADD, 1, 8, args)
        await stream.synchronize()
        assert device.memory.free_bytes == free and len(stream.channel.tasks) == 0
        assert len({task.va for task in machine.compute.over}) < 100

    run(body)


def test_full_list():
    """TASK_FULL halts the channel, and resuming works once there is room."""

    async def body(device, machine):
        stream = await device.stream()
        machine.compute.hold = True
        tasks: list[Task] = []
        for _ in range(33):
            tasks.append(await stream.launch(SPIN, 1, 32, {"CYCLES": 1}, overlap=True))
        await machine.wait_cycles(3000)
        error = await stream.channel.check()
        assert error is not None and error.cause.name == "TASK_FULL" and error.held
        machine.compute.hold = False
        await machine.wait_cycles(100)
        await stream.channel.resume()
        await tasks[-1].synchronize()
        assert len(machine.compute.over) == 33

    # 20 places are reserved of 32.
    run(body, compute=ComputeSettings(waiting=1))


def test_wrong_arguments():
    async def body(device, machine):
        stream, other = await device.stream(), device.create_space("other")
        args = await vectors(device, stream, 8)
        foreign = await device.allocate(32, space=other, name="mine")
        await stream.launch(VECTOR_ADD, 1, 8, args)
        await stream.synchronize()
        free = device.memory.free_bytes
        for grid, block, change, message in (
            (1, 8, {"X": 1}, "vector add takes A, B, C, N"),
            (1, 8, {"N": 1 << 32}, "N = 4294967296 does not fit"),
            ((1, 1, 1, 1), 8, {}, "has 4 sizes"),
            (0, 8, {}, r"a grid of \(0, 1, 1\) blocks is empty"),
            ((1.5,), 8, {}, "sizes are whole numbers"),
            (1, "48", {}, "'48': sizes are whole numbers"),
            (1, 8, {"N": 7.5}, "N = 7.5 is not a whole number"),
        ):
            with pytest.raises(ValueError, match=message):
                await stream.launch(VECTOR_ADD, grid, block, args | change)
        with pytest.raises(ValueError, match="shared = -1 < 0"):
            await stream.launch(REDUCE, 1, 32, args, shared=-1)
        with pytest.raises(MemoryUseError, match="is not mapped in"):
            await stream.launch(VECTOR_ADD, 1, 8, args | {"A": foreign})
        await stream.launch(VECTOR_ADD, 1, 8, args)
        await stream.synchronize()
        assert free == device.memory.free_bytes and len(machine.compute.over) == 2

    run(body)


@pytest.mark.parametrize(
    ("block", "shared", "message", "number"),
    [
        ((1024, 2), 0, "2048 threads: 1024 at most", SkedCheck.THREADS),
        ((1024,), 0, "warps: a block needs 32, an SM has 16", SkedCheck.WARPS),
        ((32,), 49153, "shared memory: a block needs 50176", SkedCheck.SHARED_MEMORY),
        ((512,), 0, "registers: a block needs 8192, an SM has 4096", SkedCheck.REGISTERS),
    ],
)
def test_block_too_big(block, shared, message, number):
    """PLACE-27: a block that is too big is refused before the launch, with the name of the
    resource."""

    async def body(device, machine):
        stream = await device.stream()
        args = {"A": 0, "B": 0, "C": 0, "N": 0}
        kernel = MATMUL if number is SkedCheck.REGISTERS else VECTOR_ADD
        with pytest.raises(BlockError, match=message) as error:
            await stream.launch(kernel, 1, block, args, shared=shared)
        assert error.value.check is number
        await stream.synchronize()
        assert not machine.compute.over

    run(body)


def test_numpy_sizes():
    """Sizes and numbers may have numpy types."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 60)
        await stream.launch(VECTOR_ADD, np.int64(2), np.array([16, 2]), args | {"N": np.uint8(60)})
        await stream.launch(VECTOR_ADD, (np.uint16(3),), np.int32(20), args)
        await stream.synchronize()
        check(args)
        assert len(machine.compute.order) == 5

    run(body)


def test_occupancy():
    async def body(device, machine):
        await device.stream()
        found = device.compute.occupancy(VECTOR_ADD, 64)
        assert found.blocks == 8 and "warps" in found.limits
        assert device.compute.occupancy(VECTOR_ADD, 64, shared=20_000).blocks == 2

    run(body)


def test_without_engine():
    async def body(device, machine):
        assert device.compute is None
        stream = await device.stream()
        with pytest.raises(DeviceError, match="has no compute engine"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await stream.synchronize()

    run(body, sms=0)


def test_inline_and_report():
    """A record in the pushbuffer works, as do the compute class's own wait and release."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 32)
        task = await stream.launch(VECTOR_ADD, 1, 32, args)
        content = machine.memory_read(task.memory.chunk.buffer.at(task.memory.offset), 256)
        await task.synchronize()
        args["C"].fill(0)
        place = await device.allocate(4096, name="mine")
        flag = await device.upload(np.zeros(8, np.uint64), name="mine")
        where = device.space.at
        # Without the release to the fence: its memory may belong to another task by now.
        word = int.from_bytes(content, "little") & ~(1 << 768 + 55)
        commands = Pushbuffer().launch_inline(where(place, 256), word.to_bytes(256, "little"))
        commands.wait_tasks().report(where(flag), 7).report(where(flag, 16), 9, timestamp=False)
        await stream.submit(commands)
        await stream.synchronize()
        check(args)
        assert place.read(shape=256, offset=256).tobytes() == word.to_bytes(256, "little")
        assert flag.read(np.uint32)[[0, 4]].tolist() == [7, 9] and flag.read(np.uint64)[1] > 0

    run(body)


def test_write_inline():
    """Bytes in the pushbuffer reach memory, and their fence is released; an unmapped destination is
    reported, and the stream continues after it (HOST-14)."""

    async def body(device, machine):
        stream = await device.stream()
        place = await device.upload(np.zeros(64, np.uint8), name="mine")
        flag = await device.upload(np.zeros(4, np.uint32), name="mine")
        where = device.space.at
        commands = Pushbuffer().write_inline_2d(where(place, 3), 16, [b"abcde", b"fghij"])
        commands.write_inline(where(place, 40), b"k", InlineFence(where(flag), 6))
        await stream.submit(commands)
        await stream.synchronize()
        found = place.read().tobytes()
        assert found[3:8] == b"abcde" and found[19:24] == b"fghij" and found[40:41] == b"k"
        assert len(found) - found.count(0) == 11
        assert flag.read()[0] == 6
        await stream.submit(Pushbuffer().write_inline(0x77_0000_0FFE, bytes(8)).wait_tasks())
        with pytest.raises(ChannelError, match="INLINE_FAULT") as raised:
            await stream.synchronize()
        assert raised.value.va == 0x77_0000_0FFE and raised.value.fault is not None
        await stream.channel.skip()
        await stream.submit(Pushbuffer().write_inline(where(place, 63), b"l"))
        await stream.synchronize()
        assert place.read()[63] == ord("l")

    run(body)


def test_launch_that_is_cancelled():
    """A launch that is cancelled while it waits for its channel gives its memory and its fence
    back."""

    async def body(device, machine):
        stream = await device.stream()
        args = await vectors(device, stream, 20)
        await (await stream.launch(VECTOR_ADD, 1, 20, args)).synchronize()
        pool, fences = device.engine._pool(device.space), device.engine._fences(device.space)
        used, free = pool.used, len(fences._free)
        async with stream.channel.turn():
            waiting = asyncio.ensure_future(stream.launch(VECTOR_ADD, 1, 20, args))
            while pool.used == used:
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (pool.used, len(fences._free)) == (used, free)

    run(body)
