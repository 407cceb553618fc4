"""Urgency of contexts (PREEMPT-4, PREEMPT-5)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.contexts import ContextError
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.preemption import PreemptionError, Urgency, urgency
from signalbox.driver.device import Device
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

CONFIG = Config(memory_bytes=SPACE, save_places=8)

Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]


def run(body: Body, config: Config = CONFIG, **settings: Any) -> None:
    machine = FakeMachine(config)

    async def main():
        compute = ComputeSettings(**settings)
        device = await Device.open(machine, NoPriorityPolicy(1), compute=compute)
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()

    asyncio.run(main())


def areas(machine: FakeMachine) -> list[int]:
    """SAVE_AREA of each context."""
    assert machine.compute is not None
    return [words["SAVE_AREA"] for words in machine.compute.contexts]


@pytest.mark.parametrize("wanted", [Urgency.SAVE, "save", " Save "])
def test_names(wanted: Urgency | str):
    assert urgency(wanted) is Urgency.SAVE


def test_unknown_name():
    with pytest.raises(PreemptionError, match="'soon' is not an urgency: choose from drain, save"):
        urgency("soon")


def test_area():
    """All contexts have one save area, large enough for all places, from which nothing else is
    allocated. SAVE is set for those with that urgency, until they end."""

    async def body(device: Device, machine: FakeMachine):
        page, *others = areas(machine)
        assert set(others) == {page} and page < 1 << 28
        low, size = page << 12, CONFIG.save_places * CONFIG.place_bytes
        assert device.info.save_places * device.info.save_place_bytes == size
        for _ in range(40):
            address = device.memory.allocate(0x1000).address
            assert not low <= address < low + size
        contexts = device.compute.contexts
        first, second = await contexts.create("first"), await contexts.create("second")
        await contexts.urge(first, "save")
        saves = [word >> 31 for word in areas(machine)]
        assert [n for n, one in enumerate(saves) if one] == [first.number]
        assert (first.urgency, second.urgency) == (Urgency.SAVE, Urgency.DRAIN)
        await contexts.end(first)
        assert set(areas(machine)) == {page}
        with pytest.raises(ContextError, match="was ended"):
            await contexts.urge(first, "save")

    run(body)


def test_default():
    """Contexts have the urgency of the settings."""

    async def body(device: Device, machine: FakeMachine):
        assert all(word >> 31 for word in areas(machine))
        context = await device.compute.contexts.create("patient")
        await device.compute.contexts.urge(context, Urgency.DRAIN)
        assert sum(word >> 31 for word in areas(machine)) == CONFIG.contexts - 1

    run(body, urgency="save")


def test_without_places():
    """A machine without save places cannot stop blocks; SAVE is refused."""

    async def body(device: Device, machine: FakeMachine):
        assert not any(areas(machine))
        context = await device.compute.contexts.create("mine")
        with pytest.raises(PreemptionError, match="it was built with save_places"):
            await device.compute.contexts.urge(context, "save")
        assert context.urgency is Urgency.DRAIN

    run(body, Config(memory_bytes=SPACE))
    with pytest.raises(PreemptionError, match="cannot stop blocks"):
        run(body, Config(memory_bytes=SPACE), urgency="save")
