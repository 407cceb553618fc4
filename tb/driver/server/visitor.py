"""A process with several clients that come and go: `python -m signalbox.tb.driver.server.visitor
SOCKET SEED SECONDS CLIENTS`. Prints how often each kind of visit was made.

With `python -m signalbox.tb.driver.server.visitor SOCKET SEED KIND`, one client makes visits of one
kind, over and over, until it is killed.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from signalbox.driver.client.shared_machine import SharedMachine
from signalbox.driver.client.spaces import ClientSpace
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.kernels.library import ENDLESS, SPIN
from signalbox.driver.memory.physical import OutOfMemory
from signalbox.hw.config import SLOT_BYTES
from signalbox.hw.methods import Userd
from signalbox.tb.driver.compute_bodies import addition, check

__all__ = ["KINDS", "VISITS"]

_HOLE = 0x7000_0000
"""Address without a mapping."""


async def adds(device: Device, rng: random.Random) -> None:
    """Sums are right, on several streams."""
    for _ in range(rng.randint(1, 3)):
        task, args = await addition(device, await device.stream(), rng.getrandbits(31))
        await task.synchronize()
        check(args)


async def keeps(device: Device, rng: random.Random) -> None:
    """Fresh memory is zero, and what is written stays."""
    buffer = await device.allocate(1 << 14)
    assert not buffer.read().any(), "data of somebody else"
    buffer.fill(value := rng.randrange(1, 256))
    task, args = await addition(device, await device.stream(), rng.getrandbits(31))
    await task.synchronize()
    check(args)
    assert (buffer.read() == value).all(), "somebody else has written"


async def faults(device: Device, rng: random.Random) -> None:
    """A fault is reported to its sender, which continues."""
    stream, target = await device.stream(), await device.allocate(64)
    await stream.memcpy_async(target, _HOLE + 4096 * rng.randrange(16), 64)
    try:
        await stream.synchronize()
    except ChannelError as error:
        assert error.fault is None or error.fault.va // 4096 * 4096 >= _HOLE, error
    else:
        raise AssertionError("no fault was told")
    await stream.channel.skip()
    await stream.synchronize()


async def floods(device: Device, rng: random.Random) -> None:
    """More launches than the machine takes at once."""
    stream = await device.stream()
    for _ in range(rng.randint(5, 30)):
        await stream.launch(SPIN, 1, 1, {"CYCLES": 20})
    if rng.random() < 0.5:
        await stream.synchronize()


async def stays_busy(device: Device, rng: random.Random) -> None:
    """Leaves kernels behind an acquire that never passes."""
    stream, word = await device.stream(), await device.allocate(4096)
    await stream.submit(Pushbuffer().acquire(device.space.at(word), 1))
    for _ in range(rng.randint(1, 4)):
        await stream.launch(SPIN, 1, 1, {"CYCLES": 20})


def userd(device: Device) -> int:
    """Virtual address of USERD of a client's first channel: behind the page of its ring."""
    assert isinstance(device.space, ClientSpace)
    return super(ClientSpace, device.space).upper + 4096


async def reaches_out(device: Device, rng: random.Random) -> None:
    """Writes to on-chip semaphores, and to GP_PUT of its own channel."""
    stream, commands = await device.stream(), Pushbuffer()
    for _ in range(8):
        slot = device.info.window + SLOT_BYTES * rng.randrange(16)
        commands.release(slot, rng.getrandbits(32), wfi=False)
    commands.release(userd(device) + Userd.GP_PUT, rng.randrange(64), wfi=False)
    await stream.submit(commands)
    with suppress(ChannelError, TimeoutError):
        await asyncio.wait_for(stream.synchronize(), rng.random())


async def never_ends(device: Device, rng: random.Random) -> None:
    """Waits for a kernel without an end, on one SM or several."""
    stream = await device.stream()
    task = await stream.launch(ENDLESS, rng.choice((1, 2, 50)), 32, {})
    await task.synchronize()


Visit = Callable[[Device, random.Random], Awaitable[None]]

VISITS: tuple[Visit, ...] = (
    adds,
    keeps,
    faults,
    floods,
    stays_busy,
    reaches_out,
)

_WEIGHTS = 6, 6, 4, 4, 1, 2

KINDS = {visit.__name__: visit for visit in (*VISITS, never_ends)}
"""Visits that a client can be killed amid."""


async def _visit(path: str, kind: Visit, rng: random.Random, made: Counter[str]) -> bool:
    """Make a visit. Returns False if there is no room yet."""
    try:
        device = await Device.connect(path, f"visitor {rng.getrandbits(16)}")
    except (DeviceError, OutOfMemory):  # earlier clients have not been removed yet
        await asyncio.sleep(0.05)
        return False
    await kind(device, rng)
    made[kind.__name__] += 1
    if rng.random() < 0.7:
        await device.close(drain=kind is floods and rng.random() < 0.5)
    else:
        assert isinstance(device._owner, SharedMachine)
        device._owner._connection.close()  # without a word
    return True


async def _client(path: str, seed: str, number: int, until: float, made: Counter[str]) -> None:
    """Make visits until `until`, at least one; each kind of visit is the first one of some
    client."""
    rng, kind = random.Random(f"{seed}/{number}"), VISITS[number % len(VISITS)]
    first = True
    while first or time.monotonic() < until:
        if await _visit(path, kind, rng, made):
            first, (kind,) = False, rng.choices(VISITS, _WEIGHTS)


async def _together(path: str, seed: str, seconds: float, clients: int) -> None:
    made: Counter[str] = Counter()
    until = time.monotonic() + seconds
    await asyncio.gather(*(_client(path, seed, n, until, made) for n in range(clients)))
    print(json.dumps(made))


async def _until_killed(path: str, seed: str, kind: Visit) -> None:
    rng, made = random.Random(seed), Counter[str]()
    while True:
        await _visit(path, kind, rng, made)


if __name__ == "__main__":
    socket, seed, *rest = sys.argv[1:]
    if rest[0] in KINDS:
        asyncio.run(_until_killed(socket, seed, KINDS[rest[0]]))
    else:
        asyncio.run(_together(socket, seed, float(rest[0]), int(rest[1])))
