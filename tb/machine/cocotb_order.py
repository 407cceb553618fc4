"""Order, slices and priorities (COPY-1 … COPY-11, COPY-13 and the worked examples of page 10)."""

import itertools
import random

import cocotb

from signalbox.driver.commands.pushbuffer import CopyFence, Pushbuffer
from signalbox.hw.methods import CeMethod, HostMethod, MemOp, SemOp
from signalbox.hw.registers import Wait
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, in_order, semaphore
from signalbox.tb.models.semaphores import ACQUIRES, acquire
from signalbox.tb.simulation.trace import (
    Acquire,
    Done,
    Doorbell,
    Floor,
    Method,
    Semaphore,
    Served,
    Start,
)
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import some

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

LONG = 1 << 30
"""A slice that never ends."""

LASTING = 16384
"""Bytes of a copy that outlasts the fetch of another channel's commands over the same memory
port."""

Copy = tuple[int, int]


def nops(*values: int) -> Pushbuffer:
    """NOP methods with these data."""
    return Pushbuffer().non_inc(0, HostMethod.NOP, *values)


def wrapped(
    level: int, levels: int, copy: Copy, size: int, *, count_first: bool = False
) -> Pushbuffer:
    """A copy as submitted by the driver: COPY-23, or with `count_first` as by
    `driver.channel.priority_policy.CountFirstPolicy`. S(p) is on-chip semaphore p - 2."""
    count, waits, done = Pushbuffer(), Pushbuffer(), Pushbuffer()
    if level > 1:
        count.add(semaphore(level - 2), 1)
        done.add(semaphore(level - 2), -1)
    for higher in range(level + 1, levels + 1):
        waits.acquire(semaphore(higher - 2), 0)
    before = (count, waits) if count_first else (waits, count)
    return joined(*before, Pushbuffer().copy(*copy, size), done)


def joined(*parts: Pushbuffer) -> Pushbuffer:
    """Concatenation of pushbuffers."""
    return Pushbuffer().raw(*(dword for part in parts for dword in part.dwords))


async def together(
    tb: MachineTestbench, channels: list[RawChannel], programs: list[Pushbuffer], slot: int = 7
) -> None:
    """Let the channels begin at once: each waits for a semaphore, which the CPU then releases.
    Doorbells are rung in the order of the list."""
    await tb.control.write_semaphore(slot, 0)
    for channel, program in zip(channels, programs, strict=True):
        await channel.submit(joined(Pushbuffer().acquire(semaphore(slot), 1), program))
        await tb.until_waits(channel, Wait.ONCHIP)
    await tb.let_go(slot, 1)


async def until_started(tb: MachineTestbench, count: int) -> None:
    """Wait until `count` copies have started."""
    end = tb.now() + 20_000
    while len(await tb.events(Start)) < count:
        assert tb.now() < end, f"{count} copies have not started"


@cocotb.test(**LIMIT)
async def channels_keep_their_order(dut):
    """COPY-1: methods of a channel are executed in issue order; different channels may
    interleave."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    channels = [await tb.channel(i, slice_cycles=20) for i in range(built)]
    expected: dict[int, list[int]] = {i: [] for i in range(built)}
    turns: list[int] = []
    rounds = Rounds(4)
    while rounds.more(len(turns) > 4 * built, turns):
        for channel in channels:
            for _ in range(tb.random.randrange(1, 4)):
                values = [tb.random.getrandbits(32) for _ in range(tb.random.randrange(60))]
                expected[channel.index] += values
                channel.segment(nops(*values))
            await channel.kick()
        if rounds.number % 2:
            await tb.until_idle(*channels)
            found = await tb.events(Method)
            turns = [index for index, _ in itertools.groupby(event.channel for event in found)]
    await tb.until_idle(*channels)
    found = await tb.events(Method)
    for index, values in expected.items():
        assert [event.data for event in found if event.channel == index] == values


@cocotb.test(**LIMIT)
async def every_kind_of_command(dut):
    """COPY-2: semaphore operations, copies, maintenance and waits of one channel are executed by
    their units, in order."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, privileged=True)
    copies = tb.copies(3)
    fence, ended = tb.allocate(16), await channel.read("COPIES")
    commands = Pushbuffer().set_object()
    for number, copy in enumerate(copies, 1):
        commands.add(semaphore(0), 1).copy(*copy, 1024).mem_op(MemOp.MEMBAR)
        commands.mem_op(MemOp.MMU_TLB_INVALIDATE).release(fence, number).wait_idle()
        commands.acquire(fence, number).acquire(semaphore(0), number)
    await channel.submit(commands)
    await tb.until_idle(channel)
    assert all(tb.copied(*copy) for copy in copies)
    starts, dones = await tb.events(Start), await tb.events(Done)
    adds = await tb.events(Semaphore)
    barriers = await tb.events(Method, offset=int(HostMethod.MEM_OP_D))
    waits = await tb.events(Method, offset=int(HostMethod.WFI))
    acquires = await tb.events(Acquire, passed=True)
    assert [event.value for event in adds] == [1, 2, 3]
    assert len(acquires) == 6
    moments = []
    for i in range(3):
        moments += [adds[i], starts[i], dones[i], barriers[2 * i], barriers[2 * i + 1], waits[i]]
        moments += acquires[2 * i : 2 * i + 2]
    assert in_order(*(event.cycle for event in moments))
    assert await channel.read("COPIES") == ended + 3


@cocotb.test(**LIMIT)
async def increments_while_engines_are_busy(dut):
    """COPY-3: an increment of a higher channel takes effect while the copy of the slice holder
    runs, and before the next lower copy starts."""
    tb = await MachineTestbench.start(dut, counting=1)
    low, high = await tb.copy_channel(0, slice_cycles=LONG), await tb.copy_channel(1)
    copies = tb.copies(3, LASTING)
    await low.submit(joined(*(wrapped(1, 2, copy, LASTING) for copy in copies[:2])))
    await until_started(tb, 1)
    await high.submit(wrapped(2, 2, copies[2], LASTING))
    await tb.until_idle(low, high)
    starts, dones = await tb.events(Start), await tb.events(Done)
    increment, decrement = await tb.events(Semaphore)
    rung = (await tb.events(Doorbell, channel=1))[-1].cycle
    floors = [event for event in await tb.events(Floor) if event.cycle <= increment.cycle]
    assert floors[-1].channel == 0
    assert starts[0].cycle < rung < increment.cycle < dones[0].cycle
    cocotb.log.info("increment %d cycles after its doorbell", increment.cycle - rung)
    assert [event.channel for event in starts] == [0, 1, 0]
    assert dones[1].cycle < decrement.cycle < starts[2].cycle


@cocotb.test(**LIMIT)
async def decrement_after_the_copy(dut):
    """COPY-4: operations after a copy take effect when all its writes are visible: for semaphores
    on chip, in memory, and the engine's own."""
    tb = await MachineTestbench.start(dut, write_latency=300)
    channel = await tb.copy_channel(0)
    for address in (semaphore(3), tb.allocate(16)):
        ((dst, src),) = tb.copies(1)
        await channel.submit(Pushbuffer().copy(dst, src, 1024).reduce(address, 1))
        while not (
            await tb.control.read_semaphore(3) if address == semaphore(3) else tb.word(address)
        ):
            assert not await channel.read("INTR_0")
            await tb.wait(1)
        assert tb.copied(dst, src)
        await tb.until_idle(channel)
    (counted,) = await tb.events(Semaphore)
    assert (await tb.events(Done))[0].cycle < counted.cycle


@cocotb.test(**LIMIT)
async def least_recently_received_first(dut):
    """COPY-5: of the channels that can proceed, the one whose head command was received first is
    served."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    channels = [await tb.channel(i) for i in range(built)]
    for _ in range(4):
        before = len(await tb.events(Method, offset=8))
        order = tb.random.sample(range(built), built)
        programs = [nops(*[i] * 20) for i in order]
        await together(tb, [channels[i] for i in order], programs)
        await tb.until_idle(*channels)
        found = (await tb.events(Method, offset=8))[before:]
        # A channel is served as long as it can proceed.
        assert [event.channel for event in found] == [i for i in order for _ in range(20)]


@cocotb.test(**LIMIT)
async def starts_take_nothing_from_others(dut):
    """A channel may start in any cycle around the one in which another channel begins its last
    entry: that channel's GP_GET still reaches its end."""
    tb = await MachineTestbench.start(dut, read_latency=2, write_latency=2)
    worker = await tb.channel(0, limit2=6)
    starter = await tb.channel(1)
    for number in some(range(60), 3):
        worker.segment(nops(number))
        worker.publish()
        await starter.write("CONTROL", ENABLE=0)
        await starter.until_inactive()
        await worker.ring_doorbell()
        await tb.wait(number)
        await starter.write("CONTROL", ENABLE=1)
        await tb.until_idle(worker)
        await tb.until_word(worker.userd + 0x88, worker.put)


@cocotb.test(**LIMIT)
async def later_commands_are_later(dut):
    """COPY-5: the head command counts, not the channel's first or last doorbell."""
    tb = await MachineTestbench.start(dut)
    one, two, three = [await tb.channel(i) for i in range(3)]
    await tb.control.write_semaphore(7, 0)
    await one.submit(joined(Pushbuffer().acquire(semaphore(7), 1), nops(1)))
    await two.submit(joined(Pushbuffer().acquire(semaphore(7), 1), nops(2)))
    await three.submit(joined(Pushbuffer().acquire(semaphore(7), 1), nops(3)))
    # Second commands, received in another order; YIELD lets others execute after the first.
    yielding = Pushbuffer().yield_slice()
    for channel, value in ((three, 33), (one, 11), (two, 22)):
        channel.segment(joined(yielding, nops(value)))
        await channel.kick()
    await tb.until_waits(three, Wait.ONCHIP)
    await tb.wait(200)
    await tb.let_go(7, 1)
    await tb.until_idle(one, two, three)
    found = [event.data for event in await tb.events(Method, offset=8)]
    cocotb.log.info("order of service: %s", found)
    # The third channel yields to the oldest of the others; then its second command is the older
    # one.
    assert found == [1, 2, 3, 11, 33, 22]


@cocotb.test(**LIMIT)
async def slices(dut):
    """COPY-5: channels take turns, each for its own number of cycles."""
    tb = await MachineTestbench.start(dut)
    lengths = {0: 30, 1: 90}
    channels = [await tb.channel(i, slice_cycles=n) for i, n in lengths.items()]
    await together(tb, channels, [nops(*range(400)) for _ in channels])
    await tb.until_idle(*channels)
    found = await tb.events(Method, offset=8)
    runs = [(c, list(events)) for c, events in itertools.groupby(found, lambda e: e.channel)]
    assert [c for c, _ in runs[:6]] == [0, 1] * 3
    spans: dict[int, list[int]] = {0: [], 1: []}
    for channel, events in runs[:6]:
        spans[channel].append(events[-1].cycle - events[0].cycle + 1)
    for channel, length in lengths.items():
        assert all(abs(span - length) <= 6 for span in spans[channel]), spans
    assert [event.data for event in found if event.channel == 0] == list(range(400))


@cocotb.test(**LIMIT)
async def running_copy_completes(dut):
    """COPY-6: if a slice ends during a copy, the copy completes, and then the floor changes, even
    if the holder has more work."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.copy_channel(0, slice_cycles=100), await tb.copy_channel(1)
    copies = tb.copies(4, LASTING)
    await one.submit(joined(*(Pushbuffer().copy(*copy, LASTING) for copy in copies[:3])))
    await until_started(tb, 1)
    await two.submit(Pushbuffer().copy(*copies[3], LASTING))
    await tb.until_idle(one, two)
    starts, dones = await tb.events(Start), await tb.events(Done)
    assert [event.channel for event in dones] == [0, 1, 0, 0]
    assert [event.channel for event in starts] == [0, 1, 0, 0]
    assert dones[0].cycle - starts[0].cycle > 100
    change = next(e for e in await tb.events(Floor, channel=1) if e.cycle > starts[0].cycle)
    assert dones[0].cycle <= change.cycle < starts[1].cycle
    assert all(tb.copied(*copy, LASTING) for copy in copies)


@cocotb.test(**LIMIT)
async def failed_acquire_moves_on(dut):
    """COPY-7: a failed acquire switches at once, regardless of the remaining slice."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0, slice_cycles=LONG), await tb.channel(1)
    blocked = joined(nops(1), Pushbuffer().acquire(semaphore(3), 1), nops(2))
    await together(tb, [one, two], [blocked, nops(*range(5))])
    await tb.until_idle(two)
    failed = (await tb.events(Acquire, channel=0, passed=False))[-1]
    first = (await tb.events(Method, channel=1, offset=8))[0]
    cocotb.log.info("next channel %d cycles after a failed acquire", first.cycle - failed.cycle)
    assert 0 < first.cycle - failed.cycle <= 12
    assert [event.data for event in await tb.events(Method, channel=0, offset=8)] == [1]
    assert (await one.status())["FLOOR"] == 0
    await tb.control.write_semaphore(3, 1)
    await tb.until_idle(one)


@cocotb.test(**LIMIT)
async def alone_past_the_slice(dut):
    """COPY-8: while all others are blocked or empty, a channel continues without a gap."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0, slice_cycles=10), await tb.channel(1)
    await tb.channel(2)
    await two.submit(Pushbuffer().acquire(semaphore(3), 1))
    await tb.until_waits(two, Wait.ONCHIP)
    await one.submit(joined(Pushbuffer().acquire(semaphore(4), 1), nops(*range(100))))
    await tb.until_waits(one, Wait.ONCHIP)
    await tb.wait(300)
    await tb.control.write_semaphore(4, 1)
    await tb.until_idle(one)
    found = await tb.events(Method, offset=8)
    assert len(found) == 100
    assert found[-1].cycle - found[0].cycle == 99


@cocotb.test(**LIMIT)
async def pipelined_copies_alone_past_the_slice(dut):
    """COPY-8: a slice that ends while no other channel can proceed does not delay pipelined
    copies."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0, slice_cycles=20)
    copies = tb.copies(6, 700)
    await channel.submit(joined(*(Pushbuffer().copy(*copy, 700, transfer=1) for copy in copies)))
    await tb.until_idle(channel)
    starts, dones = await tb.events(Start), await tb.events(Done)
    assert all(after.cycle < done.cycle for after, done in zip(starts[1:], dones, strict=False))
    assert all(tb.copied(*copy, 700) for copy in copies)


@cocotb.test(**LIMIT)
async def pipelined_copies_end_with_the_slice(dut):
    """COPY-6: a stream of pipelined copies does not keep the engine from another channel after its
    slice, whether that channel waits with a copy, or with an acquire before one: in a group, with a
    time-out, or alone."""
    tb = await MachineTestbench.start(dut)
    for acquired, units in ((None, 0), (0, 0), (0, 1000), (9, 0)):
        tb = await tb.again(counting=1)
        one = await tb.copy_channel(0, slice_cycles=60)
        two = await tb.copy_channel(1, slice_cycles=60, timeout_units=units)
        copies = tb.copies(9, LASTING)
        stream = joined(*(Pushbuffer().copy(*copy, LASTING, transfer=1) for copy in copies[:8]))
        await one.submit(stream)
        await until_started(tb, 1)
        commands = Pushbuffer()
        if acquired is not None:
            commands.acquire(semaphore(acquired), 0)
        await two.submit(commands.copy(*copies[8], LASTING))
        await tb.until_idle(one, two)
        order = [event.channel for event in await tb.events(Start)]
        assert order.index(1) < 5, order
        assert all(tb.copied(*copy, LASTING) for copy in copies)


@cocotb.test(**LIMIT)
async def slices_of_no_time(dut):
    """SLICE 0 counts as 1: channels with such slices still acquire and copy in turn."""
    tb = await MachineTestbench.start(dut)
    channels = [await tb.copy_channel(i, slice_cycles=0) for i in range(2)]
    copies = tb.copies(6, 64)
    await together(
        tb,
        channels,
        [
            joined(*(Pushbuffer().acquire(semaphore(4), 0).copy(*copy, 64) for copy in part))
            for part in (copies[:3], copies[3:])
        ],
    )
    await tb.until_idle(*channels)
    assert all(tb.copied(*copy, 64) for copy in copies)


@cocotb.test(**LIMIT)
async def nothing_slips_in(dut):
    """COPY-9: between decrement to 0 and increment by the holder of the floor, with its commands
    fetched, a parked acquire of a lower channel never passes, for any memory latency, while the
    slice lasts."""
    tb = await MachineTestbench.start(dut)
    for latency, slice_cycles in itertools.product((2, 9, 40), (60, 250, LONG)):
        tb = await tb.again(counting=1, read_latency=latency, write_latency=latency)
        low = await tb.copy_channel(0)
        high = await tb.copy_channel(1, slice_cycles=slice_cycles)
        copies = tb.copies(6, 512)
        # The high channel goes first, so that it has the floor; the low one parks meanwhile.
        await high.submit(joined(*(wrapped(2, 2, copy, 512) for copy in copies[:4])))
        await tb.until_semaphore(0, 1)
        await low.submit(joined(*(wrapped(1, 2, copy, 512) for copy in copies[4:])))
        await tb.until_idle(low, high)
        last = max(event.cycle for event in await tb.events(Start, channel=1))
        for passed in await tb.events(Acquire, channel=0, passed=True):
            since = [e.cycle for e in await tb.events(Floor, channel=1) if e.cycle < passed.cycle]
            over = passed.cycle - since[-1] > slice_cycles
            assert passed.cycle > last or over, (latency, slice_cycles, passed)
        values = [event.value for event in await tb.events(Semaphore)]
        assert values == [1, 0] * 4


@cocotb.test(**LIMIT)
async def atomic_decisions(dut):
    """COPY-9: two channels pass an on-chip token back and forth many times; never do both hold
    it."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0, slice_cycles=7), await tb.channel(1, slice_cycles=5)
    rounds = 40
    ping, pong = Pushbuffer(), Pushbuffer()
    for number in range(rounds):
        ping.acquire(semaphore(0), 2 * number).release(semaphore(0), 2 * number + 1)
        pong.acquire(semaphore(0), 2 * number + 1).release(semaphore(0), 2 * number + 2)
        for commands in (ping, pong):
            commands.non_inc(0, HostMethod.NOP, *[0] * tb.random.randrange(6))
    await one.submit(ping)
    await two.submit(pong)
    await tb.until_idle(one, two)
    values = [event.value for event in await tb.events(Semaphore)]
    assert values == list(range(1, 2 * rounds + 1))


@cocotb.test(**LIMIT)
async def parked_channels_cost_nothing(dut):
    """COPY-10: channels parked on chip read nothing and are not served; an update of one semaphore
    wakes only the channels that wait for it."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    channels = [await tb.channel(i) for i in range(built)]
    slots = [10 + i // 2 for i in range(built)]
    for channel, slot in zip(channels, slots, strict=True):
        await channel.submit(joined(Pushbuffer().acquire(semaphore(slot), 5), nops(channel.index)))
        await tb.until_waits(channel, Wait.ONCHIP)
    await tb.wait(1200)  # the last write-back
    reads, served = tb.watch_reads(), len(await tb.events(Served))
    await tb.wait(2000)
    assert reads.stop() == []
    assert len(await tb.events(Served)) == served
    wakes = await tb.control.read("WAKES")
    for slot in sorted(set(slots), reverse=True):
        mine = [i for i in range(built) if slots[i] == slot]
        served = len(await tb.events(Served))
        await tb.let_go(slot, 5)
        await tb.until_idle(*(channels[i] for i in mine))
        turns = {event.channel for event in (await tb.events(Served))[served:]}
        assert turns - {None} == set(mine)
        woken = await tb.control.read("WAKES") - wakes
        assert woken == len(mine), (slot, woken)
        wakes += woken
    done = [event.channel for event in await tb.events(Method, offset=8)]
    assert sorted(done) == list(range(built))


@cocotb.test(**LIMIT)
async def no_wake_up_is_lost(dut):
    """COPY-10: no release by the CPU or by a copy engine is lost, in any cycle around a channel's
    parking."""
    tb = await MachineTestbench.start(dut)
    one, two = await tb.channel(0), await tb.copy_channel(1)
    tries: list[int] = []
    for number in some(range(1, 140), 4):
        seen = len(await tb.events(Acquire, channel=0))
        await one.submit(Pushbuffer().acquire(semaphore(0), number))
        await tb.wait(number)
        await tb.let_go(0, number)
        await tb.until_idle(one, timeout=2000)
        tries.append(len(await tb.events(Acquire, channel=0)) - seen)
    assert set(tries) == {1, 2}, "the CPU was always before the acquire, or always after it"
    tries, (copy,) = [], tb.copies(1, 16)
    for number in some(range(80), 4):
        fence = CopyFence(semaphore(0), 1000 + number, timestamp=False)
        acquire = Pushbuffer().acquire(semaphore(0), 1000 + number)
        programs = [Pushbuffer().copy(*copy, 16, fence), joined(nops(*[0] * number), acquire)]
        await together(tb, [two, one], programs)
        await tb.until_idle(one, two, timeout=2000)
        seen = await tb.events(Acquire, channel=0)
        tries.append(1 if seen[-2].passed else 2)
    assert set(tries) == {1, 2}, "the engine was always before the acquire, or always after it"


@cocotb.test(**LIMIT)
async def first_worked_example(dut):
    """The published order: copies complete as Mlow1, Mhigh1, Mhigh2, Mlow2, Mlow3; S takes the
    values 0, 1, 0, 1, 0; the high slice expires during Mhigh1, and the high channel continues."""
    tb = await MachineTestbench.start(dut, counting=1)
    low = await tb.copy_channel(0, slice_cycles=LONG)
    high = await tb.copy_channel(1, slice_cycles=100)
    size = LASTING
    low1, low2, low3, high1, high2 = tb.copies(5, size)
    assert await tb.control.read_semaphore(0) == 0
    await low.submit(wrapped(1, 2, low1, size))
    await until_started(tb, 1)
    await low.submit(joined(wrapped(1, 2, low2, size), wrapped(1, 2, low3, size)))
    await high.submit(joined(wrapped(2, 2, high1, size), wrapped(2, 2, high2, size)))
    await tb.until_idle(low, high)
    starts, dones = await tb.events(Start), await tb.events(Done)
    order = [low1, high1, high2, low2, low3]
    assert [event.channel for event in dones] == [0, 1, 1, 0, 0]
    launched = await tb.events(Method, offset=int(CeMethod.OFFSET_OUT_LOWER))
    by_channel = {c: [e.data for e in launched if e.channel == c] for c in (0, 1)}
    targets = [by_channel[event.channel].pop(0) for event in starts]
    assert targets == [dst for dst, _ in order]
    changes = await tb.events(Semaphore, index=0)
    assert [event.value for event in changes] == [1, 0, 1, 0]
    assert changes[0].cycle < dones[0].cycle
    # Mhigh1 lasts longer than the slice; no acquire of the low channel passes, and Mhigh2 is next.
    assert dones[1].cycle - starts[1].cycle > 100
    passed = await tb.events(Acquire, channel=0, passed=True)
    assert len(passed) == 3
    assert passed[0].cycle < starts[0].cycle
    assert changes[3].cycle <= passed[1].cycle < starts[3].cycle
    assert all(tb.copied(*copy, size) for copy in order)
    gaps = [b.cycle - a.cycle for a, b in zip(dones, starts[1:], strict=False)]
    cocotb.log.info("cycles from the end of a copy to the next start: %s", gaps)


@cocotb.test(**LIMIT)
async def second_worked_example(dut):
    """Without priorities the same requests complete in issue order within slices."""
    size = LASTING
    tb = await MachineTestbench.start(dut)
    for slice_cycles, expected in ((LONG, [0, 0, 0, 1, 1]), (100, [0, 1, 0, 1, 0])):
        tb = await tb.again()
        low = await tb.copy_channel(0, slice_cycles=slice_cycles)
        high = await tb.copy_channel(1, slice_cycles=slice_cycles)
        low1, low2, low3, high1, high2 = tb.copies(5, size)
        await low.submit(Pushbuffer().copy(*low1, size))
        await until_started(tb, 1)
        await low.submit(Pushbuffer().copy(*low2, size).copy(*low3, size))
        await high.submit(Pushbuffer().copy(*high1, size).copy(*high2, size))
        await tb.until_idle(low, high)
        assert [event.channel for event in await tb.events(Done)] == expected


@cocotb.test(**LIMIT)
async def later_high_copy_overtakes_waiting_low_one(dut):
    """COPY-13, third worked example: X waits in a low channel because the engine is busy with
    another channel's low copy; Y arrives in a high channel and runs before X."""
    tb = await MachineTestbench.start(dut)
    for counting in (1, 0):
        tb = await tb.again(counting=counting)
        first, second, high = [await tb.copy_channel(i) for i in range(3)]
        a, x, y = tb.copies(3, LASTING)
        await first.submit(wrapped(1, 2, a, LASTING))
        await until_started(tb, 1)
        await second.submit(wrapped(1, 2, x, LASTING))
        await tb.wait(150)
        assert await tb.events(Done) == []
        await high.submit(wrapped(2, 2, y, LASTING))
        await tb.until_idle(first, second, high)
        starts = await tb.events(Start)
        assert [event.channel for event in starts] == [0, 2, 1], counting
        (passed,) = await tb.events(Acquire, channel=1, passed=True)
        assert (await tb.events(Done))[1].cycle < passed.cycle < starts[2].cycle


@cocotb.test(**LIMIT)
async def pipelined_copies_end_in_order(dut):
    """COPY-1: pipelined copies of one channel overlap and end in order."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.copy_channel(0)
    copies = tb.copies(5, 700)
    commands = Pushbuffer()
    for number, copy in enumerate(copies):
        commands.copy(*copy, 700, transfer=2 if number == 3 else 1)
    fence = tb.allocate(16)
    await channel.submit(commands.release(fence, 1))
    await tb.until_word(fence, 1)
    assert all(tb.copied(*copy, 700) for copy in copies)
    starts, dones = await tb.events(Start), await tb.events(Done)
    assert len(starts) == len(dones) == 5
    assert starts[1].cycle < dones[0].cycle
    assert starts[3].cycle > dones[2].cycle


def passing(numbers: random.Random, operation: SemOp, wide: bool) -> tuple[int, int]:
    """A payload and a 64-bit value with which an acquire passes; ACQ_AND and ACQ_NOR, because of
    one bit."""
    bits = 64 if wide else 32
    while True:
        value, one = numbers.getrandbits(64), 1 << numbers.randrange(bits)
        chosen = {SemOp.ACQUIRE: value, SemOp.ACQ_AND: one, SemOp.ACQ_NOR: ~one}
        payload = chosen.get(operation, numbers.getrandbits(64)) % (1 << bits)
        if acquire(operation, value, payload, bits):
            return payload, value


@cocotb.test(**LIMIT)
async def acquires_of_other_kinds(dut):
    """COPY-13 for acquires that are not part of a group, of every kind and width, of non-counting
    semaphores: they are evaluated only while an engine is idle."""
    tb = await MachineTestbench.start(dut)
    busy, waiting = await tb.copy_channel(0), await tb.copy_channel(1)
    for operation, wide in some([*itertools.product(sorted(ACQUIRES), (False, True))], 3):
        payload, value = passing(tb.random, operation, wide)
        a, b = tb.copies(2, 4096)
        started = len(await tb.events(Start))
        await busy.submit(Pushbuffer().copy(*a, 4096))
        await until_started(tb, started + 1)
        await tb.control.write_semaphore(2, value)
        commands = Pushbuffer().acquire(semaphore(2), payload, operation, wide=wide)
        await waiting.submit(commands.copy(*b, 4096))
        await tb.until_idle(busy, waiting)
        passed = (await tb.events(Acquire, channel=1, passed=True))[-1]
        first, second = (await tb.events(Done))[-2:]
        assert first.cycle <= passed.cycle < second.cycle
