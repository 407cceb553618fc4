"""Performance counters of the whole machine, as described in the register map."""

import itertools
from bisect import bisect
from collections import Counter

import cocotb

from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod
from signalbox.hw.registers import PERFORMANCE, Wait
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.trace import Acquire, Done, Doorbell, Error, Method, Served
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer

LIMIT = {"timeout_time": 6, "timeout_unit": "ms"}


class Counted:
    """Increments of the counters since the last call."""

    def __init__(self, tb: MachineTestbench) -> None:
        self._tb = tb
        self._before = dict.fromkeys(PERFORMANCE, 0)

    async def __call__(self) -> dict[str, int]:
        """Increments by name."""
        before = self._before
        self._before = {name: await self._tb.control.read(name) for name in PERFORMANCE}
        return {name: value - before[name] for name, value in self._before.items()}


async def occupy(tb: MachineTestbench, first: int) -> list[RawChannel]:
    """Start an endless copy on every engine, from channels `first` onwards. Returns the
    channels."""
    engines = await tb.control.read("COPY_ENGINES")
    busy = [await tb.copy_channel(first + number) for number in range(engines)]
    for channel in busy:
        await channel.submit(Pushbuffer().copy_2d(*tb.endless()))
    await until_started(tb, engines)
    return busy


@cocotb.test(**LIMIT)
async def semaphore_operations(dut):
    """Each operation counts once: on chip, in memory, by zero flags and by copies."""
    tb = await MachineTestbench.start(dut, counting=2)
    counted = Counted(tb)
    channel = await tb.copy_channel(0)
    memory, ((dst, src),) = tb.allocate(16), tb.copies(1, 64)
    programs = {
        "on chip": (Pushbuffer().release(semaphore(3), 5).acquire(semaphore(3), 5), 2),
        "in memory": (Pushbuffer().release(memory, 7).acquire(memory, 7).reduce(memory, 1), 3),
        "counted": (Pushbuffer().acquire(semaphore(0), 0).acquire(semaphore(1), 0), 2),
        "around a copy": (
            Pushbuffer()
            .add(semaphore(0), 1)
            .copy(dst, src, 64, CopyFence(memory, 1))
            .copy(dst, src, 64, CopyFence(semaphore(4), 1, timestamp=False))
            .copy(dst, src, 64)
            .add(semaphore(0), -1),
            4,
        ),
        "none": (Pushbuffer().host(HostMethod.NOP, 1), 0),
    }
    await counted()
    for name, (commands, operations) in programs.items():
        await channel.submit(commands)
        await tb.until_idle(channel)
        found = await counted()
        assert found["SEMAPHORE_OPS"] == operations, (name, found)
        assert found["ACQUIRE_FAILS"] == found["WAKES"] == 0, (name, found)


@cocotb.test(**LIMIT)
async def refused_operations(dut):
    """Refused operations of channels and copies count as errors, not as operations."""
    tb = await MachineTestbench.start(dut, counting=1)
    counted = Counted(tb)
    ((dst, src),) = tb.copies(1, 64)
    refused = CopyFence(semaphore(0) + 4, 1, timestamp=False)
    programs = {
        Cause.SEM_UNDERFLOW: Pushbuffer().add(semaphore(0), -1),
        Cause.COPY_SEMAPHORE: Pushbuffer().copy(dst, src, 64, refused),
    }
    for index, (cause, commands) in enumerate(programs.items()):
        channel = await tb.copy_channel(index)
        await counted()
        await channel.submit(commands)
        await channel.until_halted(cause)
        found = await counted()
        assert (found["SEMAPHORE_OPS"], found["ERRORS"]) == (0, 1), cause


@cocotb.test(**LIMIT)
async def together(dut):
    """Operations of channels and copies that end in the same cycle are all counted: operations
    follow each other at a steady pace, and copies end at every moment between two of them."""
    tb = await MachineTestbench.start(dut)
    counted = Counted(tb)
    one, two = await tb.copy_channel(0), await tb.channel(1)
    ((dst, src),) = tb.copies(1, 64)
    where = tb.allocate(16)
    await counted()
    pace, moments = 0, set[int]()
    rounds = Rounds(fewer(8, 4))
    while rounds.more(bool(pace) and moments >= {*range(pace)}, (pace, moments)):
        dut.memory.write_latency.value = 16 + rounds.number  # shifts the ends by a cycle
        copies, steps = Pushbuffer(), Pushbuffer()
        for _ in range(20):
            size = tb.random.randrange(1, 64)
            copies.copy(dst, src, size, CopyFence(where, 1, timestamp=False))
        for step in range(200):
            steps.release(semaphore(5), step)
        await one.submit(copies)
        await two.submit(steps)
        await tb.until_idle(one, two)
        assert (await counted())["SEMAPHORE_OPS"] == 20 + 200
        ran = [event.cycle for event in await tb.events(Method, offset=HostMethod.SEM_EXECUTE)]
        ((pace, _),) = Counter(b - a for a, b in itertools.pairwise(ran)).most_common(1)
        ends = [event.cycle for event in await tb.events(Done) if ran[0] < event.cycle < ran[-1]]
        moments = {end - ran[bisect(ran, end) - 1] for end in ends}


@cocotb.test(**LIMIT)
async def wakes(dut):
    """Channels made ready by semaphores are counted: several for one update, zero flags included;
    no channel is counted twice, or when a timer or an engine makes it ready."""
    tb = await MachineTestbench.start(dut, counting=1)
    counted = Counted(tb)
    channels = [await tb.copy_channel(index, early_waits=True) for index in range(3)]

    async def park(where: int, value: int, wait: Wait) -> None:
        for channel in channels:
            await channel.submit(Pushbuffer().acquire(where, value).host(HostMethod.NOP, 1))
            await tb.until_waits(channel, wait)
        assert (await counted())["WAKES"] == 0

    await park(semaphore(3), 1, Wait.ONCHIP)
    for value in (2, 3, 1):
        await tb.let_go(3, value)
        await tb.wait(200)
        assert (await counted())["WAKES"] == 3
    await tb.until_idle(*channels)

    await tb.let_go(0, 1)
    await park(semaphore(0), 0, Wait.ENGINE)
    await tb.let_go(0, 2)
    await tb.wait(100)
    assert (await counted())["WAKES"] == 0
    await tb.let_go(0, 0)
    await tb.until_idle(*channels)
    found = await counted()
    assert (found["WAKES"], found["SEMAPHORE_OPS"]) == (3, 3)

    where = tb.allocate(16)
    await park(where, 1, Wait.RETRY)
    tb.set_word(where, 1)
    await tb.until_idle(*channels)
    assert (await counted())["WAKES"] == 0

    busy = await occupy(tb, 3)
    await park(semaphore(0), 0, Wait.ENGINE)
    for channel in busy:
        await channel.write("CONTROL", ENABLE=0)
    await tb.until_idle(*channels)
    assert (await counted())["WAKES"] == 0


@cocotb.test(**LIMIT)
async def timers_wake_nobody(dut):
    """A time-out counts as a failed acquire and an error, not as a wake; this also holds in a
    group, where the update that starts the time counts as a wake."""
    tb = await MachineTestbench.start(dut, counting=1)
    counted = Counted(tb)
    plain = await tb.channel(0, timeout_units=2)
    await plain.submit(Pushbuffer().acquire(semaphore(5), 1))
    await plain.until_halted(Cause.ACQUIRE_TIMEOUT)
    found = await counted()
    names = ("WAKES", "SEMAPHORE_OPS", "ACQUIRE_FAILS", "ERRORS")
    assert [found[name] for name in names] == [0, 0, 2, 1]

    grouped = await tb.copy_channel(2, timeout_units=2)
    await occupy(tb, 3)
    await grouped.submit(Pushbuffer().acquire(semaphore(0), 0))
    await tb.until_waits(grouped, Wait.ENGINE_TIMED)
    await counted()
    await tb.let_go(0, 1)
    await grouped.until_halted(Cause.ACQUIRE_TIMEOUT)
    found = await counted()
    assert [found[name] for name in names] == [1, 0, 2, 1]


@cocotb.test(**LIMIT)
async def as_in_the_trace(dut):
    """Nine other counters agree with the trace, in a mixture on two channels that take turns."""
    tb = await MachineTestbench.start(dut)
    counted = Counted(tb)
    channels = [await tb.copy_channel(index, slice_cycles=60) for index in range(2)]
    ((dst, src),) = tb.copies(1, 256)
    beat = await tb.control.read("DATA_WIDTH") // 8
    await counted()
    began = tb.now()
    for number in range(4):
        for channel in channels:
            commands = Pushbuffer().non_inc(0, HostMethod.NOP, *range(90))
            commands.copy(dst, src, 64 * (1 + number)).release(semaphore(channel.index), number)
            await channel.submit(commands.acquire(semaphore(channel.index), number + 1))
        for channel in channels:
            await tb.until_waits(channel, Wait.ONCHIP)
        for value in (number, number + 1):
            for channel in channels:
                await tb.let_go(channel.index, value)
            await tb.wait(100)
        await tb.until_idle(*channels)
    for name in ("READ_BEATS", "WRITE_BEATS"):
        assert await tb.control.read(name) == 2 * 64 * (1 + 2 + 3 + 4) // beat
    await channels[0].submit(Pushbuffer().copy(dst, 1 << 47, 64))
    await channels[0].until_halted(Cause.COPY_READ_FAULT)
    found = await counted()

    def count(kind: type, **fields: bool) -> int:
        return sum(
            isinstance(event, kind) and all(getattr(event, k) == v for k, v in fields.items())
            for event in events
        )

    every = await tb.all_events()
    events = [event for event in every if event.cycle >= began]
    before = [event.channel for event in every if isinstance(event, Served) and event not in events]
    served = [before[-1] if before[-1] is not None else before[-2]]
    served += [event.channel for event in events if isinstance(event, Served)]
    turns = [channel for channel in served if channel is not None]
    assert found["SWITCHES"] == sum(a != b for a, b in itertools.pairwise(turns)) > 8
    assert found["METHODS"] == count(Method)
    assert found["ACQUIRE_FAILS"] == count(Acquire, passed=False) >= 8
    assert found["COPIES"] == count(Done) == 9
    assert found["ERRORS"] == count(Error) == 1
    assert found["DOORBELLS"] == count(Doorbell) == 9
    assert found["SEMAPHORE_OPS"] == 16
