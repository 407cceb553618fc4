"""Settings of kernels that launch kernels (NEST-10, NEST-11, NEST-15)."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.child import NestingError
from signalbox.driver.compute.contexts import OutOfContexts
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.physical import MemoryUseError
from signalbox.driver.runtime.limits import Limit
from signalbox.hw.config import Config
from signalbox.hw.registers import CONTEXT
from signalbox.tb.driver.fakes.compute import RELEASES
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.interruption import interrupt

PLAIN = Config(memory_bytes=SPACE, save_places=8)
NESTED = Config(memory_bytes=SPACE, save_places=8, nested_kernels=20)

ARGS = {"CYCLES": 10}


def run(
    config: Config,
    body: Callable[[Device, FakeMachine], Coroutine[Any, Any, None]],
    kind: type[FakeMachine] = FakeMachine,
) -> None:
    machine = kind(config)

    async def main() -> None:
        device = await Device.open(machine, NoPriorityPolicy(1))
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()

    asyncio.run(main())


def depths(machine: FakeMachine) -> list[int]:
    """PLACEMENT.DEPTH of each context."""
    assert machine.compute is not None
    words = (context["PLACEMENT"] for context in machine.compute.contexts)
    return [CONTEXT["PLACEMENT"].unpack(word)["DEPTH"] for word in words]


def test_depth() -> None:
    """The limit becomes the depth of a context at its next launch."""

    async def body(device: Device, machine: FakeMachine) -> None:
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        assert set(depths(machine)) == {0}
        for limit in (3, 5):
            before = sorted(depths(machine))
            device.set_limit(Limit.NESTING_DEPTH, limit)
            assert sorted(depths(machine)) == before
            await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
            assert sorted(depths(machine)) == [*[0] * (len(before) - 1), limit]

    run(NESTED, body)


def test_less_depth() -> None:
    """The limit cannot be less than the depth of a context in use: its kernels would be in the
    bands of other streams. It can before the first launch that has it, and once the context is no
    longer in use."""

    async def body(device: Device, machine: FakeMachine) -> None:
        stream = await device.stream()
        for limit in (7, 5):
            device.set_limit(Limit.NESTING_DEPTH, limit)
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        for limit in (4, 1):
            with pytest.raises(DeviceError, match=rf"nesting-depth {limit}: .* nest 5 deep"):
                device.set_limit("nesting-depth", limit)
            assert device.limit(Limit.NESTING_DEPTH) == max(depths(machine)) == 5
        device.set_limit(Limit.NESTING_DEPTH, 5)
        await stream.close()
        device.set_limit(Limit.NESTING_DEPTH, 2)
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        assert max(depths(machine)) == 2

    run(NESTED, body)


def test_pending() -> None:
    """The limit of pending launches applies to the machine, and reaches it with the next launch."""

    async def body(device: Device, machine: FakeMachine) -> None:
        assert machine.compute is not None
        stream = await device.stream()
        assert machine.compute.words["CHILD_LIMIT"] == 0
        for limit in (device.limit(Limit.PENDING_LAUNCHES), 1, 7):
            device.set_limit("pending-launches", limit)
            await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
            assert machine.compute.words["CHILD_LIMIT"] == limit
        for wrong in (0, 2049):
            with pytest.raises(ValueError, match=f"pending-launches {wrong} is outside 1 … 2048"):
                device.set_limit(Limit.PENDING_LAUNCHES, wrong)

    run(NESTED, body)


class SlowMachine(FakeMachine):
    """Its answers to writes of registers take time."""

    async def write32(self, offset: int, value: int) -> None:
        await super().write32(offset, value)
        await self.wait_cycles(1)


@pytest.mark.parametrize("turns", range(12))
def test_interrupted_launch(turns: int) -> None:
    """After a launch that was cancelled, limits still reach the machine with the next one."""

    async def body(device: Device, machine: FakeMachine) -> None:
        assert machine.compute is not None
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        most = device.limit(Limit.PENDING_LAUNCHES)
        device.set_limit(Limit.NESTING_DEPTH, 5)
        device.set_limit(Limit.PENDING_LAUNCHES, 7)
        await interrupt(stream.launch(SPIN, 1, 32, ARGS), turns)
        device.set_limit(Limit.PENDING_LAUNCHES, most)
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        assert max(depths(machine)) == 5
        assert machine.compute.words["CHILD_LIMIT"] == most

    run(NESTED, body, SlowMachine)


def test_without() -> None:
    """A machine without nested launches accepts a nesting depth, but has no children."""

    async def body(device: Device, machine: FakeMachine) -> None:
        device.set_limit(Limit.NESTING_DEPTH, 5)
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 32, ARGS)).synchronize()
        assert set(depths(machine)) == {0}
        with pytest.raises(NestingError, match="no nested launches"):
            await stream.child(SPIN, 1, 32, ARGS)

    run(PLAIN, body)


def test_child() -> None:
    """A child can be an argument; its record is 256-byte aligned, and names no release but that of
    `done`. Its memory is free again at the end; wrong arguments leave nothing behind."""

    async def body(device: Device, machine: FakeMachine) -> None:
        stream = await device.stream()
        with pytest.raises(ValueError, match="takes CYCLES"):
            await stream.child(SPIN, 1, 32, {})
        with pytest.raises(NestingError, match="spin has local memory"):
            await stream.child(replace(SPIN, local=16), 1, 32, ARGS)
        first = await stream.child(SPIN, 1, 32, ARGS)
        second = await stream.child(SPIN, 2, 64, ARGS)
        assert int(first) == first.record != second.record
        assert first.record % 256 == second.record % 256 == 0
        assert "'spin'" in str(first)
        word = await device.allocate(4)
        told = await stream.child(SPIN, 1, 32, ARGS, done=word)
        for child, named in ((first, []), (told, [stream.space.at(word)])):
            where = stream.space.translate(child.record)
            record = int.from_bytes(machine.memory_read(where, 256), "little")
            found = [record >> at for at in RELEASES if record >> at + 55 & 1]
            assert [release & (1 << 40) - 1 for release in found] == named
        told.free()
        first.free()
        third = await stream.child(SPIN, 1, 32, ARGS)
        assert third.record == first.record
        for _ in range(2):
            with pytest.raises(MemoryUseError, match=r"'spin' .* is freed twice"):
                first.free()
        with pytest.raises(MemoryUseError, match="was freed"):
            await stream.child(SPIN, 1, 32, {"CYCLES": first})
        fourth = await stream.child(SPIN, 1, 32, ARGS)
        assert fourth.record not in (second.record, third.record)
        for one in (second, third, fourth):
            one.free()

    run(NESTED, body)


def test_child_without_context() -> None:
    """In a space without a context there are no children, either; nothing is left behind."""

    async def body(device: Device, machine: FakeMachine) -> None:
        contexts = device.engine.contexts
        taken = [await contexts.create() for _ in range(device.info.contexts)]
        stream = await device.stream()
        for prepare in (stream.launch, stream.child, stream.child):
            with pytest.raises(OutOfContexts, match="no context for tasks of address space"):
                await prepare(SPIN, 1, 32, ARGS)
        await stream.close()
        for one in taken:
            await contexts.end(one)
        stream = await device.stream()
        first = await stream.child(SPIN, 1, 32, ARGS)
        assert first.record % (1 << 14) == 0, "the first of its pages"
        first.free()

    run(NESTED, body)


def test_children() -> None:
    """Kernels prepared together have records at equal distances, and their own arguments; each is
    freed on its own. Wrong arguments leave nothing behind."""

    async def body(device: Device, machine: FakeMachine) -> None:
        stream = await device.stream()
        assert await stream.children(SPIN, 1, 32, []) == []
        with pytest.raises(ValueError, match="takes CYCLES"):
            await stream.children(SPIN, 1, 32, [ARGS, {}])
        with pytest.raises(NestingError, match="spin has local memory"):
            await stream.children(replace(SPIN, local=16), 1, 32, [ARGS])
        first = await stream.child(SPIN, 1, 32, ARGS)
        several = await stream.children(SPIN, 2, 32, [{"CYCLES": n} for n in range(9)])
        records = [one.record for one in several]
        assert {later - earlier for earlier, later in pairwise(records)} == {512}
        assert first.record + 512 == records[0]
        for n, one in enumerate(several):
            where = stream.space.translate(one.record + 256)
            assert int.from_bytes(machine.memory_read(where, 4), "little") == n
        several[4].free()
        again = await stream.child(SPIN, 1, 32, ARGS)
        assert again.record == records[4]
        for one in (first, again, *several[:4], *several[5:]):
            one.free()

    run(NESTED, body)
