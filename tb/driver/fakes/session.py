"""A device on the fake machine, for the body of a test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from signalbox.driver.channel.priority_policy import NoPriorityPolicy, Policy
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.compute import FakeTask
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

__all__ = ["Body", "launched", "run"]

Body = Callable[[Device, FakeMachine], Coroutine[Any, Any, None]]


def run(body: Body, settings: ComputeSettings | None = None, policy: Policy | None = None) -> None:
    """Run a body on a fresh device; by default, streams have one priority."""
    machine = FakeMachine(Config(memory_bytes=SPACE))

    async def main():
        device = await Device.open(machine, policy or NoPriorityPolicy(1), compute=settings)
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()

    asyncio.run(main())


async def launched(machine: FakeMachine, stream: Stream, **options: Any) -> FakeTask:
    """Launch a kernel and wait for its end. Returns the machine's view of the task."""
    await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1}, **options)).synchronize()
    assert machine.compute is not None
    return machine.compute.over[-1]
