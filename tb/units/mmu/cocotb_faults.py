"""The fault buffer, with the whole of virtual memory (ASID-5, HOST-11)."""

import itertools
from typing import Any

import cocotb

from signalbox.tb.testbench.sample import fewer, some
from signalbox.tb.units.mmu.clients import BUS, FAULT, OK, Burst
from signalbox.tb.units.mmu.history import ATOMICS, READ_ONLY, REGION, UNBOUND, Event, Record
from signalbox.tb.units.mmu.testbench import (
    ASIDS,
    BAD,
    CLIENTS,
    MEMORY,
    RECORDS,
    MemorySystemTestbench,
)

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

FAULTED, OVERFLOW, REFUSED = 1, 2, 4
"""Bits of FAULT_STATUS."""


async def begin(dut: Any, **options: Any) -> MemorySystemTestbench:
    """A testbench with space 0 bound and empty."""
    tb = await MemorySystemTestbench(dut, **options).start()
    await tb.bind(0, tb.tables())
    return tb


async def fault(tb: MemorySystemTestbench, count: int = 1, client: int = 0) -> list[Event]:
    """Let reads fault, one after another, each at a different address."""
    first = tb.faults.count
    reads = [Burst(first + number << 12, 1, asid=0) for number in range(count)]
    tb.readers[client].todo.extend(reads)
    checked = await tb.finish()
    assert [burst.answer for _, burst, _ in checked] == [[(0, FAULT)]] * count
    return [event for _, _, event in checked if event is not None]


def state(tb: MemorySystemTestbench) -> tuple[int, int, int]:
    """PUT, the number of dropped records, and the status."""
    status = tb.ports["faults__status"].bits()
    return tb.get("faults__put"), tb.get("faults__dropped"), status


async def clear(tb: MemorySystemTestbench, bits: int) -> None:
    tb.drive(faults__clear=bits)
    await tb.steps()
    tb.drive(faults__clear=0)
    await tb.steps()


async def enable(tb: MemorySystemTestbench, on: int) -> None:
    """Enable or disable the buffer."""
    tb.drive(faults__enable=on)
    await tb.steps(2)


@cocotb.test(**LIMIT)
async def overflows(dut):
    """A full buffer drops and counts records, and continues after it is read and cleared."""
    tb = await begin(dut, records=4)
    await fault(tb, 3)
    assert state(tb) == (3, 0, FAULTED)
    await fault(tb, 2)
    assert state(tb) == (3, 2, FAULTED | OVERFLOW)
    tb.drive(faults__get=3)
    (lost,) = await fault(tb)
    assert lost.record is None
    assert state(tb) == (3, 3, FAULTED | OVERFLOW), "sticky"
    await clear(tb, OVERFLOW)
    assert state(tb) == (3, 3, FAULTED)
    kept = await fault(tb, 3)
    assert state(tb) == (2, 3, FAULTED)
    assert all(one.record is not None for one in kept)


@cocotb.test(**LIMIT)
async def clear_without_room(dut):
    """Clearing without reading leads to another overflow."""
    tb = await begin(dut, records=2)
    await fault(tb, 2)
    await clear(tb, FAULTED | OVERFLOW)
    assert state(tb) == (1, 1, 0)
    await fault(tb)
    assert state(tb) == (1, 2, FAULTED | OVERFLOW)


@cocotb.test(**LIMIT)
async def wraps(dut):
    """Buffers of all sizes wrap several times, while being read."""
    tb = await begin(dut)
    for records in (2, 3, 5, 8):
        await enable(tb, 0)
        tb.set_buffer(records=records)
        tb.drive(faults__get=0)
        await enable(tb, 1)
        for number in range(2 * records + 1):
            (event,) = await fault(tb)
            put = (number + 1) % records
            assert event.record is not None
            assert state(tb)[:2] == (put, 0)
            tb.drive(faults__get=put)


@cocotb.test(**LIMIT)
async def one_record_only(dut):
    """A buffer of one record has room for none."""
    tb = await begin(dut, records=1)
    await fault(tb, 2)
    assert state(tb) == (0, 2, FAULTED | OVERFLOW)


@cocotb.test(**LIMIT)
@cocotb.parametrize(base=[BAD.start, MEMORY, MEMORY << 4])
async def cannot_be_written(dut, base):
    """Records that the bus refuses, or that lie beyond the end of memory, are counted. Clients get
    their status, and later records are written if there is memory."""
    tb = await begin(dut)
    tb.set_buffer(base=base)
    before = bytes(tb.store.content)
    lost = await fault(tb, 3)
    assert state(tb) == (0, 3, FAULTED | REFUSED)
    assert all(one.record is None for one in lost)
    assert tb.store.content == before
    tb.set_buffer()
    await clear(tb, REFUSED)
    (event,) = await fault(tb)
    assert event.record is not None
    assert state(tb) == (1, 3, FAULTED)


@cocotb.test(**LIMIT)
async def only_the_records_are_written(dut):
    """Only the records in the buffer are written, for every width of the bus."""
    tb = await begin(dut, records=8)
    await clear_buffer_and_compare(tb, 5)


async def clear_buffer_and_compare(tb: MemorySystemTestbench, count: int) -> None:
    before = bytes(tb.store.content)
    await fault(tb, count)
    after, end = tb.store.content, RECORDS + 32 * count
    assert after[:RECORDS] == before[:RECORDS] and after[end:] == before[end:]
    for number in range(count):
        record = after[RECORDS + 32 * number :][:32]
        assert record != before[RECORDS + 32 * number :][:32]
        assert Record.of(int.from_bytes(record, "little")).address == number


@cocotb.test(**LIMIT)
async def disabled(dut):
    """With the buffer disabled, records are counted, and the first since the last clear can be
    read."""
    tb = await begin(dut)
    await enable(tb, 0)
    before = bytes(tb.store.content)
    await fault(tb, 3)
    assert state(tb) == (0, 3, FAULTED)
    assert Record.of(tb.ports["faults__record"].bits()).address == 0
    await clear(tb, FAULTED)
    assert state(tb) == (0, 3, 0)
    await fault(tb, 2)
    assert Record.of(tb.ports["faults__record"].bits()).address == 3
    assert tb.store.content == before
    await enable(tb, 1)
    (event,) = await fault(tb)
    assert event.record is not None
    assert state(tb) == (1, 5, FAULTED)


@cocotb.test(**LIMIT)
@cocotb.parametrize(offset=range(0, 24))
async def cleared_in_any_cycle(dut, offset):
    """Clearing everything while faults arrive loses no count and no unseen overflow."""
    tb = await begin(dut, records=2)
    tb.readers[0].todo.extend(Burst(page << 12, 1, asid=0) for page in range(4))
    while not tb.faults.count:
        await tb.steps()
    await tb.steps(offset)
    tb.drive(faults__clear=FAULTED | OVERFLOW | REFUSED)
    await tb.steps()
    _, dropped, status = state(tb)
    tb.drive(faults__clear=0)
    assert len(await tb.finish()) == 4
    assert state(tb)[:2] == (1, 3)
    assert state(tb)[2] & OVERFLOW or (status & OVERFLOW and dropped == 3)


async def move(tb: MemorySystemTestbench, base: int, pause: int | None) -> int:
    """Disable the buffer, and enable it elsewhere `pause` cycles later; if None, when no record for
    the old buffer is in flight, whose contents are then cleared. Returns the last cycle in which
    the old buffer was enabled."""
    old, begun = tb.get("faults__base") << 12, tb.cycle
    tb.drive(faults__enable=0)
    await tb.steps()
    if pause is None:
        while tb.get("faults__busy"):
            await tb.steps()
        tb.memory_write(old, bytes(0x1000))
    tb.set_buffer(base=base)
    await tb.steps((pause or 1) - 1)
    tb.drive(faults__enable=1)
    return begun


@cocotb.test(**LIMIT)
@cocotb.parametrize(pause=[1, 2, 9, None])
async def moved_in_any_cycle(dut, pause):
    """The buffer may be disabled, moved and enabled in any cycle (on Icarus, in some cycles) while
    a record is written: PUT counts the record in the buffer that contains it, or else it is counted
    as dropped; the next record is in the new buffer. After `busy`, nothing is written to the old
    buffer."""
    tb = await begin(dut)
    tb.bus.latency = 6
    ways = []
    first, last = 30, 65
    for offset in (first, *some(range(first + 1, last), 3), last):
        old, new = RECORDS, RECORDS + 0x1000
        await enable(tb, 0)
        tb.memory_write(old, bytes(0x2000))
        tb.set_buffer(base=old)
        await enable(tb, 1)
        await fault(tb)
        _, before, _ = state(tb)
        faulting = cocotb.start_soon(fault(tb))
        await tb.steps(offset)
        begun = await move(tb, new, pause)
        (event,) = await faulting
        _, dropped, status = state(tb)
        lost = event.record is None
        assert dropped == before + lost
        # A report in the next cycle was counted earlier.
        ways.append("lost" if lost else "old" if event.cycle <= begun + 1 else "new")
        if status & OVERFLOW:
            assert lost
            await clear(tb, OVERFLOW)
        there = [event] if ways[-1] == "new" else []
        there += await fault(tb)
        assert state(tb)[:2] == (len(there), dropped)
        for number, one in enumerate(there):
            record = Record.of(int.from_bytes(tb.memory_read(new + 32 * number, 32), "little"))
            assert (record.valid, record.address << 12) == (1, one.va)
        assert pause is not None or not any(tb.memory_read(old, 0x1000))
    assert ways == sorted(ways, key=["new", "lost", "old"].index)
    assert {*ways} == {"new", "lost", "old"} and ways.count("lost") > fewer(9, 3) - 1


@cocotb.test(**LIMIT)
async def nothing_bound(dut):
    """The record of an unbound space is correct, before and after it had tables."""
    tb = await begin(dut)
    for asid, turn in itertools.product(sorted({1, ASIDS - 1}), range(2)):
        tb.readers[0].todo.append(Burst(turn << 12, 1, asid=asid))
        ((_, _, event),) = await tb.finish()
        assert event is not None and event.cause == UNBOUND
        record = Record.of(event.record or 0)
        assert (record.aperture, record.instance, record.asid) == (1, 0, asid)
        tables = tb.tables()
        await tb.bind(asid, tables)
        tb.readers[0].todo.append(Burst(turn << 12, 1, asid=asid))
        ((_, _, event),) = await tb.finish()
        record = Record.of((event and event.record) or 0)
        assert (record.aperture, record.instance) == (0, tables.root >> 12)
        await tb.bind(asid, None)


@cocotb.test(**LIMIT)
async def physical(dut):
    """Physical addresses need no space; accesses beyond the end of memory are reported with
    distinct access types."""
    tb = await begin(dut)
    end = 1 << 49
    for va in (0, 0x1000, MEMORY - 4096, MEMORY, MEMORY + 0x5000, 1 << 40, end - 4096):
        for atomic in (False, True):
            options = {"asid": 1, "physical": True, "atomic": atomic}
            tb.readers[1].todo.append(Burst(va, 1, **options))
            tb.writers[1].todo.append(tb.write(va + 0x100, 1, strobe=0, **options))
    checked = await tb.finish()
    assert len(checked) == 28
    for _, burst, event in checked:
        assert (event is not None) == (burst.va >= MEMORY), burst
    codes = {(event.cause, Record.of(event.record or 0).access) for _, _, event in checked if event}
    assert codes == {(REGION, 8), (REGION, 9), (REGION, 10)}


@cocotb.test(**LIMIT)
async def permissions(dut):
    """Read-only pages and pages without atomics refuse the right accesses, from both ports."""
    tb = await begin(dut)
    tables = tb.tables()
    tb.map(tables, 0x0000, 0x1000, read_only=True)
    tb.map(tables, 0x1000, 0x2000, atomics=False)
    tb.map(tables, 0x2000, 0x3000, read_only=True, atomics=False)
    tb.map(tables, 0x3000, 0x4000, sparse=True)
    await tb.bind(1, tables)
    wanted = {
        0x0000: ((None, READ_ONLY), (READ_ONLY, READ_ONLY)),
        0x1000: ((None, None), (ATOMICS, ATOMICS)),
        0x2000: ((None, READ_ONLY), (READ_ONLY, READ_ONLY)),
        0x3000: ((None, None), (None, None)),
    }
    for va, turn in itertools.product(wanted, range(2)):
        for atomic in (False, True):
            options = {"asid": 1, "atomic": atomic}
            tb.readers[0].todo.append(Burst(va, 1 + turn, **options))
            tb.writers[0].todo.append(tb.write(va + 0x800, 1 + turn, **options))
    checked = await tb.finish()
    assert len(checked) == 32
    for _, burst, event in checked:
        cause = wanted[burst.va & 0xF000][burst.atomic][bool(burst.beats)]
        assert (event.cause if event else None) == cause, burst
    assert tb.counts["sparse"] == 8


@cocotb.test(**LIMIT)
async def sparse(dut):
    """Long reads of sparse pages return zeros, and writes are dropped, in order with other
    accesses."""
    tb = await begin(dut)
    tables = tb.tables()
    tb.map(tables, 0x0000, 0x1000)
    tb.map(tables, 0x1000, 0x2000, sparse=True)
    await tb.bind(1, tables)
    before = bytes(tb.store.content)
    for page in (0, 1, 0, 1, 1, 0):
        tb.readers[0].todo.append(Burst(page << 12, 20, asid=1))
        lanes = 0 if page == 0 else None
        tb.writers[0].todo.append(tb.write(page << 12, 20, strobe=lanes, asid=1))
    checked = await tb.finish()
    assert all(status == OK for _, burst, _ in checked for _, status in burst.answer)
    assert tb.counts == {"page": 6, "sparse": 6}
    assert tb.store.content == before


@cocotb.test(**LIMIT)
async def together(dut):
    """If all clients fault in the same cycle, in both directions, each gets a record, in turn."""
    tb = await begin(dut)
    for turn in range(5):
        for client in range(CLIENTS):
            va = 0x10_0000 * client + 0x1000 * turn
            tb.readers[client].todo.append(Burst(va, 3, asid=0))
            tb.writers[client].todo.append(tb.write(va + 0x8000, 3, asid=0))
    checked = await tb.finish()
    events = [event for _, _, event in checked if event is not None]
    assert len(events) == len(checked) == tb.faults.count == 10 * CLIENTS
    assert all(event.record is not None for event in events)
    events.sort(key=lambda event: event.cycle)
    late = [event.cycle for event in events if event.va & 0xF000 in (0x4000, 0xC000)]
    early = [event.cycle for event in events if event.va & 0xF000 in (0, 0x8000)]
    assert max(early) < min(late), "in turn"


@cocotb.test(**LIMIT)
async def bus_errors(dut):
    """Data refused by the bus are not a fault: their beats have status BUS, and there is no
    record."""
    tb = await begin(dut)
    tables = tb.tables()
    tb.map(tables, 0, BAD.start)
    await tb.bind(1, tables)
    tb.readers[0].todo.append(Burst(0, 3, asid=1))
    tb.writers[0].todo.append(tb.write(0, 3, asid=1))
    checked = await tb.finish()
    assert [[status for _, status in burst.answer] for _, burst, _ in checked] == [[BUS] * 3, [BUS]]
    assert tb.faults.count == 0 and state(tb) == (0, 0, 0)
