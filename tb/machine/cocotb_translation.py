"""Address spaces on the whole machine: each channel accesses only its own memory."""

from dataclasses import replace
from functools import partial

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.faults.fault_buffer import FaultBuffer
from signalbox.driver.faults.fault_registers import FaultRegisters
from signalbox.driver.memory.page_tables import PageTables
from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.memory.translation_fault import (
    FIRST_ENGINE,
    HOST,
    SEMAPHORES,
    TranslationFault,
    decode,
)
from signalbox.hw.errors import Cause
from signalbox.hw.mmu.records import Scope
from signalbox.hw.page_tables import FAULT_RECORD_BYTES, AccessType, FaultType
from signalbox.hw.registers import MmuOperation
from signalbox.tb.machine.testbench import CHANNEL_BYTES, MachineTestbench, RawChannel
from signalbox.tb.simulation.trace import Fault, Invalidation, Lookup, Walk

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

HERE = 0x40_0000_0000
"""Virtual address of the tests' pages, far from all physical addresses."""

PAGE = 4096
WHOLE = 1 << 29


class Faults:
    """The fault buffer, as managed by the driver."""

    def __init__(self, tb: MachineTestbench, records: int) -> None:
        self.tb = tb
        size = max(PAGE, records * FAULT_RECORD_BYTES)
        self._place = Buffer(Memory(tb.machine, 0), tb.allocate(size, align=PAGE), size)
        self._registers = FaultRegisters(tb.control)
        self._records = FaultBuffer(self._place, self._registers, lambda asid, base: None)

    async def enable(self) -> None:
        """Enable it in the machine."""
        await self._registers.enable(self._place)

    async def take(self) -> list[TranslationFault]:
        """The new faults."""
        return await self._records.read()

    async def status(self) -> dict[str, int]:
        """FAULT_STATUS."""
        return await self.tb.control.read_fields("FAULT_STATUS")

    async def clear(self) -> None:
        """Clear the interrupt."""
        await self._registers.acknowledge()

    async def first(self) -> TranslationFault | None:
        """The fault whose record is in registers."""
        words = [
            await self.tb.control.read(f"FAULT_RECORD_{word}")
            for word in range(FAULT_RECORD_BYTES // 4)
        ]
        return decode(b"".join(word.to_bytes(4, "little") for word in words), lambda *_: None)


def pages(
    tb: MachineTestbench, tables: PageTables, count: int, va: int = HERE, **options
) -> list[int]:
    """Map new pages of 4 KiB from `va` on. Returns their physical addresses."""
    found = []
    for number in range(count):
        pa = tb.allocate(PAGE, align=PAGE)
        tb.machine.memory_write(pa, tb.random.randbytes(PAGE))
        tables.map(va + number * PAGE, pa, PAGE, **options)
        found.append(pa)
    return found


def same(tb: MachineTestbench, one: int, other: int, size: int = PAGE) -> bool:
    """Whether two ranges of physical memory are equal."""
    return tb.machine.memory_read(one, size) == tb.machine.memory_read(other, size)


async def two_channels(tb: MachineTestbench) -> tuple[list[RawChannel], list[PageTables]]:
    """Channels 0 and 1 with copy objects, in address spaces 1 and 2."""
    tables = [await tb.space(index + 1, index) for index in range(2)]
    channels = [await tb.copy_channel(index, asid=index + 1) for index in range(2)]
    return channels, tables


@cocotb.test(**LIMIT)
async def two_spaces(dut):
    """ASID-1 … ASID-4, example 1: the same addresses of two channels are different pages at the
    same time. The first access of each space walks its own tables, later ones hit."""
    tb = await MachineTestbench.start(dut)
    channels, tables = await two_channels(tb)
    places = [pages(tb, one, 2) for one in tables]
    assert not same(tb, places[0][0], places[1][0])
    for _ in range(2):
        for channel in channels:
            channel.segment(Pushbuffer().copy(HERE + PAGE, HERE, PAGE))
        for channel in channels:
            await channel.kick()
        await tb.until_idle(*channels)
    for first, second in places:
        assert same(tb, first, second)
    assert not same(tb, places[0][1], places[1][1])
    for asid in (1, 2):
        looks = await tb.events(Lookup, client=FIRST_ENGINE - 1, asid=asid)
        assert not looks[0].hit and all(look.hit for look in looks[len(looks) // 2 :])
        assert await tb.events(Walk, asid=asid)
    assert not await tb.events(Fault)


@cocotb.test(**LIMIT)
async def shared_page(dut):
    """ASID-6, example 2: a page at different addresses of two spaces passes a value from one to the
    other."""
    tb = await MachineTestbench.start(dut)
    channels, tables = await two_channels(tb)
    own = [pages(tb, one, 1)[0] for one in tables]
    common = tb.allocate(PAGE, align=PAGE)
    there = (HERE + 0x10_0000, HERE + 0x35_7000)
    for one, va in zip(tables, there, strict=True):
        one.map(va, common, PAGE)
    await channels[0].submit(Pushbuffer().copy(there[0], HERE, PAGE).release(there[0], 77))
    await tb.until_word(common, 77)
    tb.set_word(own[0], 77)
    await channels[1].submit(Pushbuffer().acquire(there[1], 77).copy(HERE, there[1], PAGE))
    await tb.until_idle(*channels)
    assert same(tb, own[1], own[0])


def copied_from(va: int) -> Pushbuffer:
    """A copy to the first page."""
    return Pushbuffer().copy(HERE, va, 64)


async def faulting(
    tb: MachineTestbench, channel: RawChannel, commands: Pushbuffer, cause: Cause, faults: Faults
) -> TranslationFault:
    """Submit commands that must fault. Checks that there is exactly one record, in memory and in
    registers, and that the channel is halted for `cause` at the record's address. Returns the
    fault, without its time."""
    await channel.submit(commands)
    halt = await channel.until_halted(cause)
    assert (await tb.interrupts())["FAULT"]
    assert await faults.status() == {"FAULT": 1, "OVERFLOW": 0, "BUS": 0}
    (fault,) = await faults.take()
    assert await faults.first() == fault
    assert fault.va == halt.va & -PAGE or cause is Cause.FETCH_FAULT, (fault, halt)
    await faults.clear()
    assert not (await tb.interrupts())["FAULT"]
    return replace(fault, time_ns=0)


def fault_of_asid_1(
    va: int, cause: FaultType, access: AccessType, client: int, base: int | None
) -> TranslationFault:
    """The expected record."""
    return TranslationFault(None, 1, va, access, cause, base=base, client=client, hub=True)


@cocotb.test(**LIMIT)
async def every_cause(dut):
    """ASID-5, HOST-11: each cause is identified, in a record with ASID, address, access and
    requester. Only the faulting channel is halted; others of the same and of other spaces continue.
    After the repair the access succeeds."""
    tb = await MachineTestbench.start(dut)
    (channel, other), (tables, others) = await two_channels(tb)
    faults = Faults(tb, 128)
    await faults.enable()
    await tb.control.write("INTR_ENABLE", ERROR=1, FAULT=1)
    good = pages(tb, tables, 1, HERE)[0]
    pages(tb, others, 2)
    mmu, engine = tb.spaces.mmu, FIRST_ENGINE
    # Commands by access, address, and expected fault.
    at = iter(range(HERE + 0x1000_0000, HERE + 0x7000_0000, 0x1000_0000))
    unmapped, limited, privileged, readonly, plain = (next(at) for _ in range(5))
    pages(tb, tables, 1, unmapped + PAGE)
    pages(tb, tables, 1, privileged, privileged=True)
    pages(tb, tables, 1, readonly, read_only=True)
    pages(tb, tables, 1, plain, atomics=False)
    write = Pushbuffer().copy(readonly, HERE, 64)
    nowhere = HERE + (1 << 33)
    read, wrote, atomic = AccessType.READ, AccessType.WRITE, AccessType.ATOMIC_STRONG
    rf, wf, sf = Cause.COPY_READ_FAULT, Cause.COPY_WRITE_FAULT, Cause.SEM_FAULT
    cases = [
        (copied_from(unmapped), rf, FaultType.PTE, read, engine, unmapped),
        (copied_from(nowhere), rf, FaultType.PDE, read, engine, nowhere),
        (copied_from(privileged), rf, FaultType.PRIV, read, engine, privileged),
        (write, wf, FaultType.RO, wrote, engine, readonly),
        (Pushbuffer().add(readonly, 1), sf, FaultType.RO, atomic, SEMAPHORES, readonly),
        (Pushbuffer().add(plain, 1), sf, FaultType.ATOMIC, atomic, SEMAPHORES, plain),
        (Pushbuffer().release(unmapped, 1), sf, FaultType.PTE, wrote, SEMAPHORES, unmapped),
        (Pushbuffer().acquire(unmapped, 1), sf, FaultType.PTE, read, SEMAPHORES, unmapped),
    ]
    for commands, cause, fault, access, client, va in cases:
        assert await faulting(tb, channel, commands, cause, faults) == fault_of_asid_1(
            va, fault, access, client, tables.root
        )
        before = await other.read("COPIES")
        await other.submit(Pushbuffer().copy(HERE, HERE + PAGE, 64))
        await tb.until_idle(other)
        assert await other.read("COPIES") == before + 1
        await channel.skip()
        await tb.until_idle(channel)
    assert len(await tb.events(Fault)) == len(cases)
    # Repair.
    await channel.submit(Pushbuffer().release(unmapped, 0x1234))
    await channel.until_halted(sf)
    (place,) = pages(tb, tables, 1, unmapped)
    await mmu.invalidate_page(1, unmapped)
    await channel.clear()
    await tb.until_word(place, 0x1234)
    await tb.until_idle(channel)
    await faults.take()
    await faults.clear()
    # Beyond the limit; unbound.
    await tb.spaces.bind(1, tables, limited - 1)
    fault = await faulting(tb, channel, copied_from(limited), rf, faults)
    assert fault.cause is FaultType.VA_LIMIT and fault.base == tables.root
    await channel.skip()
    await tb.until_idle(channel)
    await mmu.unbind(1)
    release = Pushbuffer().release(HERE, 1)
    assert await faulting(tb, channel, release, Cause.FETCH_FAULT, faults) == fault_of_asid_1(
        channel.userd & -PAGE, FaultType.UNBOUND_INST_BLOCK, read, HOST, None
    )
    await tb.spaces.bind(1, tables)
    await channel.clear()
    await channel.ring_doorbell()
    await tb.until_word(good, 1)


@cocotb.test(**LIMIT)
async def largest_page(dut):
    """HOST-17: one page of 512 MiB covers all of memory. Past its end an access faults. A change of
    the page takes effect at every address once one of its addresses is invalidated; smaller pages
    can replace it."""
    tb = await MachineTestbench.start(dut)
    (channel, other), (tables, others) = await two_channels(tb)
    faults = Faults(tb, 128)
    await faults.enable()
    await tb.control.write("INTR_ENABLE", ERROR=1, FAULT=1)
    pages(tb, others, 1)
    assert not tables.map(HERE, 0, WHOLE, page_size=WHOLE)
    first, second = (tb.allocate(PAGE, align=PAGE) for _ in range(2))
    tb.machine.memory_write(first, tb.random.randbytes(PAGE))
    await channel.submit(Pushbuffer().copy(HERE + second, HERE + first, PAGE))
    await tb.until_idle(channel)
    assert same(tb, first, second)
    await other.submit(Pushbuffer().copy(HERE, HERE, 64))
    await tb.until_idle(other)
    # Past the end of memory, and read-only.
    for va in (HERE + tb.spaces.size, HERE + WHOLE - PAGE):
        commands = Pushbuffer().copy(HERE + second, va, 64)
        assert await faulting(tb, channel, commands, Cause.COPY_READ_FAULT, faults) == (
            fault_of_asid_1(va, FaultType.REGION, AccessType.READ, FIRST_ENGINE, tables.root)
        )
        await channel.skip()
        await tb.until_idle(channel)
    tables.protect(HERE, WHOLE, read_only=True)
    await tb.spaces.mmu.invalidate_page(1, HERE + WHOLE - PAGE)
    commands = Pushbuffer().copy(HERE + second, HERE + first, 64)
    fault = await faulting(tb, channel, commands, Cause.COPY_WRITE_FAULT, faults)
    assert (fault.va, fault.cause) == (HERE + second, FaultType.RO)
    await channel.skip()
    await tb.until_idle(channel)
    # Smaller pages in its place.
    tables.unmap(HERE, WHOLE)
    tables.map(HERE + first, first, PAGE)
    (place,) = pages(tb, tables, 1, HERE + second)
    marks = tb.random.randbytes(PAGE)
    tb.machine.memory_write(second, marks)
    await tb.spaces.mmu.invalidate_page(1, HERE + 0x123 * PAGE)
    await channel.submit(Pushbuffer().copy(HERE + second, HERE + first, PAGE))
    await tb.until_idle(channel)
    assert same(tb, first, place)
    assert tb.machine.memory_read(second, PAGE) == marks
    missed = len(await tb.events(Lookup, asid=2, hit=False))
    await other.submit(Pushbuffer().copy(HERE, HERE, 64))
    await tb.until_idle(other)
    assert len(await tb.events(Lookup, asid=2, hit=False)) == missed, "the other space"


@cocotb.test(**LIMIT)
@cocotb.parametrize(how=[*MmuOperation])
async def nothing_stale_behind_the_acknowledge(dut, how):
    """ASID-8, ASID-9, example 4: while an endless copy writes a page, its space is changed and
    invalidated, or the ASID is bound again, many times, or unbound once. After the acknowledgement
    the old page is never written; the other space loses translations only with INVALIDATE_ALL."""
    tb = await MachineTestbench.start(dut, read_latency=40)
    channels, (tables, others) = await two_channels(tb)
    source = pages(tb, tables, 1)[0]
    (other,) = pages(tb, others, 1)
    await channels[1].submit(Pushbuffer().release(HERE, 1))
    await tb.until_word(other, 1)
    target = HERE + PAGE
    (old,) = pages(tb, tables, 1, target)
    endless = Pushbuffer().copy_2d(target, 0, HERE, 0, PAGE, (1 << 32) - 1)
    await channels[0].submit(endless)
    for _ in range(12):
        await tb.until(partial(same, tb, source, old), "the copy is under way")
        await tb.wait(tb.random.randrange(300))
        if how in {MmuOperation.BIND, MmuOperation.UNBIND}:
            tables = tb.spaces.tables()
            own = channels[0].ring
            tables.map(own, own, CHANNEL_BYTES, page_size=CHANNEL_BYTES)
            tables.map(HERE, source, PAGE)
        else:
            tables.unmap(target, PAGE)
        (new,) = pages(tb, tables, 1, target)
        await invalidated(tb, how, tables, target)
        marks = tb.random.randbytes(PAGE)
        tb.machine.memory_write(old, marks)
        if how is MmuOperation.UNBIND:
            await until_halted_by_a_fault(tb, channels[0])
        else:
            await tb.until(partial(same, tb, source, new), "the copy goes on")
        assert tb.machine.memory_read(old, PAGE) == marks
        if how is MmuOperation.UNBIND:
            break
        old = new
    before = len(await tb.events(Lookup, asid=2, hit=False))
    await channels[1].submit(Pushbuffer().release(HERE, 2))
    await tb.until_word(other, 2)
    lost = len(await tb.events(Lookup, asid=2, hit=False)) - before
    assert (lost > 0) == (how is MmuOperation.INVALIDATE_ALL)


async def until_halted_by_a_fault(tb: MachineTestbench, channel: RawChannel) -> None:
    """Wait for a fault of the channel's copy, fetch or USERD."""
    while not (await channel.status())["HALTED"]:
        await tb.wait(8)
    causes = {Cause.COPY_READ_FAULT, Cause.COPY_WRITE_FAULT, Cause.FETCH_FAULT, Cause.USERD_WRITE}
    assert (await channel.halt()).cause in causes


async def invalidated(
    tb: MachineTestbench, how: MmuOperation, tables: PageTables, va: int, asid: int = 1
) -> None:
    """Invalidate and wait for the acknowledgement."""
    mmu = tb.spaces.mmu
    match how:
        case MmuOperation.INVALIDATE_ALL:
            await mmu.invalidate_all()
        case MmuOperation.INVALIDATE_ASID:
            await mmu.invalidate_asid(asid)
        case MmuOperation.INVALIDATE_PAGE:
            await mmu.invalidate_page(asid, va)
        case MmuOperation.BIND:
            await tb.spaces.bind(asid, tables)
        case MmuOperation.UNBIND:
            await mmu.unbind(asid)


@cocotb.test(**LIMIT)
@cocotb.parametrize(scope=[Scope.PAGE, Scope.ASID, Scope.ALL])
async def methods_invalidate(dut, scope):
    """HOST-4, ASID-9: MEM_OP of a privileged channel invalidates translations of the space with the
    given page directory, and of no other; later methods of the channel wait for it."""
    tb = await MachineTestbench.start(dut)
    channels, (tables, others) = await two_channels(tb)
    privileged = await tb.channel(2, privileged=True)
    pages(tb, tables, 2)
    pages(tb, others, 2)
    fence = tb.allocate(16)
    for number in range(1, 4):
        for channel in channels:
            await channel.submit(Pushbuffer().copy(HERE + PAGE, HERE, PAGE))
        await tb.until_idle(*channels)
        tables.unmap(HERE, PAGE)
        (source,) = pages(tb, tables, 1)
        base = None if scope is Scope.ALL else tables.root
        address = HERE if scope is Scope.PAGE else None
        commands = Pushbuffer().invalidate(base, address).release(fence, number)
        await privileged.submit(commands)
        await tb.until_word(fence, number)
        await channels[0].submit(Pushbuffer().copy(HERE + PAGE, HERE, PAGE))
        await tb.until_idle(channels[0])
        place = tables.find(HERE + PAGE)
        assert place is not None and same(tb, source, place.pa)
    done = (await tb.events(Invalidation))[-3:]
    assert [event.scope for event in done] == [scope] * 3
    assert scope is Scope.ALL or {event.asid for event in done} == {1}
    misses = await tb.events(Lookup, client=FIRST_ENGINE - 1, asid=2, hit=False)
    assert scope is Scope.ALL or not [miss for miss in misses if miss.cycle > done[0].cycle]
