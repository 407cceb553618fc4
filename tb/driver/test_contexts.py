"""Instance blocks, starting contexts, memory of the lists (ASID-21, ASID-22)."""

import asyncio

import pytest

from signalbox.driver.channel.priority_policy import NoPriorityPolicy, PriorityPolicy
from signalbox.driver.compute import contexts, task_lists
from signalbox.driver.compute.contexts import ContextError, OutOfContexts
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.instance_block import InstanceBlock
from signalbox.driver.compute.placement import AUTO
from signalbox.driver.compute.task_lists import TaskListError, log_size
from signalbox.driver.device import Device, DeviceError
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.physical import Memory
from signalbox.hw.config import CONFIGS, Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.interruption import interrupt

IDLE, STARTING = 1 << 0, 1 << 2
"""Bits of TASK_STATE."""


def test_instance_block():
    """Bit positions are those of spec page 60: subcontexts at 664, page directories from 672 on.
    Spaces with an address limit are named at 1696, and their limits follow (ASID-5)."""
    machine = FakeMachine()
    memory = Memory(machine, SPACE)
    buffer = memory.allocate(8192, align=4096)
    buffer.fill(0xFF)
    block = InstanceBlock(buffer, 4096)
    assert block.address == buffer.address + 4096
    assert machine.memory_read(block.address, 4096) == bytes(4096)

    def word(at: int) -> int:
        return int.from_bytes(machine.memory_read(block.address + at, 8), "little")

    written, write = [], machine.memory_write

    def noted(address: int, data: bytes) -> None:
        written.append(address - block.address)
        write(address, data)

    machine.memory_write = noted
    block.add(0, 0x5000, (1 << 49) - 1)
    assert written == [672, 1696, 664], "an entry is written before its valid bit"
    written.clear()
    block.add(63, 0x12_3456_7000, 0xFFF)
    assert written == [672 + 63 * 16, 1704 + 63 * 8, 1696, 664]
    assert word(664) == 1 << 63 | 1
    assert word(1696) == 1 << 63 and word(1704 + 63 * 8) == 0xFFF
    # Version 2, big pages of 64 KiB.
    assert word(672) == 0x5C00 and word(672 + 63 * 16) == 0x12_3456_7C00
    block.remove(0)
    assert word(664) == 1 << 63
    block.add(0, 0x6000, (1 << 41) - 1)
    assert (word(664), word(672), word(1704)) == (1 << 63 | 1, 0x6C00, (1 << 41) - 1)
    assert word(1696) == 1 << 63 | 1
    block.add(63, 0x5000, (1 << 49) - 1)
    assert word(1696) == 1
    with pytest.raises(ValueError, match="ASID 64 is outside 0 … 63"):
        block.add(64, 0, 0xFFF)


@pytest.mark.parametrize(
    ("rows", "waiting", "log"), [(5, 1, 3), (5, 3, 3), (5, 4, 4), (32, 64, 7), (80, 64, 8)]
)
def test_list_size(rows, waiting, log):
    assert log_size(rows, waiting) == log
    assert 1 << log >= rows + waiting > 1 << log - 1


def test_wrong_list_size():
    for waiting in (0, (1 << 20) - 19):
        with pytest.raises(ValueError, match=f"waiting = {waiting}: 1 … 1048556"):
            log_size(20, waiting)
    with pytest.raises(ValueError, match="spaces_each = 65 is outside 1 … 64"):
        asyncio.run(Device.open(FakeMachine(), compute=ComputeSettings(spaces_each=65)))


@pytest.mark.parametrize("name", ["tiny", "default"])
def test_registers(name):
    """The registers describe the lists and contexts, and the lists have memory of their own."""
    config = CONFIGS[name]
    machine = FakeMachine(config)

    async def main():
        settings = ComputeSettings(waiting=10, slice_cycles=777, timeout_cycles=888)
        device = await Device.open(machine, NoPriorityPolicy(1), compute=settings)
        stream = await device.stream()
        await stream.synchronize()
        words = machine.engine.words
        asid, log = words["TASK_LISTS_SIZE"] >> 16, words["TASK_LISTS_SIZE"] & 0x1F
        assert (asid, log) == (config.asids - 1, 4 if name == "tiny" else 6)
        assert (words["CONTEXT_SLICE"], words["CONTEXT_TIMEOUT"]) == (777, 888)
        va = words["TASK_LISTS_HI"] << 32 | words["TASK_LISTS_LO"]
        (space,) = [space for space in device.spaces if space.asid == asid]
        assert (space is device.space) == (config.asids == 1)
        mapping = space.find(va)
        assert mapping is not None and mapping.va == va and mapping.buffer is not None
        assert mapping.buffer.size == 64 * config.contexts * 8 << log
        blocks = [each["INSTANCE_LO"] for each in machine.engine.contexts]
        assert len(set(blocks)) == config.contexts and not any(block % 4096 for block in blocks)
        await device.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("config", "cycles"),
    [
        (Config(), 1_000_000),
        (
            Config(sms=132, sm_shared=233_472, sm_registers=65_536, save_places=16),
            132 * 122 * 4096 // 2,
        ),
    ],
)
def test_default_timeout(config: Config, cycles: int):
    """The default time-out lets a machine save the blocks of all its SMs: it is 8 cycles for each
    beat of 16 bytes of a large state."""
    machine = FakeMachine(config)

    async def main():
        device = await Device.open(machine)
        assert machine.engine.words["CONTEXT_TIMEOUT"] == cycles
        await device.close()

    asyncio.run(main())


def test_high_asid():
    """An ASID beyond the instance block allows copies but no launches."""
    machine = FakeMachine(Config(memory_bytes=SPACE, asids=128))

    async def main():
        device = await Device.open(machine, NoPriorityPolicy(1))
        assert isinstance(device.spaces, AddressSpaces)
        for _ in range(64):
            await device.spaces.acquire(device.create_space())
        stream = await device.stream()
        assert device.space.asid == 64
        with pytest.raises(OutOfContexts, match=r"no context can hold .* 'device' \(ASID 64\)"):
            await stream.launch(SPIN, 1, 1, {"CYCLES": 1})
        await stream.synchronize()

    asyncio.run(main())


def test_many_spaces_one_after_another():
    """Tasks of a space run whatever the number of spaces before it: its ASID is one that contexts
    can hold, as long as one of these is idle."""

    async def main():
        config = Config(asids=100, memory_bytes=SPACE)
        device = await Device.open(FakeMachine(config), NoPriorityPolicy(1))
        kept = [device.create_space() for _ in range(3)]
        for number in range(70):
            space = kept[number] if number < len(kept) else device.create_space()
            stream = await device.stream(space=space)
            await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
            await stream.close()
            if number >= len(kept):
                await device.close_space(space)

    asyncio.run(main())


@pytest.mark.parametrize("beside", [0, IDLE])
def test_waits_for_a_context_that_begins(monkeypatch, beside: int):
    """A space leaves its context only after any bind from the old instance block, even if the tasks
    of the context that begins have been killed, so that the engine is idle. Such a bind would
    otherwise take the ASID from its next owner."""
    machine = FakeMachine()
    monkeypatch.setattr(contexts, "_PATIENCE_CYCLES", 1000)

    async def main():
        device = await Device.open(machine, NoPriorityPolicy(1))
        stream = await device.stream()
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        state = machine.engine.state
        left = 5

        def begins() -> int:
            nonlocal left
            left -= 1
            return STARTING | beside if left > 0 else state()

        machine.engine.state = begins
        await stream.close()
        assert left == 0 and device.space.asid is not None
        again = await device.stream()
        await (await again.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        machine.engine.state = lambda: STARTING | beside
        with pytest.raises(ContextError, match="no context has begun to run for 1000 cycles"):
            await again.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", [*range(50), *range(50, 100, 10)])
def test_interrupted_leaving(monkeypatch, turns: int):
    """A space that leaves its context in two calls keeps its ASID while a context is being switched
    in, and the next user of the context's number finds nothing of its predecessor."""
    machine = FakeMachine(Config(channels=1, contexts=1, memory_bytes=SPACE))
    monkeypatch.setattr(contexts, "_PATIENCE_CYCLES", 10_000)

    async def main():
        device = await Device.open(machine, NoPriorityPolicy(1))
        stream, other = await device.stream(), device.create_space("other")
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        context = device.engine.contexts.of(device.space)
        assert context is not None and isinstance(device.spaces, AddressSpaces)
        await device.engine.contexts.place(context, "deep")
        state, machine.engine.state = machine.engine.state, lambda: STARTING
        await interrupt(device.channels.close(0), turns)
        with pytest.raises(ContextError, match="no context has begun to run for 10000 cycles"):
            await device.channels.close(0)
        assert device.spaces.users(device.space)
        machine.engine.state = state
        await interrupt(device.channels.close(0), turns)
        again = await device.stream(space=other)
        holder = device.engine.contexts.of(other)
        assert holder is not None and holder.number == 0
        assert not device.spaces.users(device.space)
        assert machine.engine.contexts[0]["PLACEMENT"] & 3 == AUTO
        await (await again.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        await device.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(12, 32))
def test_interrupted_move_of_the_lists(turns: int):
    """With one ASID, the task lists are where the next space has them, after another space's first
    stream was interrupted."""

    async def main():
        machine = FakeMachine(Config(memory_bytes=SPACE, asids=1))
        device = await Device.open(machine, NoPriorityPolicy(1))
        space, other = device.create_space("space"), device.create_space("other")
        await other.allocate(1 << 16, above=other.upper)  # so they are at other addresses there
        await (await device.stream(space=space)).close()
        await interrupt(device.stream(space=other), turns)
        await device.close_space(other)
        stream = await device.stream(space=space)
        words = [machine.engine.words[f"TASK_LISTS_{half}"] for half in ("LO", "HI")]
        at = words[1] << 32 | words[0]
        mapping = space.find(at)
        assert mapping is not None and mapping.va == at and mapping.buffer is not None
        assert mapping.buffer.name == "task lists"
        await stream.close()
        await device.close()

    asyncio.run(main())


def test_a_space_stays_while_a_channel_is_open():
    """An address space leaves its context with its last channel, not before."""

    async def main():
        device = await Device.open(FakeMachine(), PriorityPolicy(2, [1, 1]))
        stream, other = await device.stream(0), await device.stream(-1)
        context = device.engine.contexts.of(device.space)
        assert other.channel is not stream.channel and context is not None
        await other.close()
        assert device.engine.contexts.of(device.space) is context
        await (await stream.launch(SPIN, 1, 1, {"CYCLES": 1})).synchronize()
        await stream.close()
        assert device.engine.contexts.of(device.space) is None
        await device.close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(8))
def test_interrupted_creation(turns: int):
    """An interrupted creation of a context leaves its number free."""

    async def main():
        device = await Device.open(FakeMachine())
        created = []

        async def create():
            created.append(await device.engine.contexts.create(wanted="deep"))

        await interrupt(create(), turns)
        assert [*device.engine.contexts] == created
        await device.close()

    asyncio.run(main())


def test_tasks_of_an_earlier_owner(monkeypatch):
    """A machine whose tasks do not end is refused, and they keep their address spaces."""
    monkeypatch.setattr(task_lists, "_PATIENCE_CYCLES", 1000)
    machine = FakeMachine()
    machine.engine.state = lambda: 2
    machine.translator.bound[3] = bound = 0x1000, 0xFFFF

    async def main():
        with pytest.raises(TaskListError, match="still has tasks after 1000 cycles"):
            await Device.open(machine)
        assert machine.translator.bound == {3: bound}

    asyncio.run(main())


def test_an_ended_context_is_refused():
    """No call on an ended or foreign context acts on the present holder of its number."""

    async def main():
        machine, elsewhere = FakeMachine(), FakeMachine()
        device, other = [
            await Device.open(one, NoPriorityPolicy(1)) for one in (machine, elsewhere)
        ]
        contexts = device.engine.contexts
        ended = await contexts.create("ended", wanted="deep")
        await contexts.end(ended)
        holder = await contexts.create("holder", wanted="wide")
        foreign = await other.engine.contexts.create("foreign")
        assert ended.number == holder.number == foreign.number
        space = device.create_space("held", context=holder)
        registers = [dict(one) for one in machine.engine.contexts]
        for stale in (ended, foreign):
            for call in (
                contexts.end(stale),
                contexts.place(stale, "affinity"),
                contexts.mend(stale),
            ):
                with pytest.raises(ContextError, match=f"{stale} was ended, or is of another"):
                    await call
        assert [*contexts] == [holder] and machine.engine.contexts == registers
        stream = await device.stream(space=space)
        assert contexts.of(space) is holder
        await stream.close()
        await contexts.end(holder)
        with pytest.raises(ContextError, match="'holder' was ended"):
            await contexts.end(holder)

    asyncio.run(main())


def test_no_space_without_its_context():
    """A space is not created if its context has ended, belongs to another machine, or cannot
    exist."""

    async def main():
        small = FakeMachine(Config(memory_bytes=SPACE, contexts=1))
        bare = FakeMachine(Config(memory_bytes=SPACE, sms=0))
        device, other, copies = [
            await Device.open(machine, NoPriorityPolicy(1))
            for machine in (small, FakeMachine(), bare)
        ]
        ended = await device.engine.contexts.create("ended")
        await device.engine.contexts.end(ended)
        foreign = [await other.engine.contexts.create() for _ in range(2)][1]
        for one, context, error, message in (
            (device, ended, ContextError, "context 0 'ended' was ended"),
            (device, foreign, ContextError, "context 1 'context 1' was ended, or is of another"),
            (copies, ended, DeviceError, "has no compute engine"),
        ):
            before = [*one.spaces]
            with pytest.raises(error, match=message):
                one.create_space("never", context=context)
            assert [*one.spaces] == before

    asyncio.run(main())
