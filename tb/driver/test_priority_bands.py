"""NEST-1 … NEST-7: device priorities of streams, spaced by the nesting depth."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.priority_bands import PriorityBands, Sharing
from signalbox.driver.device import Device
from signalbox.driver.runtime.limits import Limit
from signalbox.driver.runtime.stream import Stream
from signalbox.tb.driver.fakes import session
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.driver.fakes.session import Body
from signalbox.tb.simulation.runner import choose_seed

MOST, LEAST = Sharing.MOST_URGENT, Sharing.LEAST_URGENT


def run(body: Body, streams: int, sharing: str = MOST, priorities: int = 64) -> None:
    policy = NoPriorityPolicy(1, stream_priorities=streams)
    session.run(body, ComputeSettings(sharing=sharing, priorities=priorities), policy)


async def used(machine: FakeMachine, stream: Stream, **options: Any) -> int:
    """Returns the device priority that the machine uses for a launch."""
    return (await session.launched(machine, stream, **options)).priority


def walked(levels: int, depth: int, ranks: int, sharing: Sharing) -> list[int]:
    """Device priorities by rank, as on the page: assign one band after another until bands or ranks
    run out; remaining ranks get the last band."""
    if sharing is MOST:
        firsts = [
            first for first in range(levels) if first % depth == 0 and first + depth <= levels
        ]
    else:
        firsts = [levels - depth]
        while firsts[-1] >= depth:
            firsts.append(firsts[-1] - depth)
    given = [*firsts[:ranks], *[firsts[-1]] * (ranks - len(firsts))]
    return given if sharing is MOST else given[::-1]


EXAMPLES = pytest.mark.parametrize(
    ("levels", "depth", "ranks", "sharing", "wanted"),
    [
        (12, 4, 3, MOST, [0, 4, 8]),
        (12, 2, 6, MOST, [0, 2, 4, 6, 8, 10]),
        (10, 4, 100, MOST, [0, *[4] * 99]),
        (10, 4, 100, LEAST, [*[2] * 99, 6]),
    ],
)


@EXAMPLES
def test_worked_examples(levels, depth, ranks, sharing, wanted):
    assert [*PriorityBands(ranks, depth, sharing, levels).table] == wanted


@EXAMPLES
def test_fewer_priorities(levels, depth, ranks, sharing, wanted):
    """A device with 12, or 10, device priorities: launches have those of the worked examples; none
    can name a higher one, nor is a larger nesting depth accepted."""

    async def body(device: Device, machine: FakeMachine) -> None:
        device.set_limit(Limit.NESTING_DEPTH, depth)
        for rank in {0, 1, ranks - 2, ranks - 1}:
            assert await used(machine, await device.stream(-rank)) == wanted[rank]
        stream = await device.stream()
        assert await used(machine, stream, priority=levels - 1) == levels - 1
        for wrong in (levels, 63, -1):
            with pytest.raises(ValueError, match=f"priority = {wrong}: 0 … {levels - 1}"):
                await used(machine, stream, priority=wrong)
        with pytest.raises(ValueError, match=f"depth {levels + 1} is outside 1 … {levels}"):
            device.set_limit(Limit.NESTING_DEPTH, levels + 1)

    run(body, ranks, sharing, levels)


@pytest.mark.parametrize("priorities", [0, 65])
def test_wrong_number_of_priorities(priorities):
    with pytest.raises(ValueError, match=f"priorities = {priorities} is outside 1 … 64"):
        ComputeSettings(priorities=priorities)


def test_random_numbers():
    """Priorities computed in advance and on demand are equal; different ones differ by at least the
    depth; the children of a band stay below the next band and below the number of levels."""
    numbers = random.Random(seed := choose_seed())
    print(f"SIGNALBOX_SEED={seed}")
    for _ in range(2000):
        levels, ranks = numbers.randint(1, 200), numbers.randint(1, 300)
        depth, sharing = numbers.randint(1, levels), numbers.choice([*Sharing])
        bands = PriorityBands(ranks, depth, sharing, levels)
        table = [*bands.table]
        assert table == [bands.of(rank) for rank in range(ranks)]
        assert table == walked(levels, depth, ranks, sharing), bands
        different = sorted({*table})
        assert len(different) == min(ranks, bands.available) and bands.available == levels // depth
        assert all(b - a >= depth for a, b in pairwise(different))
        assert table == sorted(table) and table[0] >= 0 and table[-1] + depth <= levels


@pytest.mark.parametrize(("ranks", "depth"), [(0, 1), (1, 0), (1, 65)])
def test_wrong_numbers(ranks, depth):
    with pytest.raises(ValueError, match=r"at least 1|outside 1 … 64"):
        PriorityBands(ranks, depth)


def test_launches_have_their_streams_priority():
    """Kernels have the device priority of their stream; a launch may name another. A new depth
    applies to streams that are created, or given a priority, later."""

    async def body(device: Device, machine: FakeMachine) -> None:
        old = [await device.stream(-rank) for rank in range(3)]
        assert [await used(machine, stream) for stream in old] == [0, 1, 2]
        device.set_limit(Limit.NESTING_DEPTH, 8)
        assert device.limit("nesting-depth") == 8
        new = [await device.stream(-rank) for rank in range(3)]
        assert [await used(machine, stream) for stream in old] == [0, 1, 2]
        assert [stream.device_priority for stream in new] == [0, 8, 16]
        assert [await used(machine, stream) for stream in new] == [0, 8, 16]
        assert await used(machine, await device.stream()) == 0
        assert await used(machine, new[1], priority=63) == 63
        await old[2].set_priority(-2)
        assert await used(machine, old[2]) == 16

    run(body, streams=3)


def test_least_urgent_share():
    async def body(device: Device, machine: FakeMachine) -> None:
        device.set_limit("nesting-depth", 24)
        streams = [await device.stream(-rank) for rank in range(4)]
        assert [await used(machine, stream) for stream in streams] == [16, 16, 16, 40]
        assert await used(machine, await device.stream()) == 16

    run(body, streams=4, sharing="least-urgent")


def test_clamped():
    """A priority out of range is clamped and can be read back; so is its device priority."""

    async def body(device: Device, machine: FakeMachine) -> None:
        assert device.stream_priority_range() == (0, -4)
        device.set_limit(Limit.NESTING_DEPTH, 2)
        for given, kept in ((7, 0), (0, 0), (-4, -4), (-99, -4)):
            stream = await device.stream(given)
            assert (stream.priority, await used(machine, stream)) == (kept, -2 * kept)

    run(body, streams=5)


def test_more_streams_than_priorities():
    """The most urgent of 100 stream priorities share device priority 63."""

    async def body(device: Device, machine: FakeMachine) -> None:
        for rank in (0, 62, 63, 64, 99):
            assert await used(machine, await device.stream(-rank)) == min(rank, 63)

    run(body, streams=100)


@pytest.mark.parametrize("depth", [0, 25, -1])
def test_wrong_limits(depth):
    async def body(device: Device, machine: FakeMachine) -> None:
        with pytest.raises(ValueError, match=f"nesting-depth {depth} is outside 1 … 24"):
            device.set_limit(Limit.NESTING_DEPTH, depth)
        assert device.limit(Limit.NESTING_DEPTH) == 1
        with pytest.raises(ValueError, match="'stack' is not a valid Limit"):
            device.set_limit("stack", 1)
        assert (await device.stream(-1)).device_priority == 0

    run(body, streams=1)


def test_wrong_sharing():
    with pytest.raises(ValueError, match="'all' is not a valid Sharing"):
        run(lambda *_: asyncio.sleep(0), streams=1, sharing="all")
