"""Method headers and groups (HOST-2; spec 1.2)."""

from random import Random

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import (
    CeMethod,
    GpEntry,
    Header,
    HostMethod,
    SecOp,
    SubDeviceMask,
    TertOp,
    pack,
)
from signalbox.hw.registers import Wait
from signalbox.tb.machine.testbench import MachineTestbench, semaphore
from signalbox.tb.simulation.trace import Method, Served

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

SET, STORE, USE = TertOp.SET_SUB_DEV_MASK, TertOp.STORE_SUB_DEV_MASK, TertOp.USE_SUB_DEV_MASK
ON, OFF = 0x001, 0xFFE
"""Sub-device masks with and without device 0."""


def header(sec_op: SecOp, method: int, count: int, subchannel: int = 0, reserved: int = 0) -> int:
    """A method header; `method` is a byte offset."""
    return pack(
        Header,
        sec_op=sec_op,
        address=method // 4,
        count=count,
        subchannel=subchannel,
        reserved=reserved,
    )


async def methods(tb: MachineTestbench, channel: int = 0) -> list[tuple[int, int, int]]:
    """(subchannel, byte offset, data) of the methods executed by a channel."""
    found = await tb.events(Method, channel=channel)
    return [(event.subchannel, event.offset, event.data) for event in found]


@cocotb.test(**LIMIT)
async def every_form(dut):
    """INC, NON_INC, ONE_INC, IMMD, the NOP word and empty groups work, on host and copy methods."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    commands = Pushbuffer().set_object(4).raw(0, 0)
    commands.inc(3, HostMethod.SEM_ADDR_LO, 0x10, 0x20, 0x30, 0x40).raw(0)
    commands.non_inc(5, HostMethod.NOP, 1, 0, 0xFFFF_FFFF)
    commands.one_inc(2, HostMethod.SEM_ADDR_HI, 7, 8, 9, 10)
    commands.immediate(7, HostMethod.SET_REFERENCE, 0x1FFF)
    for form in (SecOp.INC_METHOD, SecOp.NON_INC_METHOD, SecOp.ONE_INC):
        commands.raw(header(form, 0x3FFC, 0))
    commands.inc(4, CeMethod.OFFSET_IN_UPPER, *range(8))
    commands.one_inc(4, CeMethod.PITCH_IN, 3)
    commands.immediate(4, CeMethod.NOP, 5)
    await channel.submit(commands)
    await tb.until_idle(channel)
    assert await methods(tb) == [
        (4, 0x00, 0xC7B5),
        *((3, 0x5C + 4 * i, 0x10 * (i + 1)) for i in range(4)),
        *((5, 0x08, value) for value in (1, 0, 0xFFFF_FFFF)),
        *((2, offset, value) for offset, value in ((0x60, 7), (0x64, 8), (0x64, 9), (0x64, 10))),
        (7, 0x50, 0x1FFF),
        *((4, 0x400 + 4 * i, i) for i in range(8)),
        (4, 0x410, 3),
        (4, 0x100, 5),
    ]


def mask_entry(operation: TertOp, mask: int = 0) -> int:
    """A control entry for a sub-device mask."""
    return pack(SubDeviceMask, operation=operation, mask=mask)


def add_mask_entry(numbers: Random, dwords: list[int], mask: int, stored: int) -> tuple[int, int]:
    """Append a NOP, or a control entry for a random mask. Returns the resulting masks."""
    operation, value = numbers.choice([*TertOp]), numbers.getrandbits(12) | numbers.getrandbits(1)
    if operation == TertOp.LEGACY_INC:
        dwords.append(0)
        return mask, stored
    dwords.append(mask_entry(operation, value))
    return {SET: (value, stored), STORE: (mask, value), USE: (stored, stored)}[operation]


@cocotb.test(**LIMIT)
async def random_groups(dut):
    """Random groups of all forms, cut into random segments, are executed in order, except those
    under a sub-device mask without device 0 (HOST-18)."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0, limit2=6)
    numbers, dwords, expected = tb.random, [], []
    base = 0x400
    mask = stored = ON
    await channel.submit(Pushbuffer().set_object(4))
    for _ in range(120):
        form = numbers.choice(list(SecOp))
        count = numbers.randrange(9)
        values = [numbers.randrange(1 << 32) for _ in range(count)]
        match form:
            case SecOp.INC_METHOD:
                moves = [base + 4 * i for i in range(count)]
            case SecOp.NON_INC_METHOD:
                moves = [base] * count
            case SecOp.ONE_INC:
                moves = [base + 4 * min(i, 1) for i in range(count)]
            case SecOp.IMMD_DATA_METHOD:
                count = numbers.randrange(1 << 13)
                moves, values = [], []
                expected += [(4, base, count)] if mask & 1 else []
            case SecOp.GRP0_USE_TERT:
                mask, stored = add_mask_entry(numbers, dwords, mask, stored)
                continue
            case _:
                continue
        dwords += [header(form, base, count, 4), *values]
        if mask & 1:
            expected += [(4, offset, value) for offset, value in zip(moves, values, strict=True)]
    while dwords:
        size = min(len(dwords), numbers.choice((1, 1, 2, 3, 5, 17, 40)))
        part, dwords = dwords[:size], dwords[size:]
        channel.segment(part)
        if channel.put % 16 == 0:
            await channel.kick()
            await tb.until_idle(channel)
    await channel.kick()
    await tb.until_idle(channel)
    assert (await methods(tb))[1:] == expected


@cocotb.test(**LIMIT)
async def sub_device_masks(dut):
    """HOST-18: while the mask excludes device 0, methods of all forms, host methods and SET_OBJECT
    included, are ignored without an error and not counted; control entries still work. A channel
    starts with device 0 in both masks."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    number = 0
    expected: list[int] = []

    def note(active: bool) -> int:
        """An immediate NOP, with a number of its own."""
        nonlocal number
        number += 1
        if active:
            expected.append(number)
        return header(SecOp.IMMD_DATA_METHOD, HostMethod.NOP, number)

    ignored = Pushbuffer().set_object(4).inc(0, HostMethod.ILLEGAL, 1).inc(3, 0x300, 1, 2, 3)
    ignored.non_inc(6, 0, 7, 8).one_inc(2, HostMethod.SEM_ADDR_HI, 9, mask_entry(SET, ON), 0)
    ignored.immediate(1, 0x100, 5).release(semaphore(0), 77)
    for entry, active in (
        (mask_entry(USE), True),
        (mask_entry(STORE, OFF), True),
        (mask_entry(SET, 0xFFF), True),
        (mask_entry(USE), False),
        (mask_entry(STORE, ON), False),
        (mask_entry(SET, 0), False),
        (0, False),
        (header(SecOp.NON_INC_METHOD, 0, 0), False),
        (mask_entry(USE), True),
        (mask_entry(SET, OFF), False),
        (mask_entry(SET, ON), True),
    ):
        rest = [] if active else ignored.dwords
        channel.segment([entry, note(active), *rest, note(active)])
    end = header(SecOp.END_PB_SEGMENT, 0, 0)
    # END_PB_SEGMENT works, and skips control entries.
    channel.segment([mask_entry(SET, OFF), end, mask_entry(SET, ON)])
    channel.segment([note(False), mask_entry(SET, ON), end, mask_entry(SET, OFF)])
    channel.segment([note(True)])
    await channel.kick()
    await tb.until_idle(channel)
    assert [(offset, data) for _, offset, data in await methods(tb)] == [(8, n) for n in expected]
    assert await channel.read("METHODS") == len(expected)
    assert await tb.control.read_semaphore(0) == 0


@cocotb.test(**LIMIT)
async def ignored_groups_span_segments(dut):
    """HOST-18: an ignored group continues in later segments, across a switch to another channel,
    which has its own mask. Bad headers and entries are errors even then, and do not change the
    mask; a start of the channel ends the group."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    nop = header(SecOp.IMMD_DATA_METHOD, HostMethod.NOP, 7)
    channel.segment([mask_entry(SET, OFF), header(SecOp.INC_METHOD, HostMethod.ILLEGAL, 3), nop])
    await channel.kick()
    await tb.until_idle(channel)
    last = await tb.control.read("CHANNELS") - 1
    if last:
        other = await tb.channel(last)
        await other.submit([nop])
        await tb.until_idle(other)
        assert len(await methods(tb, last)) == 1
    channel.segment([mask_entry(SET, ON)])
    channel.segment([mask_entry(SET, ON), nop])
    await channel.kick()
    await tb.until_idle(channel)
    assert not await methods(tb)
    bad = header(SecOp.RESERVED6, 8, 1)
    await channel.submit([nop, bad, nop])
    assert (await channel.until_halted(Cause.HEADER_RESERVED)).data == bad
    await channel.clear()
    channel.push(pack(GpEntry, address=(1 << 38) - 1, length=2))
    channel.segment([nop])
    await channel.kick()
    await channel.until_halted(Cause.ENTRY_RANGE)
    await channel.clear()
    await tb.until_idle(channel)
    assert not await methods(tb)
    await channel.write("CONTROL", ENABLE=0)
    await channel.open()
    channel.put = 0
    await channel.submit([nop])
    await tb.until_idle(channel)
    assert len(await methods(tb)) == 1


@cocotb.test(**LIMIT)
async def end_of_segment(dut):
    """END_PB_SEGMENT skips the rest of the segment, whatever its contents; within a group it is
    data."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    end = header(SecOp.END_PB_SEGMENT, 0, 0)
    one = [header(SecOp.NON_INC_METHOD, 8, 1)]
    junk = [0xDFFF_FFFF, 0x4000_0001] * 60
    channel.segment([*one, 1, end, *junk])
    channel.segment([*one, 2, end])
    channel.segment([end | 0x1FFF_EFFF, *junk])
    channel.segment([*one, end, *one, 3, end, 1])
    channel.segment([end])
    channel.segment([*one, 4])
    await channel.kick()
    await tb.until_idle(channel)
    assert [data for _, _, data in await methods(tb)] == [1, 2, end, 3, 4]


@cocotb.test(**LIMIT)
async def groups_span_segments(dut):
    """A group continues in later segments, also across a switch to another channel."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    execute = 1  # SEM_EXECUTE: release
    where = tb.allocate(16)
    channel.segment([header(SecOp.INC_METHOD, HostMethod.SEM_ADDR_LO, 5)])
    channel.segment([where])
    channel.segment([0, 0x1234_5678])
    await channel.kick()
    await tb.wait(300)
    assert len(await methods(tb)) == 3
    last = await tb.control.read("CHANNELS") - 1
    if last:
        other = await tb.channel(last)
        await other.submit(Pushbuffer().inc(0, HostMethod.SEM_ADDR_LO, 4, 5, 6).raw(0))
        await tb.until_idle(other)
    channel.segment([9])
    channel.segment([execute, header(SecOp.ONE_INC, HostMethod.SET_REFERENCE - 4, 0)])
    channel.segment([header(SecOp.NON_INC_METHOD, HostMethod.NOP, 40), *range(17)])
    channel.segment(list(range(17, 40)))
    await channel.kick()
    await tb.until_idle(channel)
    assert tb.word(where) == 0x1234_5678
    assert [data for _, offset, data in await methods(tb) if offset == 8] == list(range(40))


@cocotb.test(**LIMIT)
async def illegal_headers(dut):
    """Reserved and obsolete forms, reserved bits and addresses beyond the range give PBENTRY, with
    a readable header; after clearing, the channel continues after it."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    last, done = 0x3FFC, 0
    cases = [
        (0x0000_0004, Cause.HEADER_OBSOLETE),
        (0x0004_0008, Cause.HEADER_OBSOLETE),
        (0x4004_0008, Cause.HEADER_OBSOLETE),
        (0x4000_0000, Cause.HEADER_OBSOLETE),
        (0xC000_0000, Cause.HEADER_RESERVED),
        (0xC123_4567, Cause.HEADER_RESERVED),
        (header(SecOp.INC_METHOD, 8, 1, reserved=1), Cause.HEADER_RESERVED),
        (header(SecOp.NON_INC_METHOD, 8, 1, reserved=1), Cause.HEADER_RESERVED),
        (header(SecOp.IMMD_DATA_METHOD, 8, 1, reserved=1), Cause.HEADER_RESERVED),
        (header(SecOp.ONE_INC, 8, 1, reserved=1), Cause.HEADER_RESERVED),
        (header(SecOp.INC_METHOD, last, 2), Cause.HEADER_RANGE),
        (header(SecOp.INC_METHOD, 8, 0x1FFF), Cause.HEADER_RANGE),
        (header(SecOp.ONE_INC, last, 2), Cause.HEADER_RANGE),
    ]
    for dword, cause in cases:
        nop = header(SecOp.IMMD_DATA_METHOD, HostMethod.NOP, 7)
        # The rest of the segment, and a later one, continue after it.
        channel.segment([nop, dword, nop])
        channel.segment([nop])
        await channel.kick()
        halt = await channel.until_halted(cause)
        assert (halt.data, halt.valid) == (dword, False)
        await tb.wait(100)
        assert len(await methods(tb)) == done + 1
        await channel.clear()
        await tb.until_idle(channel)
        done += 3
        assert len(await methods(tb)) == done
    # So do submissions after the clearing.
    await channel.submit([header(SecOp.IMMD_DATA_METHOD, HostMethod.NOP, 7)] * 3)
    await tb.until_idle(channel)
    assert len(await methods(tb)) == done + 3


@cocotb.test(**LIMIT)
async def last_method_address(dut):
    """Groups may reach the last address but not exceed it. No method exists there, so the only
    errors are METHOD and DEVICE."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    for dword in (header(SecOp.INC_METHOD, 0x3FF8, 2, 4), header(SecOp.NON_INC_METHOD, 0x3FFC, 2)):
        await channel.submit([dword, 5, 6])
        for data in (5, 6):
            halt = await channel.until_halted(Cause.OBJECT_UNBOUND)
            assert (halt.data, halt.valid) == (data, True)
            await channel.replace(HostMethod.NOP)
            await tb.wait(50)
        await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def one_method_per_cycle(dut):
    """256 methods of one group execute in 256 cycles, from memory with a latency of 16 cycles, if
    the prefetch buffer covers it; the smallest buffer reaches nearly half the rate."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    width = await tb.control.read("DATA_WIDTH")
    ahead = await tb.control.read("PREFETCH_BEATS") * width // 32
    most = 255 if ahead >= 64 else 550
    # The pipeline begins with full buffers, as for a channel that waited for its turn.
    await channel.submit(Pushbuffer().acquire(semaphore(0), 1))
    await tb.until_waits(channel, Wait.ONCHIP)
    await channel.submit(Pushbuffer().non_inc(0, HostMethod.NOP, *range(256)))
    await tb.wait(300)
    await tb.let_go(0, 1)
    await tb.until_idle(channel)
    nops = await tb.events(Method, offset=int(HostMethod.NOP))
    assert [event.data for event in nops] == list(range(256))
    cocotb.log.info("256 methods in %d cycles", nops[-1].cycle - nops[0].cycle + 1)
    assert nops[-1].cycle - nops[0].cycle <= most
    # The same while the data is still being fetched.
    await channel.submit(Pushbuffer().non_inc(0, HostMethod.NOP, *range(256)))
    await tb.until_idle(channel)
    nops = (await tb.events(Method, offset=int(HostMethod.NOP)))[256:]
    cocotb.log.info("cold: 256 methods in %d cycles", nops[-1].cycle - nops[0].cycle + 1)
    assert nops[-1].cycle - nops[0].cycle <= most + 45
    assert (await tb.events(Served))[-1].channel is None
