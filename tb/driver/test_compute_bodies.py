"""The tests of the RTL's compute engine on the one in plain Python."""

import asyncio
from dataclasses import replace
from itertools import product

import pytest

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.hw.config import CONFIGS
from signalbox.tb.driver.compute_bodies import BODIES, Body, address_limit, local_memory
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

UNFIT = {
    (address_limit, "tiny"),  # it has one channel
    (local_memory, "large"),  # that of so many threads exceeds the fake machine's memory
}
FITTING = [one for one in product(BODIES, ("tiny", "default", "large")) if one not in UNFIT]


@pytest.mark.parametrize(("body", "name"), FITTING, ids=lambda one: getattr(one, "__name__", one))
def test_bodies(body: Body, name: str):
    machine = FakeMachine(replace(CONFIGS[name], memory_bytes=SPACE))

    async def main():
        device = await Device.open(machine, PriorityPolicy(1))
        await asyncio.wait_for(body(device), HANGS)
        await device.close()
        assert await device.control.read("INTR") == 0

    asyncio.run(main())
