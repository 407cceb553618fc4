"""Launches for some SMs only: the mask of the record, and sets that are refused (HOST-10)."""

import asyncio
from typing import Any

import numpy as np
import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.sm_set import SmSetError, disabled_sms
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import ENDLESS
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.fakes.session import Body, launched
from signalbox.tb.driver.hangs import HANGS


def run(body: Body, **config: Any) -> None:
    machine = FakeMachine(Config(memory_bytes=SPACE, **config))

    async def main() -> None:
        device = await Device.open(machine, NoPriorityPolicy(1))
        await asyncio.wait_for(body(device, machine), HANGS)
        await device.close()

    asyncio.run(main())


def test_mask_of_the_record() -> None:
    """The record holds the excluded SMs; the included ones may be given as any collection of
    numbers."""

    async def body(device: Device, machine: FakeMachine) -> None:
        assert device.info.masked_sms == 6
        stream = await device.stream()
        for sms, mask in (
            (None, 0),
            (range(6), 0),
            ({5}, 0b011111),
            ([0, 1, 1], 0b111100),
            (np.arange(2, 5), 0b100011),
        ):
            assert (await launched(machine, stream, sms=sms)).disabled_sms == mask
        free = device.memory.free_bytes
        refused: tuple[Any, ...] = (), [6], [-1, 0], 3, "0"
        for sms in refused:
            with pytest.raises(SmSetError):
                await stream.launch(ENDLESS, 1, 32, {}, sms=sms)
        assert device.memory.free_bytes == free, "memory was taken"

    run(body, sms=6, sm_masks=True)


def test_machine_without_masks() -> None:
    async def body(device: Device, machine: FakeMachine) -> None:
        stream = await device.stream()
        assert not (await launched(machine, stream, sms=range(8))).disabled_sms
        with pytest.raises(SmSetError, match=r"cannot disable SMs for a kernel \(Config.sm_masks"):
            await launched(machine, stream, sms=[0])

    run(body)


@pytest.mark.parametrize(
    ("sms", "wanted", "message"),
    [
        (8, [], "none is named: a kernel needs an SM"),
        (8, [1, 8], "SM 8: the machine has SMs 0 … 7"),
        (8, [-1], "SM -1: the machine has SMs 0 … 7"),
        (8, 3, "3: numbers of SMs are needed, such as .0, 1."),
        (8, "01", "'01': numbers of SMs are needed, such as .0, 1."),
        (8, [1.0], ".1.0.: numbers of SMs are needed, such as .0, 1."),
        (66, range(65), "SM 65 cannot be disabled: task records have bits for the first 64 SMs"),
    ],
)
def test_refused(sms: int, wanted: Any, message: str) -> None:
    with pytest.raises(SmSetError, match=f"^{message}$"):
        disabled_sms(Config(sms=sms, sm_masks=True), wanted)


def test_more_sms_than_bits() -> None:
    machine = Config(sms=66, sm_masks=True)
    assert disabled_sms(machine, range(63, 66)) == (1 << 63) - 1
    assert disabled_sms(machine, {0, 64, 65}) == (1 << 64) - 2
