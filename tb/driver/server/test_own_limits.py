"""Limits of single applications: SMs, stream priorities, streams (SHARE-9)."""

import asyncio
import re
from typing import Any

import pytest

from signalbox.driver.compute.sm_set import SmSetError
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.messages import Done, OpenChannel, Opened, RaisePriority
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.status import status
from signalbox.tb.driver.fakes.compute import FakeTask
from signalbox.tb.driver.interruption import interrupt
from signalbox.tb.driver.server.session import Session, serve
from signalbox.tb.models.tasks import FIELDS
from signalbox.tb.reports.serve import main

ARGS = {"CYCLES": 1}


async def run_one(session: Session, stream: Stream, **options: Any) -> FakeTask:
    """A kernel, as the machine has run it."""
    assert session.machine.compute is not None
    await (await stream.launch(SPIN, 1, 1, ARGS, **options)).synchronize()
    return session.machine.compute.over[-1]


MASKED = {"sms": 4, "sm_masks": True}


def test_sms() -> None:
    """A launch goes to those of its SMs that are the application's, and is refused without any."""

    async def body(session: Session) -> None:
        left, right, free = [await session.client(name) for name in ("left", "right", "free")]
        sets = [
            (left, ((None, 0b1100), ([1, 2], 0b1101), (range(4), 0b1100))),
            (right, ((None, 0b1011), ([2], 0b1011))),
            (free, ((None, 0), ([3], 0b0111))),
        ]
        for device, launches in sets:
            stream = await device.stream()
            for sms, mask in launches:
                assert (await run_one(session, stream, sms=sms)).disabled_sms == mask
        stream = await left.stream()
        with pytest.raises(SmSetError, match=r"SMs \[2, 3\]: the server allows .* only \[0, 1\]"):
            await stream.launch(SPIN, 1, 1, ARGS, sms=[2, 3])
        for sms in ([], [4]):
            with pytest.raises(SmSetError):
                await stream.launch(SPIN, 1, 1, ARGS, sms=sms)
        for device, _ in sets:
            await session.works(device)
        rows = [row.split() for row in status(session.server).splitlines()[-3:]]
        assert [row[4] for row in rows] == ["0-1", "2", "all"], rows

    serve(body, config=MASKED, sm_sets={"left": [1, 0], "right": [2]})


def test_sms_of_children() -> None:
    """Kernels that are launched by kernels have the same SMs."""

    async def body(session: Session) -> None:
        device = await session.client()
        device.set_limit(Limit.NESTING_DEPTH, 2)
        stream = await device.stream()
        for sms, mask in ((None, 0b1110), ([0, 3], 0b1110)):
            child = await stream.child(SPIN, 1, 1, ARGS, sms=sms)
            mapping = next(one for one in device.space if one.va <= child.record < one.end)
            at = mapping.pa + child.record - mapping.va
            record = int.from_bytes(device.machine.memory_read(at, 256), "little")
            assert record >> FIELDS["mask_low"][0] & 0xFFFF_FFFF == mask
        with pytest.raises(SmSetError, match="only"):
            await stream.child(SPIN, 1, 1, ARGS, sms=[1])

    nested = {"save_places": 8, "nested_kernels": 60}
    serve(body, config={**MASKED, **nested}, sm_sets={"*": [0]}, depth=2)


def test_all_others() -> None:
    """The name "*" stands for the applications without an entry of their own."""
    settings = ServerSettings(sm_sets={"a": [1], "*": [0]}, greatest={"a": -2, "*": 0}, depth=3)
    a, b = settings.limits("a"), settings.limits("b")
    assert (a.sms, a.greatest, a.priority) == ((1,), -2, 6)
    assert (b.sms, b.greatest, b.priority) == ((0,), 0, 0)
    plain = ServerSettings(sm_sets={"a": [1]}, greatest={"a": -2}).limits("b")
    assert (plain.sms, plain.greatest, plain.priority) == ((), -5, 63)


def test_greatest_priority() -> None:
    """Streams and launches of an application stay below its greatest priority; the server refuses
    calls for more. Others have all priorities."""

    async def body(session: Session) -> None:
        low, other = await session.client("low"), await session.client("other")
        assert low.stream_priority_range() == (0, -1)
        assert other.stream_priority_range() == (0, -5)
        stream = await low.stream(-5)
        assert (stream.priority, (await run_one(session, stream)).priority) == (-1, 1)
        assert (await run_one(session, stream, priority=0)).priority == 0
        with pytest.raises(DeviceError, match="device priority 2 is above 1, the highest that the"):
            await stream.launch(SPIN, 1, 1, ARGS, priority=2)
        call = session.links[low].connection.call
        with pytest.raises(ValueError, match=r"priority = -2 is outside -1 … 0"):
            await call(OpenChannel(1, -2), Opened)
        with pytest.raises(DeviceError, match=r"priority = 2 is above 1, that of .* 'low'"):
            await call(RaisePriority(stream.channel.index, 2), Done)
        assert (await run_one(session, await other.stream(-5))).priority == 5
        assert (await run_one(session, await other.stream(), priority=63)).priority == 63

    serve(body, greatest={"low": -1})


def test_streams() -> None:
    """An application has the allowed number of streams at a time, however they are opened; others
    have their own."""

    async def body(session: Session) -> None:
        device, other = await session.client("first"), await session.client("other")

        async def refused(device: Device) -> None:
            with pytest.raises(DeviceError, match="streams are limited by the server: 3 at most"):
                await device.stream()

        opening = [device.stream() for _ in range(5)]
        found = await asyncio.gather(*opening, return_exceptions=True)
        streams = [one for one in found if isinstance(one, Stream)]
        assert len(streams) == 3
        assert all(isinstance(one, DeviceError) for one in found if one not in streams)
        await refused(device)
        for stream in [await other.stream() for _ in range(3)]:
            await session.works(other, stream)
        await refused(other)
        await streams[1].close()
        await interrupt(device.stream(), 1)
        if len(device._streams) < 3:
            await device.stream()
        await refused(device)
        await session.works(device, streams[0])

    serve(body, streams_each=3)


def test_machine_without_masks() -> None:
    """A server does not start if the machine lacks the SMs, or cannot disable the others."""

    async def body(_: Session) -> None: ...

    with pytest.raises(ValueError, match=r"SMs of 'a': the machine cannot disable SMs"):
        serve(body, config={"sms": 4}, sm_sets={"a": [0]})
    with pytest.raises(ValueError, match=r"SMs of 'a': SM 4: the machine has SMs 0 … 3"):
        serve(body, config=MASKED, sm_sets={"a": [4]})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"streams_each": -1}, "streams_each = -1 is negative"),
        ({"greatest": {"a": 1}}, "greatest stream priority of 'a' = 1 is outside -5 … 0"),
        ({"greatest": {"a": -6}}, "greatest stream priority of 'a' = -6 is outside -5 … 0"),
        ({"sm_sets": {"a": []}}, "SMs of 'a' = []: at least one, from 0 on"),
        ({"sm_sets": {"a": [-1, 0]}}, "SMs of 'a' = [-1, 0]: at least one, from 0 on"),
        ({"sm_sets": {"a": 3}}, "SMs of 'a': 3: numbers of SMs are needed"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        ServerSettings(**settings)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--sm-set", "a"], "'a' is not of the form NAME=0-3,6"),
        (["--sm-set", "a=0-"], "'a=0-' is not of the form NAME=0-3,6"),
        (["--sm-set", "a=1-0"], "SMs of 'a' = []: at least one"),
        (["--sm-set", "a=0-99"], "SMs of 'a': SM "),
        (["--greatest", "a=-6"], "greatest stream priority of 'a' = -6 is outside"),
        (["--streams-each", "-1"], "streams_each = -1 is negative"),
    ],
)
def test_wrong_options(capsys: pytest.CaptureFixture[str], options: list[str], text: str) -> None:
    with pytest.raises(SystemExit):
        main(["--config", "tiny", *options])
    assert re.search(re.escape(text), capsys.readouterr().err)
