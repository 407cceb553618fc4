"""GPFIFO rings, USERD, segments, doorbell (HOST-1; spec 1.1, 3.3, 3.5)."""

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import GpEntry, HostMethod, pack
from signalbox.hw.registers import Wait
from signalbox.tb.machine.testbench import MachineTestbench, semaphore
from signalbox.tb.simulation.top import MEMORY_BYTES
from signalbox.tb.simulation.trace import Doorbell, Method

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}


def nops(first: int, count: int = 1) -> Pushbuffer:
    """NOP methods with the data `first`, `first` + 1, …"""
    commands = Pushbuffer()
    for value in range(first, first + count):
        commands.inc(0, HostMethod.NOP, value)
    return commands


def control_entry(opcode: int, operand: int = 0) -> int:
    """A ring entry without a segment."""
    return opcode << 32 | operand


async def executed(tb: MachineTestbench, channel: int = 0) -> list[int]:
    """Data of the NOPs executed by a channel."""
    found = await tb.events(Method, channel=channel, offset=int(HostMethod.NOP))
    return [event.data for event in found]


@cocotb.test(**LIMIT)
async def ring_wraps(dut):
    """Entries are executed in order, many times around a ring, with GP_PUT and GP_GET in registers
    and USERD."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, limit2=3)
    first = 0
    for count in (7, 1, 5, 7, 3, 7, 2, 6):
        for _ in range(count):
            channel.segment(nops(first))
            first += 1
        await channel.kick()
        await tb.until_idle(channel)
        assert await channel.read("GP_PUT") == channel.put
        assert await channel.read("GP_GET") == channel.put
        await tb.until_word(channel.userd + 0x88, channel.put)
    assert await executed(tb) == list(range(first))


@cocotb.test(**LIMIT)
async def smallest_ring(dut):
    """A ring of two entries works, one of which is always empty."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, limit2=1)
    for number in range(5):
        await channel.submit(nops(number))
        await tb.until_idle(channel)
    assert await executed(tb) == list(range(5))


@cocotb.test(**LIMIT)
async def get_advances_when_an_entry_starts(dut):
    """GP_GET passes an entry when its processing starts, not when it ends; USERD shows it after the
    write-back period even if the channel is busy."""
    tb = await MachineTestbench.start(dut)
    await tb.control.write("WRITEBACK", 200)
    channel = await tb.channel(0)
    channel.segment(nops(1))
    channel.segment(Pushbuffer().acquire(semaphore(1), 1))
    channel.segment(nops(2))
    await channel.kick()
    await tb.until_waits(channel, Wait.ONCHIP)
    assert await channel.read("GP_GET") == 2
    assert await channel.read("GP_PUT") == 3
    await tb.until_word(channel.userd + 0x88, 2, timeout=500)
    assert await executed(tb) == [1]
    await tb.control.write_semaphore(1, 1)
    await tb.until_idle(channel)
    assert await executed(tb) == [1, 2]
    await tb.until_word(channel.userd + 0x88, 3)


@cocotb.test(**LIMIT)
async def sync_waits_for_earlier_segments(dut):
    """SYNC = WAIT: a segment written by an earlier one is fetched after the write."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for number in range(4):
        target = channel.place(nops(99).dwords)
        writer = nops(10 + number).release(target + 4, 20 + number)
        channel.segment(writer)
        channel.push(pack(GpEntry, address=target // 4, length=2, sync_wait=1))
    await channel.kick()
    await tb.until_idle(channel)
    assert await executed(tb) == [10, 20, 11, 21, 12, 22, 13, 23]


@cocotb.test(**LIMIT)
async def sync_waits_for_the_cpu(dut):
    """A SYNC segment after a blocked one is not fetched, so the CPU may still change it."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    target = channel.place(nops(99).dwords)
    channel.segment(Pushbuffer().acquire(semaphore(1), 1))
    channel.push(pack(GpEntry, address=target // 4, length=2, sync_wait=1))
    await channel.kick()
    await tb.until_waits(channel, Wait.ONCHIP)
    await tb.wait(500)
    channel.place(nops(7).dwords, target)
    await tb.control.write_semaphore(1, 1)
    await tb.until_idle(channel)
    assert await executed(tb) == [7]


@cocotb.test(**LIMIT)
async def control_entries(dut):
    """LENGTH = 0: NOP passes with any operand; other opcodes are GPENTRY errors, dropped by
    clearing; later entries are executed."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    channel.push(control_entry(0))
    channel.segment(nops(1))
    channel.push(control_entry(0, 0xFFFF_FFFF))
    channel.push(control_entry(0, 1))
    channel.segment(nops(2))
    await channel.kick()
    await tb.until_idle(channel)
    assert await executed(tb) == [1, 2]
    for number, opcode in enumerate((1, 2, 3, 4, 0xFF), 3):
        channel.push(control_entry(opcode, 0x1234))
        channel.segment(nops(number))
        await channel.kick()
        halt = await channel.until_halted(Cause.ENTRY_OPCODE)
        assert not halt.valid
        await tb.wait(100)
        assert await executed(tb) == list(range(1, number))
        assert await channel.read("GP_GET") == (channel.put - 1) % channel.entries
        await channel.clear()
        await tb.until_idle(channel)
        assert await executed(tb) == list(range(1, number + 1))
    assert tb.dut.irq.value == 0


@cocotb.test(**LIMIT)
async def marks_among_reads(dut):
    """Control entries of all channels at once, on slow memory: entries that need no read keep their
    order among the reads, and none is lost."""
    tb = await MachineTestbench.start(dut)
    built = await tb.control.read("CHANNELS")
    for latency in (150, 40):
        tb = await tb.again(read_latency=latency)
        channels = [await tb.channel(index, limit2=6) for index in range(built)]
        for channel in channels:
            for number in range(12):
                channel.segment(nops(number))
                for _ in range(4):
                    channel.push(control_entry(0))
            channel.publish()
        for channel in channels:
            await channel.ring_doorbell()
        await tb.until_idle(*channels)
        for channel in channels:
            assert await executed(tb, channel.index) == list(range(12))


@cocotb.test(**LIMIT)
async def entry_flags(dut):
    """FETCH, PRIV and LEVEL of an entry, and bit 1, have no effect on a channel of a single
    device."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for number, flag in enumerate((0, 1 << 0, 1 << 40, 1 << 41, 1 << 0 | 1 << 40 | 1 << 41)):
        address = channel.place(nops(number).dwords)
        channel.push(pack(GpEntry, address=address // 4, length=2) | flag)
    await channel.kick()
    await tb.until_idle(channel)
    assert await executed(tb) == list(range(5))


@cocotb.test(**LIMIT)
async def pointer_past_the_ring(dut):
    """GP_PUT at or beyond the size is a GPPTR error and changes nothing; with a legal value the
    channel continues."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, limit2=4)
    done = 0
    for bad in (16, 17, 0xFFFF, 0x10_0000, 0xFFFF_FFFF):
        channel.segment(nops(done))
        channel.publish(bad)
        await channel.ring_doorbell()
        halt = await channel.until_halted(Cause.RING_POINTER)
        assert not halt.valid
        assert await executed(tb) == list(range(done))
        assert await channel.read("GP_PUT") == channel.put - 1
        await channel.clear()
        await channel.kick()
        await tb.until_idle(channel)
        done += 1
        assert await executed(tb) == list(range(done))


@cocotb.test(**LIMIT)
async def segment_past_the_address_space(dut):
    """A segment beyond 40 bits is a GPENTRY error and is dropped; one that just fits is fetched
    (and faults)."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    top = (1 << 38) - 1
    for number, (address, length, cause) in enumerate([
        (top, 2, Cause.ENTRY_RANGE),
        (top - 5, 7, Cause.ENTRY_RANGE),
        (top, (1 << 21) - 1, Cause.ENTRY_RANGE),
        (top, 1, Cause.FETCH_FAULT),
    ]):
        channel.push(pack(GpEntry, address=address, length=length))
        channel.segment(nops(number))
        await channel.kick()
        halt = await channel.until_halted(cause)
        assert not halt.valid
        await channel.clear()
        await tb.until_idle(channel)
        assert await executed(tb) == list(range(number + 1))


@cocotb.test(**LIMIT)
async def segments_anywhere(dut):
    """Segments of every alignment and many lengths, across 4 KiB boundaries, are executed back to
    back."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, limit2=6)
    page = 0x80_0000
    first = 0
    for _ in range(4):
        for _ in range(12):
            count = tb.random.choice((1, 1, 2, 3, 8, 31, 60))
            page += 0x2000
            at = page - 4 * tb.random.randrange(2 * count + 6)
            channel.segment(nops(first, count), at=at)
            first += count
        await channel.kick()
        await tb.until_idle(channel)
    # A segment that covers two whole pages.
    channel.segment(nops(first, 1100), at=page + 0x1FF4)
    await channel.kick()
    await tb.until_idle(channel)
    assert await executed(tb) == list(range(first + 1100))


@cocotb.test(**LIMIT)
async def doorbell_with_invalid_handle(dut):
    """A doorbell of an unbuilt channel, or of another runlist, is ignored silently."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    built = await tb.control.read("CHANNELS")
    channel.segment(nops(1))
    channel.publish()
    for chid in (built, built + 1, 64, 4095):
        await tb.control.write("DOORBELL", CHID=chid)
    for runlist in (1, 127):
        await tb.control.write("DOORBELL", CHID=0, RUNLIST_ID=runlist)
    await tb.wait(300)
    assert await tb.events(Doorbell) == []
    assert await executed(tb) == []
    assert await channel.read("GP_PUT") == 0
    await channel.ring_doorbell()
    await tb.until_idle(channel)
    assert [event.channel for event in await tb.events(Doorbell)] == [0]
    assert await executed(tb) == [1]


@cocotb.test(**LIMIT)
async def doorbells_in_a_row(dut):
    """Every GP_PUT followed by a doorbell takes effect, however close together the doorbells
    are."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for number in range(60):
        await channel.submit(nops(number))
        if number % 20 == 19:
            await tb.until_idle(channel)
    assert await executed(tb) == list(range(60))


@cocotb.test(**LIMIT)
async def fetch_errors(dut):
    """A USERD, ring or segment that is unmapped or refused by the bus is a GPFIFO error; other
    channels continue. The rest of a bad segment is dropped, with any open method group; the next
    entry follows."""
    tb = await MachineTestbench.start(dut)
    last = await tb.control.read("CHANNELS") - 1
    channel, other = await tb.channel(0), await tb.channel(last) if last else None
    bad = tb.allocate(4096, align=4096)
    tb.dut.memory.error_lo.value = bad
    tb.dut.memory.error_hi.value = bad + 4096
    for number, (address, length, cause) in enumerate([
        (MEMORY_BYTES, 4, Cause.FETCH_FAULT),
        (bad, 40, Cause.FETCH_BUS),
        (MEMORY_BYTES - 64, 100, Cause.FETCH_FAULT),
        (MEMORY_BYTES - 64, 100_000, Cause.FETCH_FAULT),
    ]):
        if number < 2:  # the others begin with dwords that are fetched
            group = Pushbuffer().non_inc(0, HostMethod.NOP, 1, 2, 3)
            channel.segment(Pushbuffer().raw(group.dwords[0]))
        channel.push(pack(GpEntry, address=address // 4, length=length))
        channel.segment(nops(number))
        await channel.kick()
        halt = await channel.until_halted(cause)
        assert not halt.valid
        if other:
            await other.submit(nops(number))
            await tb.until_idle(other)
            assert await executed(tb, last) == list(range(number + 1))
        await channel.clear()
        await tb.until_idle(channel)
        assert await executed(tb) == list(range(number + 1))


@cocotb.test(**LIMIT)
async def lost_entries_end_the_group(dut):
    """A ring entry that cannot be read may contain the rest of an open method group: later entries
    are not mistaken for it."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    group = Pushbuffer().non_inc(0, HostMethod.NOP, 1, 2, 3)
    channel.segment(Pushbuffer().raw(*group.dwords[:2]))
    line = 8  # entries in a beat of the widest bus, which are lost together
    while channel.put % line:
        channel.push(0)
    bad = channel.ring + 8 * channel.put
    tb.dut.memory.error_lo.value = bad
    tb.dut.memory.error_hi.value = bad + 8 * line
    channel.segment(Pushbuffer().raw(*group.dwords[2:]))
    while channel.put % line:
        channel.push(0)
    for value in (7, 8, 9):
        channel.segment(nops(value))
    await channel.kick()
    for _ in range(line):
        await channel.until_halted(Cause.FETCH_BUS)
        await channel.clear()
    await tb.until_idle(channel)
    assert await executed(tb) == [1, 7, 8, 9]


@cocotb.test(**LIMIT)
async def ring_and_userd_errors(dut):
    """An unmapped ring or USERD halts the channel, the latter when GP_GET is written to it; after a
    new setup the channel works."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for name, size in (("GP_BASE", 1 << 12), ("USERD", 1 << 12)):
        await channel.write("CONTROL", ENABLE=0)
        await channel.write(name, MEMORY_BYTES + size)
        await channel.write("CONTROL", ENABLE=1)
        channel.put = 0
        if name == "USERD":
            halt = await channel.until_halted(Cause.USERD_WRITE)
            assert not halt.valid
            await channel.clear()
        channel.segment(nops(0))
        await channel.kick()
        await channel.until_halted(Cause.FETCH_FAULT)
        assert await executed(tb) == []
        await channel.write("CONTROL", ENABLE=0)
        await channel.write(name, {"GP_BASE": channel.ring, "USERD": channel.userd}[name])
    await channel.write("CONTROL", ENABLE=1)
    assert (await channel.status())["HALTED"] == 0
    channel.put = 0
    await channel.submit(nops(5))
    await tb.until_idle(channel)
    assert await executed(tb) == [5]


@cocotb.test(**LIMIT)
async def switching_off_and_on(dut):
    """A disabled channel ignores its doorbell; enabled again, it starts from an empty ring, without
    any remaining group, object or acquire."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    group = Pushbuffer().acquire(semaphore(1), 1).raw(1 << 29 | 5 << 16 | 0x08 >> 2, 1)
    await channel.submit(group)
    await tb.until_waits(channel, Wait.ONCHIP)
    await channel.write("CONTROL", ENABLE=0)
    await tb.control.write_semaphore(1, 1)
    await channel.submit(nops(1))
    await tb.wait(300)
    assert await executed(tb) == []
    status = await channel.status()
    assert (status["ENABLED"], status["ACQUIRE_FAIL"]) == (0, 1)
    await channel.open()
    channel.put = 0
    assert (await channel.status())["ACQUIRE_FAIL"] == 0
    assert await channel.read("GP_GET") == 0
    assert await channel.read("GP_PUT") == 0
    await channel.submit(nops(2))
    await tb.until_idle(channel)
    assert await executed(tb) == [2]


@cocotb.test(**LIMIT)
async def switched_off_channel_leaves_memory_alone(dut):
    """STATUS.ACTIVE is 1 while a disabled channel still accesses memory; once it is 0, nothing
    follows: no GP_GET, no REF, no copy, no semaphore."""
    tb = await MachineTestbench.start(dut, read_latency=300, write_latency=300)
    await tb.control.write("WRITEBACK", 4000)
    (dst, src), fence = tb.copies(1, 4096)[0], tb.allocate(16)
    work = {
        "GP_GET": Pushbuffer().acquire(semaphore(1), 1),
        "fetch": nops(0, 400),
        "copy": Pushbuffer().set_object().copy(dst, src, 4096).release(fence, 1),
        "semaphore": Pushbuffer().release(fence, 2).release(fence, 3),
        "REF": Pushbuffer().host(HostMethod.SET_REFERENCE, 5),
    }
    waits = {
        "GP_GET": Wait.ONCHIP,
        "copy": Wait.COPIES,
        "semaphore": Wait.FENCE,
        "REF": Wait.WRITEBACK,
    }
    for name, commands in work.items():
        channel = await tb.channel(0)
        await channel.until_inactive()
        await channel.submit(commands)
        if name in waits:
            await tb.until_waits(channel, waits[name])
        await channel.write("CONTROL", ENABLE=0)
        assert (await channel.status())["ACTIVE"] == (name != "GP_GET"), name
        await channel.until_inactive()
        places = ((channel.userd, 512), (dst, 4096), (fence, 16))
        for address, size in places:
            tb.machine.memory_write(address, b"\xa5" * size)
        await tb.wait(4500)
        for address, size in places:
            assert tb.machine.memory_read(address, size) == b"\xa5" * size, name
