"""Preemption settings of contexts and launches (PREEMPT-1, PREEMPT-4, PREEMPT-5)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.contexts import ContextError
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.preemption import PreemptionError, Urgency, level, urgency
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.hw.config import Config
from signalbox.hw.registers import CONTEXT, PreemptionLevel
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
    with pytest.raises(
        PreemptionError, match="'soon' is not an urgency: choose from context, drain, save"
    ):
        urgency("soon")


def test_area():
    """All contexts share one save area, large enough for all places; nothing else is allocated
    there. SAVE is set for contexts with that urgency, until they end."""

    async def body(device: Device, machine: FakeMachine):
        page, *others = areas(machine)
        assert set(others) == {page} and page < 1 << 28
        low, size = page << 12, CONFIG.save_places * CONFIG.place_bytes
        assert device.info.save_places * device.info.save_place_bytes == size
        for _ in range(40):
            address = device.memory.allocate(0x1000).address
            assert not low <= address < low + size
        contexts = device.engine.contexts
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


def test_launches():
    """A launch has the urgency of its context, or its own."""

    async def body(device: Device, machine: FakeMachine):
        assert machine.compute is not None
        stream = await device.stream()
        for wanted, number in (("context", 0), ("drain", 1), (Urgency.SAVE, 2)):
            task = await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, urgency=wanted)
            await task.synchronize()
            assert machine.compute.over[-1].urgency == number
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        assert machine.compute.over[-1].urgency == 0
        with pytest.raises(PreemptionError, match="'now' is not an urgency"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, urgency="now")

    run(body)


def test_context_has_its_own():
    """The urgency CONTEXT is not allowed for a context itself."""

    async def body(device: Device, machine: FakeMachine):
        contexts = device.engine.contexts
        with pytest.raises(PreemptionError, match="drain or save"):
            await contexts.urge(await contexts.create("own"), "context")

    run(body)
    with pytest.raises(PreemptionError, match="drain or save"):
        run(body, urgency="context")


def test_default():
    """Contexts have the urgency of the settings."""

    async def body(device: Device, machine: FakeMachine):
        assert all(word >> 31 for word in areas(machine))
        context = await device.engine.contexts.create("patient")
        await device.engine.contexts.urge(context, Urgency.DRAIN)
        assert sum(word >> 31 for word in areas(machine)) == CONFIG.contexts - 1

    run(body, urgency="save")


def test_without_places():
    """A machine without save places cannot stop blocks; SAVE is refused."""

    async def body(device: Device, machine: FakeMachine):
        assert not any(areas(machine))
        context = await device.engine.contexts.create("mine")
        with pytest.raises(PreemptionError, match="it was built with save_places"):
            await device.engine.contexts.urge(context, "save")
        assert context.urgency is Urgency.DRAIN
        stream = await device.stream()
        with pytest.raises(PreemptionError, match="it was built with save_places"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, urgency="save")

    run(body, Config(memory_bytes=SPACE))
    with pytest.raises(PreemptionError, match="cannot stop blocks"):
        run(body, Config(memory_bytes=SPACE), urgency="save")


def levels(machine: FakeMachine) -> list[int]:
    """SAVE_AREA.LEVEL of each context."""
    return [CONTEXT["SAVE_AREA"].unpack(word)["LEVEL"] for word in areas(machine)]


def test_levels():
    """The level of a context is set by name until it ends, independently of its urgency."""

    async def body(device: Device, machine: FakeMachine):
        assert set(levels(machine)) == {PreemptionLevel.CTA}
        contexts = device.engine.contexts
        own = await contexts.create("own")
        await contexts.urge(own, "save")
        for name in ("wfi", "cta", "cilp"):
            await contexts.set_level(own, name)
            assert levels(machine)[own.number] == own.level == level(name)
            assert areas(machine)[own.number] >> 31 and own.urgency is Urgency.SAVE
        with pytest.raises(PreemptionError, match="'soon' is not a preemption level: choose from"):
            await contexts.set_level(own, "soon")
        await contexts.end(own)
        assert set(levels(machine)) == {PreemptionLevel.CTA}
        with pytest.raises(ContextError, match="was ended"):
            await contexts.set_level(own, "wfi")

    run(body)


def test_default_level():
    """Contexts have the level of the settings."""

    async def body(device: Device, machine: FakeMachine):
        context = await device.engine.contexts.create("own")
        assert context.level is PreemptionLevel.CILP
        assert set(levels(machine)) == {PreemptionLevel.CILP}

    run(body, level="cilp")


def test_levels_without_places():
    """CILP needs save places; the other levels do not."""

    async def body(device: Device, machine: FakeMachine):
        context = await device.engine.contexts.create("mine")
        with pytest.raises(PreemptionError, match="it was built with save_places"):
            await device.engine.contexts.set_level(context, "cilp")
        assert context.level is PreemptionLevel.CTA
        await device.engine.contexts.set_level(context, "wfi")
        assert levels(machine)[context.number] == PreemptionLevel.WFI

    run(body, Config(memory_bytes=SPACE))
    with pytest.raises(PreemptionError, match="cannot stop blocks"):
        run(body, Config(memory_bytes=SPACE), level="cilp")
