"""Errors of kernels that kernels have launched name all kernels above them (NEST-10, NEST-11)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.lineage import lineage
from signalbox.driver.device import Device
from signalbox.driver.faults.task_error import Ancestor
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.runtime.limits import Limit
from signalbox.hw.config import Config
from signalbox.tb.driver.compute_bodies import failure
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.nested_bodies import (
    BAD,
    HOLE,
    WRAP,
    chain_of_a_fault,
    chain_of_a_refusal,
    line_of,
)

NESTED = Config(memory_bytes=SPACE, save_places=8, nested_kernels=20)

PARENT = 224
"""Byte offset in a record of the parent's address >> 8."""


def run(depth: int, body: Callable[[Device], Coroutine[Any, Any, None]]) -> None:
    """Run a body on the Python model, with a nesting depth."""
    machine = FakeMachine(NESTED)

    async def main() -> None:
        device = await Device.open(machine, NoPriorityPolicy(1))
        device.set_limit(Limit.NESTING_DEPTH, depth)
        await asyncio.wait_for(body(device), HANGS)
        await device.close()

    asyncio.run(main())


def link(device: Device, child: int, parent: int) -> None:
    """Write the parent into a record, as the machine does."""
    at = device.space.translate(child) + PARENT
    device.machine.memory_write(at, (parent >> 8).to_bytes(4, "little"))


def test_fault() -> None:
    run(4, chain_of_a_fault)


def test_refusal() -> None:
    run(3, chain_of_a_refusal)


def test_one_child_of_two() -> None:
    """Two kernels launch the same child in turn: each error names the launching kernel."""

    async def body(device: Device) -> None:
        stream, out = await device.stream(), await device.allocate(16)
        leaf = await stream.child(BAD, (2, 3), 128, {"TO": HOLE})
        both = [(await line_of(device, stream, leaf, 1, out))[1] for _ in range(2)]
        for middle in (*both, both[0]):
            args = {"CHILD": middle, "IN": out, "OUT": out}
            error = await failure(await stream.launch(WRAP, 1, 32, args))
            assert error.parents[0] == Ancestor("wrap", middle.record)
            await stream.channel.resume()

    run(4, body)


def test_unknown_kernels() -> None:
    """A parent with a program unknown to the driver has no name; an unmapped record ends the chain,
    and so does a cycle."""

    async def body(device: Device) -> None:
        stream = await device.stream()
        child, parent = [await stream.child(SPIN, 1, 32, {"CYCLES": 1}) for _ in range(2)]
        link(device, child.record, parent.record)
        link(device, parent.record, 0x77_0000_0000)
        found = device.engine.lineage(device.space, child.record)
        assert found.names == ("spin", "spin", "")
        assert found.records == (child.record, parent.record, 0x77_0000_0000)
        nameless = lineage(device.machine, device.space, child.record, lambda space, va: None)
        assert nameless.names == ("", "", "") and str(nameless.parents[0]) == f"{parent.record:#x}"
        link(device, parent.record, child.record)
        assert len(device.engine.lineage(device.space, child.record).records) == 24

    run(4, body)


def test_killed_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task's descendants are killed with it; other kernels and freed ones are not."""

    async def body(device: Device) -> None:
        stream, killed = await device.stream(), []
        names = "root", "child", "grandchild", "other", "freed"
        made = {name: await stream.child(SPIN, 1, 32, {"CYCLES": 1}) for name in names}
        records = {name: one.record for name, one in made.items()}
        pairs = {"child": "root", "grandchild": "child", "freed": "root"}
        for child, parent in pairs.items():
            link(device, records[child], records[parent])
        made["freed"].free()

        async def kill(space: AddressSpace, record: int) -> None:
            assert space is device.space
            killed.append(record)
            await device.machine.wait_cycles(1)

        monkeypatch.setattr(device.compute, "kill_task", kill)
        await device.engine.kill_tree(device.space, records["root"])
        assert killed == [records[name] for name in ("root", "child", "grandchild")]

    run(4, body)
