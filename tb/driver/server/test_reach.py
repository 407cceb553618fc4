"""Memory of channels and on-chip semaphores, out of reach of other applications' raw commands
(SHARE-9)."""

import random

import pytest

from signalbox.driver.channel.channel import Channel
from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.memory.physical import MemoryUseError
from signalbox.driver.protocol.messages import Done, Map
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.config import SLOT_BYTES
from signalbox.hw.errors import Cause
from signalbox.hw.methods import CeMethod, Reduction, Userd
from signalbox.tb.driver.server.session import Session, serve
from signalbox.tb.driver.server.visitor import userd
from signalbox.tb.simulation.runner import choose_seed


async def both(session: Session) -> tuple[Device, Stream, Device, Stream]:
    """An attacker and a victim, each with a stream."""
    attacker, victim = await session.client("attacker"), await session.client("victim")
    return attacker, await attacker.stream(), victim, await victim.stream()


def system_memory(session: Session, number: int) -> dict[str, tuple[int, int, int]]:
    """Physical address, virtual address and size of the ring, USERD and pushbuffers of an
    application's channel, by name."""
    ((_, served),) = session.server.applications[number].channels.items()
    assert isinstance(served.channel, Channel)
    buffers = served.channel._ring, served.channel._userd, served.channel._arena
    names = "ring", "USERD", "pushbuffers"
    space = served.channel.space
    return {
        name: (one.address, space.at(one), one.size)
        for name, one in zip(names, buffers, strict=True)
    }


def test_mapping():
    """Nobody can map memory of a channel, be it another's or one's own."""

    async def run(session: Session) -> None:
        attacker, _, victim, stream = await both(session)
        call = session.links[attacker].connection.call
        for number in range(2):
            for pa, _, _ in system_memory(session, number).values():
                request = Map(1, 0x5000_0000, pa, 4096, 4096, read_only=False, atomics=True)
                with pytest.raises(MemoryUseError, match="are not memory of application 0"):
                    await call(request, Done)
        await session.works(victim, stream)

    serve(run)


@pytest.mark.parametrize("direction", ["dst", "src"])
def test_physical_copies(direction: str):
    """Copies with physical addresses are refused, whatever the address and the mode."""

    async def run(session: Session) -> None:
        attacker, own, victim, stream = await both(session)
        memory = {name: pa for name, (pa, _, _) in system_memory(session, 1).items()}
        before = session.machine.memory_read(memory["ring"], 512)
        buffer = attacker.space.at(await attacker.allocate(4096))
        for mode in (0, 1, 2):
            for pa in (*memory.values(), victim.memory.base):
                dst, src = (pa, buffer) if direction == "dst" else (buffer, pa)
                commands = Pushbuffer().inc(4, CeMethod.SET_SRC_PHYS_MODE, mode, mode)
                commands.copy(dst, src, 64, None, **{f"{direction}_physical": 1})
                await own.submit(commands)
                with pytest.raises(ChannelError) as error:
                    await own.synchronize()
                assert error.value.cause is Cause.METHOD_PRIVILEGED
                await own.channel.skip()
        assert session.machine.memory_read(memory["ring"], 512) == before
        await session.works(attacker, own)
        await session.works(victim, stream)

    serve(run)


def test_same_addresses():
    """The same virtual addresses are the attacker's own channel: what it writes to the victim's
    addresses does not change the victim's channel, and its ring and pushbuffers are read-only."""

    async def run(session: Session) -> None:
        attacker, own, victim, stream = await both(session)
        mine, others = (system_memory(session, number) for number in range(2))
        source = await attacker.allocate(4096)
        source.fill(0xFF)
        for name, (pa, va, _) in others.items():
            before = session.machine.memory_read(pa, 512)
            assert name != "USERD" or va == mine[name][1], "not the same addresses"
            if name == "USERD":
                commands = Pushbuffer().copy(va + 0x100, attacker.space.at(source), 16)
                await own.submit(commands.release(va + 0x120, 0xFFFF_FFFF))
                await own.synchronize()
                inside = session.machine.memory_read(mine[name][0] + 0x100, 16)
                assert inside == b"\xff" * 16, "it was not written"
            else:
                await own.submit(Pushbuffer().copy(va, attacker.space.at(source), 64))
                with pytest.raises(ChannelError, match="COPY_WRITE_FAULT"):
                    await own.synchronize()
                await own.channel.skip()
            assert session.machine.memory_read(pa, 512) == before, name
        await session.works(attacker, own)
        await session.works(victim, stream)

    serve(run)


def test_own_ring_index():
    """An application that overwrites GP_PUT of its own channel disturbs nobody else, and leaves
    nothing behind."""

    async def run(session: Session) -> None:
        attacker, own, victim, stream = await both(session)
        _, va, _ = system_memory(session, 0)["USERD"]
        assert va == userd(attacker)
        rng = random.Random(seed := choose_seed())
        print(f"seed {seed}")
        for number in range(6):
            commands = Pushbuffer()
            for _ in range(rng.randrange(1, 4)):
                commands.release(va + Userd.GP_PUT, rng.randrange(64), wfi=False)
            await own.submit(commands)
            await session.works(victim, stream, number)
        session.kill(attacker)
        await session.settle(1)
        await session.works(victim, stream)

    serve(run)


def test_on_chip_semaphores():
    """The on-chip semaphores belong to the server, which gives them to nobody: raw releases and
    reductions of one application, by its channel and by its copies, are no errors, and change no
    result of another one, whose streams wait for each other."""

    async def run(session: Session) -> None:
        attacker, own, victim, stream = await both(session)
        assert not victim.info.semaphores and not victim.info.counters
        server = session.server.device
        slots = range(server.info.semaphores)
        rng = random.Random(seed := choose_seed())
        print(f"seed {seed}")
        source = attacker.space.at(await attacker.allocate(4096))
        second, word = await victim.stream(-1), await victim.allocate(4096)
        for number in range(8):
            commands = Pushbuffer()
            for _ in range(12):
                at = server.info.window + SLOT_BYTES * rng.choice(slots)
                match rng.randrange(4):
                    case 0:
                        commands.release(at, rng.getrandbits(32), wfi=False)
                    case 1:
                        commands.reduce(at, rng.getrandbits(32), rng.choice([*Reduction]))
                    case 2:
                        commands.add(at, rng.choice((1, -1)))
                    case 3:
                        fence = CopyFence(at, rng.getrandbits(32), timestamp=False)
                        commands.copy(source + 64, source, 16, fence)
            await own.submit(commands)
            word.fill(0)
            done = victim.event()
            await stream.memcpy_async(victim.space.at(word, 64), victim.space.at(word), 16)
            await done.record(stream)
            await done.wait(second)
            await second.fill_async(victim.space.at(word), 0xA5, 16)
            await second.synchronize()
            found = word.read()
            assert (found[:16] == 0xA5).all() and not found[64:80].any()
            await session.works(victim, stream, number)
            await own.synchronize()

    serve(run)
