"""The tests of the RTL's compute engine on the one in plain Python."""

import asyncio
from dataclasses import replace

import pytest

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.hw.config import CONFIGS
from signalbox.tb.driver.compute_bodies import BODIES, Body, local_memory
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@pytest.mark.parametrize("name", ["tiny", "default", "large"])
def test_bodies(body: Body, name: str):
    if body is local_memory and name == "large":
        pytest.skip("its local memory is larger than the memory of the fake machine")
    machine = FakeMachine(replace(CONFIGS[name], memory_bytes=SPACE))

    async def main():
        device = await Device.open(machine, PriorityPolicy(1))
        await asyncio.wait_for(body(device), HANGS)
        await device.close()
        assert await device.control.read("INTR") == 0

    asyncio.run(main())
