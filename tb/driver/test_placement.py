"""The placement of blocks follows the task, the context, the environment or the default
(ASID-32)."""

import asyncio
from typing import Any

import pytest

from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.placement import (
    AUTO,
    VARIABLE,
    PlacementError,
    from_environment,
    placement,
)
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import Config
from signalbox.hw.qmd import Placement
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.fakes.session import launched, run

WIDE, DEEP, AFFINITY = Placement.WIDE, Placement.DEEP, Placement.AFFINITY


async def used(machine: FakeMachine, stream: Stream, **options: Any) -> int:
    """Returns the placement that the machine uses for a launch."""
    return (await launched(machine, stream, **options)).placement


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Ignore the environment of the test run."""
    monkeypatch.delenv(VARIABLE, raising=False)


def test_names():
    assert [placement(name) for name in ("auto", "wide", " Deep", "AFFINITY")] == [
        *(AUTO, WIDE, DEEP, AFFINITY)
    ]
    assert placement(DEEP) is DEEP
    with pytest.raises(PlacementError, match="'narrow' is not a placement: choose from auto, wide"):
        placement("narrow")


def test_environment():
    assert from_environment({}) is AUTO
    assert from_environment({VARIABLE: ""}) is AUTO
    assert from_environment({VARIABLE: "affinity"}) is AFFINITY
    with pytest.raises(
        PlacementError, match="variable SIGNALBOX_PLACEMENT: 'x' is not a placement"
    ):
        from_environment({VARIABLE: "x"})


def test_automatic():
    """A single address space with tasks runs wide, several run deep; a space with copies only does
    not count."""

    async def body(device, machine):
        space = device.create_space("other")
        stream, other = await device.stream(), await device.stream(space=space)
        buffer = await device.allocate(64, space=space)
        await other.memcpy_async(buffer, buffer, 64)
        await other.synchronize()
        assert await used(machine, stream) == WIDE
        assert await used(machine, other) == DEEP
        assert await used(machine, stream) == DEEP
        await other.close()
        assert await used(machine, stream) == WIDE

    run(body)


def test_order_of_choices(monkeypatch):
    """The task's choice comes first, then the context's, the settings' and the environment's."""
    monkeypatch.setenv(VARIABLE, "affinity")

    async def by_environment(device, machine):
        contexts = device.compute.contexts
        stream = await device.stream()
        assert await used(machine, stream) == AFFINITY
        context = contexts.of(device.space)
        await contexts.place(context, "deep")
        assert await used(machine, stream) == DEEP
        assert await used(machine, stream, policy="wide") == WIDE
        assert await used(machine, stream, policy=AFFINITY) == AFFINITY
        await contexts.place(context, AUTO)
        assert await used(machine, stream) == WIDE
        # The next owner finds the context in its initial state.
        await stream.close()
        assert await used(machine, await device.stream()) == AFFINITY
        with pytest.raises(PlacementError, match="'far' is not a placement"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, policy="far")

    async def by_settings(device, machine):
        assert await used(machine, await device.stream()) == DEEP

    run(by_environment)
    run(by_settings, ComputeSettings(placement="deep"))


def test_wrong_environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "everywhere")

    async def main():
        with pytest.raises(PlacementError, match="SIGNALBOX_PLACEMENT: 'everywhere'"):
            await Device.open(FakeMachine(Config(memory_bytes=SPACE)))
        # Without compute the variable is not read.
        await Device.open(FakeMachine(Config(memory_bytes=SPACE, sms=0)))

    asyncio.run(main())
