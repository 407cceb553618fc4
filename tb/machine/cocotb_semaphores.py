"""SEM_EXECUTE through the host: every operation, on chip and in memory (HOST-4; spec 2.1, 2.2)."""

import itertools

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause
from signalbox.hw.methods import HostMethod, Reduction, SemaphoreExecute, SemOp, pack
from signalbox.hw.registers import Wait
from signalbox.tb.machine.cocotb_order import until_started
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.models.semaphores import ACQUIRES, Refused, acquire, reduce
from signalbox.tb.simulation.top import MEMORY_BYTES
from signalbox.tb.simulation.trace import Acquire, Done, Semaphore

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

FORMS = [(32, False), (32, True), (64, False), (64, True)]
"""(bits, unsigned) of reductions."""

BATCH = 30
"""Operations per segment."""


def corners(bits: int) -> list[tuple[int, int]]:
    """(memory value, payload) pairs around every wrap."""
    top, half = (1 << bits) - 1, 1 << bits - 1
    return [
        (0, 0),
        (0, 1),
        (1, 0),
        (7, 7),
        (7, 6),
        (6, 7),
        (top, top),
        (top, 0),
        (0, top),
        (top, 1),
        (half, half - 1),
        (half - 1, half),
        (half, 0),
        (0, half),
        (1, half + 1),
        (0x55, 0xAA),
    ]


def reductions() -> list[tuple[Reduction, int, bool, int, int]]:
    """(reduction, bits, unsigned, value, payload) of all defined reductions."""
    cases = []
    for reduction, (bits, unsigned) in itertools.product(Reduction, FORMS):
        for value, payload in corners(bits):
            try:
                reduce(reduction, value, payload, bits, unsigned)
            except Refused:
                continue
            cases.append((reduction, bits, unsigned, value, payload))
    return cases


async def submit_batches(
    tb: MachineTestbench, channel: RawChannel, parts: list[Pushbuffer]
) -> None:
    """Execute many small pushbuffers, `BATCH` per segment, from the same memory."""
    room = channel.place([0] * 12 * BATCH * 2)
    for first in range(0, len(parts), BATCH):
        dwords = [dword for part in parts[first : first + BATCH] for dword in part.dwords]
        await channel.submit(dwords, at=room)
        await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def reductions_on_chip(dut):
    """All reductions, sizes and signs equal the model's at the corners."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    parts, expected = [], []
    for reduction, bits, unsigned, value, payload in reductions():
        upper = tb.random.getrandbits(64 - bits) << bits if bits < 64 else 0
        result = reduce(reduction, value, payload, bits, unsigned)
        part = Pushbuffer().release(semaphore(5), upper | value, wide=True)
        wide = bits == 64
        part.reduce(semaphore(5), payload, reduction, unsigned=unsigned, wide=wide)
        parts.append(part)
        expected += [upper | value, upper | result]
    await submit_batches(tb, channel, parts)
    assert [event.value for event in await tb.events(Semaphore)] == expected


@cocotb.test(**LIMIT)
async def reductions_in_memory(dut):
    """All reductions on words in memory equal the model's; neighbouring bytes do not change."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    parts, expected = [], bytearray()
    cases = reductions()
    base = tb.allocate(16 * len(cases))
    content = bytearray(tb.random.randbytes(16 * len(cases)))
    for number, (reduction, bits, unsigned, value, payload) in enumerate(cases):
        at, size = 16 * number + tb.random.choice((0, 8)), bits // 8
        content[at : at + size] = value.to_bytes(size, "little")
        wide = bits == 64
        parts.append(
            Pushbuffer().reduce(base + at, payload, reduction, unsigned=unsigned, wide=wide)
        )
        part = bytearray(content[16 * number : 16 * number + 16])
        result = reduce(reduction, value, payload, bits, unsigned)
        part[at % 16 : at % 16 + size] = result.to_bytes(size, "little")
        expected += part
    tb.machine.memory_write(base, bytes(content))
    await submit_batches(tb, channel, parts)
    assert tb.machine.memory_read(base, len(expected)) == expected


@cocotb.test(**LIMIT)
async def releases(dut):
    """Releases of 32 and 64 bits, with and without timestamp, on chip and in memory, write exactly
    their bytes."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    payload = 0x0123_4567_89AB_CDEF
    for wide, timestamp in itertools.product((False, True), repeat=2):
        here = tb.allocate(16)
        tb.machine.memory_write(here, b"\xee" * 16)
        await tb.control.write_semaphore(6, 0xEEEE_EEEE_EEEE_EEEE)
        before = await tb.control.read("TIME_0")
        commands = Pushbuffer()
        for address in (here, semaphore(6)):
            value = payload if wide else payload & 0xFFFF_FFFF
            commands.release(address, value, wide=wide, timestamp=timestamp)
        await channel.submit(commands)
        await tb.until_idle(channel)
        after = await tb.control.read("TIME_0")
        kept = 0 if timestamp else 0xEEEE_EEEE << 32
        expected = payload if wide else payload & 0xFFFF_FFFF | kept
        assert tb.word(here, 8) == expected
        assert await tb.control.read_semaphore(6) == expected
        stamp = tb.word(here + 8, 8)
        assert before <= stamp <= after if timestamp else stamp == 0xEEEE_EEEE_EEEE_EEEE


@cocotb.test(**LIMIT)
async def stamped_reductions(dut):
    """A reduction with timestamp combines and stamps; a 32-bit one clears bytes 4-7, unless it is
    refused."""
    tb = await MachineTestbench.start(dut, counting=1)
    channel = await tb.channel(0)
    here, upper = tb.allocate(16), 0xEEEE_EEEE << 32
    tb.set_word(here, upper, 8)
    await tb.control.write_semaphore(6, upper)
    before = await tb.control.read("TIME_0")
    for address in (here, semaphore(6)):
        for _ in range(3):
            await channel.submit(Pushbuffer().reduce(address, 5, timestamp=True))
    await tb.until_idle(channel)
    assert tb.word(here, 8) == await tb.control.read_semaphore(6) == 15
    assert before <= tb.word(here + 8, 8) <= await tb.control.read("TIME_0")
    for value, kind, payload, cause, result in (
        (0, Reduction.DEC, 7, Cause.SEM_UNDERFLOW, None),
        (0, Reduction.IADD, 0xFFFF_FFFF, Cause.SEM_UNDERFLOW, None),
        (7, Reduction.INC, 7, Cause.SEM_OVERFLOW, None),
        (3, Reduction.DEC, 7, None, 2),
        (9, Reduction.DEC, 7, None, 7),
        (6, Reduction.INC, 7, None, 7),
        (6, Reduction.IADD, 0xFFFF_FFFF, None, 5),
    ):
        await tb.control.write_semaphore(0, upper | value)
        await channel.submit(Pushbuffer().reduce(semaphore(0), payload, kind, timestamp=True))
        if cause:
            await channel.until_halted(cause)
            await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
        found = await tb.control.read_semaphore(0)
        assert found == (upper | value if cause else result), (kind, value)


async def acquires(tb: MachineTestbench, where: int, memory: bool) -> None:
    """All acquires, sizes and corners on one semaphore; the CPU releases those that fail."""
    channel = await tb.channel(0)
    room = channel.place([0] * 8)
    seen = 0
    for operation, bits in itertools.product(sorted(ACQUIRES), (32, 64)):
        for value, payload in corners(bits):
            case = f"{operation.name} of {bits} bits: {value:#x}, {payload:#x}"
            await set_value(tb, where, value, memory)
            passes = acquire(operation, value, payload, bits)
            commands = Pushbuffer().acquire(where, payload, operation, wide=bits == 64)
            await channel.submit(commands, at=room)
            if passes:
                await tb.until_idle(channel)
            else:
                await tb.until_waits(channel, Wait.RETRY if memory else Wait.ONCHIP)
                await let_go(tb, channel, where, memory, (operation, payload, bits))
            decided = [event.passed for event in (await tb.events(Acquire))[seen:]]
            assert decided[0] == passes, case
            assert not passes or decided == [True], case
            seen += len(decided)


async def let_go(
    tb: MachineTestbench, channel: RawChannel, where: int, memory: bool, held: tuple
) -> None:
    """Make a failed acquire pass, or restart its channel if no value can."""
    operation, payload, bits = held
    top = (1 << bits) - 1
    tries = (payload, 0, top, payload ^ top)
    good = [word for word in tries if acquire(operation, word, payload, bits)]
    if good:
        await set_value(tb, where, good[0], memory)
        await tb.until_idle(channel)
    else:
        await channel.write("CONTROL", ENABLE=0)
        await channel.open()
        channel.put = 0


async def set_value(tb: MachineTestbench, where: int, value: int, memory: bool) -> None:
    """Set a semaphore as the CPU does."""
    if memory:
        tb.set_word(where, value, 8)
    else:
        await tb.control.write_semaphore(where >> 4 & 0xFFF, value)


@cocotb.test(**LIMIT)
async def acquires_on_chip(dut):
    """Every acquire equals the model's at the corners."""
    tb = await MachineTestbench.start(dut)
    await acquires(tb, semaphore(7), False)


@cocotb.test(**LIMIT)
async def acquires_in_memory(dut):
    """Every acquire of a word in memory equals the model's at the corners."""
    tb = await MachineTestbench.start(dut)
    await acquires(tb, tb.allocate(16), True)


@cocotb.test(**LIMIT)
async def release_after_copies(dut):
    """A release, with or without WFI, comes after the channel's copy; WFI does not wait for other
    channels' copies."""
    tb = await MachineTestbench.start(dut, write_latency=100)
    channel = await tb.copy_channel(0)
    for wfi in (False, True):
        ((dst, src),) = tb.copies(1)
        here = tb.allocate(16)
        await channel.submit(Pushbuffer().copy(dst, src, 1024).release(here, 1, wfi=wfi))
        await tb.until(lambda here=here: tb.word(here) == 1, "release", poll=1)
        assert tb.copied(dst, src)
        await tb.until_idle(channel)
    done = len(await tb.events(Done))
    other = await tb.copy_channel(1)
    await other.submit(Pushbuffer().copy_2d(*tb.endless()))
    await until_started(tb, done + 1)
    here = tb.allocate(16)
    await channel.submit(Pushbuffer().release(here, 1, wfi=True))
    await tb.until_word(here, 1)
    assert len(await tb.events(Done)) == done


@cocotb.test(**LIMIT)
async def misuse(dut):
    """Misalignment, unsupported combinations, unknown semaphores, unmapped and refused memory give
    a SEMAPHORE error that keeps the method, and write nothing. The channel continues after the
    method is retried or replaced."""
    tb = await MachineTestbench.start(dut)
    channel = await tb.channel(0)
    here = tb.allocate(32, align=32)
    bad = tb.allocate(64, align=4096)
    dut.memory.error_lo.value = bad
    dut.memory.error_hi.value = bad + 64
    built = await tb.control.read("SEMAPHORES")
    release, reduction = int(SemOp.RELEASE), int(SemOp.REDUCTION)
    cases = [
        (here + 4, {"operation": release, "wide": 1}, Cause.SEM_ALIGNMENT),
        (here + 4, {"operation": 0, "wide": 1}, Cause.SEM_ALIGNMENT),
        (here + 8, {"operation": release, "release_timestamp": 1}, Cause.SEM_ALIGNMENT),
        (here + 4, {"operation": reduction, "release_timestamp": 1}, Cause.SEM_ALIGNMENT),
        (here, {"operation": 7}, Cause.SEM_UNSUPPORTED),
        (semaphore(built), {"operation": release}, Cause.SEM_UNKNOWN),
        (semaphore(0xFFF), {"operation": 0}, Cause.SEM_UNKNOWN),
        (semaphore(1) + 4, {"operation": release}, Cause.SEM_UNKNOWN),
        (semaphore(1) + 8, {"operation": 0}, Cause.SEM_UNKNOWN),
        (MEMORY_BYTES, {"operation": release}, Cause.SEM_FAULT),
        (MEMORY_BYTES + 8, {"operation": 0}, Cause.SEM_FAULT),
        (MEMORY_BYTES, {"operation": reduction}, Cause.SEM_FAULT),
        (bad, {"operation": release}, Cause.SEM_BUS),
        (bad, {"operation": 0}, Cause.SEM_BUS),
        (bad, {"operation": reduction}, Cause.SEM_BUS),
    ]
    for kind, (bits, unsigned) in itertools.product(range(16), FORMS):
        try:
            reduce(kind, 1, 1, bits, unsigned)
        except Refused:
            form = {"wide": int(bits == 64), "reduction": kind, "unsigned": int(unsigned)}
            form |= {"operation": reduction}
            cases += [(where, form, Cause.SEM_UNSUPPORTED) for where in (here, semaphore(1))]
    room = channel.place([0] * 8)
    for address, form, cause in cases:
        execute = pack(SemaphoreExecute, **form)
        values = (address & 0xFFFF_FFFF, address >> 32, 0, 0, execute)
        commands = Pushbuffer().inc(0, HostMethod.SEM_ADDR_LO, *values)
        await channel.submit(commands, at=room)
        halt = await channel.until_halted(cause)
        assert (halt.method, halt.data, halt.valid) == (0x6C, execute, True)
        assert halt.va == address
        await channel.clear()
        await channel.until_halted(cause)
        await channel.replace(HostMethod.NOP)
        await tb.until_idle(channel)
    assert tb.word(here, 32) == tb.word(bad, 64) == 0
    assert await tb.control.read_semaphore(1) == 0
    assert await tb.events(Semaphore) == []
