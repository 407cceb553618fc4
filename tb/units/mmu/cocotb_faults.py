"""The fault buffer, with the whole of virtual memory (ASID-5, HOST-11)."""

import itertools
from typing import Any

import cocotb

from signalbox.tb.testbench.sample import fewer, some
from signalbox.tb.units.mmu.clients import BUS, FAULT, OK, Burst
from signalbox.tb.units.mmu.history import ATOMICS, READ_ONLY, REGION, UNBOUND, Event, Record
from signalbox.tb.units.mmu.testbench import ASIDS, BAD, CLIENTS, MEMORY, RECORDS, Bench

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

FAULTED, OVERFLOW, REFUSED = 1, 2, 4
"""Bits of FAULT_STATUS."""


async def begin(dut: Any, **options: Any) -> Bench:
    """A testbench with space 0 bound and empty."""
    bench = Bench(dut, **options)
    await bench.start()
    await bench.bind(0, bench.tables())
    return bench


async def fault(bench: Bench, count: int = 1, client: int = 0) -> list[Event]:
    """Reads that fault, one after another, each with a different address."""
    first = bench.faults.count
    reads = [Burst(first + number << 12, 1, asid=0) for number in range(count)]
    bench.readers[client].todo.extend(reads)
    checked = await bench.finish()
    assert [burst.answer for _, burst, _ in checked] == [[(0, FAULT)]] * count
    return [event for _, _, event in checked if event is not None]


def state(bench: Bench) -> tuple[int, int, int]:
    """PUT, the number of dropped records, and the status."""
    dut = bench.dut
    return (
        int(dut.faults__put.value),
        int(dut.faults__dropped.value),
        int(dut.faults__status.value),
    )


async def clear(bench: Bench, bits: int) -> None:
    bench.dut.faults__clear.value = bits
    await bench.wait(1)
    bench.dut.faults__clear.value = 0
    await bench.wait(1)


async def enable(bench: Bench, on: int) -> None:
    """Enable or disable the buffer."""
    bench.dut.faults__enable.value = on
    await bench.wait(2)


@cocotb.test(**LIMIT)
async def overflows(dut):
    """A full buffer drops and counts records, and continues after it is read and cleared."""
    bench = await begin(dut, records=4)
    await fault(bench, 3)
    assert state(bench) == (3, 0, FAULTED)
    await fault(bench, 2)
    assert state(bench) == (3, 2, FAULTED | OVERFLOW)
    dut.faults__get.value = 3
    (lost,) = await fault(bench)
    assert lost.record is None
    assert state(bench) == (3, 3, FAULTED | OVERFLOW), "sticky"
    await clear(bench, OVERFLOW)
    assert state(bench) == (3, 3, FAULTED)
    kept = await fault(bench, 3)
    assert state(bench) == (2, 3, FAULTED)
    assert all(one.record is not None for one in kept)


@cocotb.test(**LIMIT)
async def clear_without_room(dut):
    """Clearing without reading leads to another overflow."""
    bench = await begin(dut, records=2)
    await fault(bench, 2)
    await clear(bench, FAULTED | OVERFLOW)
    assert state(bench) == (1, 1, 0)
    await fault(bench)
    assert state(bench) == (1, 2, FAULTED | OVERFLOW)


@cocotb.test(**LIMIT)
async def wraps(dut):
    """Buffers of all sizes wrap several times, while being read."""
    bench = await begin(dut)
    for records in (2, 3, 5, 8):
        await enable(bench, 0)
        bench.set_buffer(records=records)
        dut.faults__get.value = 0
        await enable(bench, 1)
        for number in range(2 * records + 1):
            (event,) = await fault(bench)
            put = (number + 1) % records
            assert event.record is not None
            assert state(bench)[:2] == (put, 0)
            dut.faults__get.value = put


@cocotb.test(**LIMIT)
async def one_record_only(dut):
    """A buffer of one record has room for none."""
    bench = await begin(dut, records=1)
    await fault(bench, 2)
    assert state(bench) == (0, 2, FAULTED | OVERFLOW)


@cocotb.test(**LIMIT)
@cocotb.parametrize(base=[BAD.start, MEMORY, MEMORY << 4])
async def cannot_be_written(dut, base):
    """Records that the bus refuses, or that lie beyond the end of memory, are counted. Clients get
    their status, and later records are written if there is memory."""
    bench = await begin(dut)
    bench.set_buffer(base=base)
    before = bytes(bench.store.content)
    lost = await fault(bench, 3)
    assert state(bench) == (0, 3, FAULTED | REFUSED)
    assert all(one.record is None for one in lost)
    assert bench.store.content == before
    bench.set_buffer()
    await clear(bench, REFUSED)
    (event,) = await fault(bench)
    assert event.record is not None
    assert state(bench) == (1, 3, FAULTED)


@cocotb.test(**LIMIT)
async def only_the_records_are_written(dut):
    """Only the records in the buffer are written, for every width of the bus."""
    bench = await begin(dut, records=8)
    await clear_buffer_and_compare(bench, 5)


async def clear_buffer_and_compare(bench: Bench, count: int) -> None:
    before = bytes(bench.store.content)
    await fault(bench, count)
    after, end = bench.store.content, RECORDS + 32 * count
    assert after[:RECORDS] == before[:RECORDS] and after[end:] == before[end:]
    for number in range(count):
        record = after[RECORDS + 32 * number :][:32]
        assert record != before[RECORDS + 32 * number :][:32]
        assert Record.of(int.from_bytes(record, "little")).address == number


@cocotb.test(**LIMIT)
async def disabled(dut):
    """Without a buffer, records are counted, and the first since the last clear can be read."""
    bench = await begin(dut)
    await enable(bench, 0)
    before = bytes(bench.store.content)
    await fault(bench, 3)
    assert state(bench) == (0, 3, FAULTED)
    assert Record.of(int(dut.faults__record.value)).address == 0
    await clear(bench, FAULTED)
    assert state(bench) == (0, 3, 0)
    await fault(bench, 2)
    assert Record.of(int(dut.faults__record.value)).address == 3
    assert bench.store.content == before
    await enable(bench, 1)
    (event,) = await fault(bench)
    assert event.record is not None
    assert state(bench) == (1, 5, FAULTED)


@cocotb.test(**LIMIT)
@cocotb.parametrize(offset=range(0, 24))
async def cleared_in_any_cycle(dut, offset):
    """Clearing everything while faults arrive loses no count and no unseen overflow."""
    bench = await begin(dut, records=2)
    bench.readers[0].todo.extend(Burst(page << 12, 1, asid=0) for page in range(4))
    while not bench.faults.count:
        await bench.wait(1)
    await bench.wait(offset)
    dut.faults__clear.value = FAULTED | OVERFLOW | REFUSED
    await bench.wait(1)
    _, dropped, status = state(bench)
    dut.faults__clear.value = 0
    assert len(await bench.finish()) == 4
    assert state(bench)[:2] == (1, 3)
    assert state(bench)[2] & OVERFLOW or (status & OVERFLOW and dropped == 3)


async def move(bench: Bench, base: int, pause: int | None) -> int:
    """Disable the buffer, and enable it elsewhere `pause` cycles later, or, if None, when no record
    of the old one is in flight; its contents are then ignored. Returns the last cycle in which it
    was enabled."""
    dut, old = bench.dut, int(bench.dut.faults__base.value) << 12
    dut.faults__enable.value, begun = 0, bench.now
    await bench.wait(1)
    if pause is None:
        while int(dut.faults__busy.value):
            await bench.wait(1)
        bench.memory_write(old, bytes(0x1000))
    bench.set_buffer(base=base)
    await bench.wait((pause or 1) - 1)
    dut.faults__enable.value = 1
    return begun


@cocotb.test(**LIMIT)
@cocotb.parametrize(pause=[1, 2, 9, None])
async def moved_in_any_cycle(dut, pause):
    """The buffer may be disabled, moved and enabled in any cycle while a record is written (in
    Icarus in some of them): PUT counts the record in the buffer that contains it, else it is
    counted as dropped; the next one is in the new buffer. After `busy` nothing is written to the
    old one."""
    bench = await begin(dut)
    bench.bus.latency = 6
    ways = []
    first, last = 30, 65
    for offset in (first, *some(range(first + 1, last), 3), last):
        old, new = RECORDS, RECORDS + 0x1000
        await enable(bench, 0)
        bench.memory_write(old, bytes(0x2000))
        bench.set_buffer(base=old)
        await enable(bench, 1)
        await fault(bench)
        _, before, _ = state(bench)
        faulting = cocotb.start_soon(fault(bench))
        await bench.wait(offset)
        begun = await move(bench, new, pause)
        (event,) = await faulting
        _, dropped, status = state(bench)
        lost = event.record is None
        assert dropped == before + lost
        # A report in the cycle after that was counted before.
        ways.append("lost" if lost else "old" if event.cycle <= begun + 1 else "new")
        if status & OVERFLOW:
            assert lost
            await clear(bench, OVERFLOW)
        there = [event] if ways[-1] == "new" else []
        there += await fault(bench)
        assert state(bench)[:2] == (len(there), dropped)
        for number, one in enumerate(there):
            record = Record.of(int.from_bytes(bench.memory_read(new + 32 * number, 32), "little"))
            assert (record.valid, record.address << 12) == (1, one.va)
        assert pause is not None or not any(bench.memory_read(old, 0x1000))
    assert ways == sorted(ways, key=["new", "lost", "old"].index)
    assert {*ways} == {"new", "lost", "old"} and ways.count("lost") > fewer(9, 3) - 1


@cocotb.test(**LIMIT)
async def nothing_bound(dut):
    """The record of an unbound space is correct, before and after it had tables."""
    bench = await begin(dut)
    for asid, turn in itertools.product(sorted({1, ASIDS - 1}), range(2)):
        bench.readers[0].todo.append(Burst(turn << 12, 1, asid=asid))
        ((_, _, event),) = await bench.finish()
        assert event is not None and event.cause == UNBOUND
        record = Record.of(event.record or 0)
        assert (record.aperture, record.instance, record.asid) == (1, 0, asid)
        tables = bench.tables()
        await bench.bind(asid, tables)
        bench.readers[0].todo.append(Burst(turn << 12, 1, asid=asid))
        ((_, _, event),) = await bench.finish()
        record = Record.of((event and event.record) or 0)
        assert (record.aperture, record.instance) == (0, tables.root >> 12)
        await bench.bind(asid, None)


@cocotb.test(**LIMIT)
async def physical(dut):
    """Physical addresses need no space; those beyond the end of memory are reported with distinct
    access types."""
    bench = await begin(dut)
    end = 1 << 49
    for va in (0, 0x1000, MEMORY - 4096, MEMORY, MEMORY + 0x5000, 1 << 40, end - 4096):
        for atomic in (False, True):
            options = {"asid": 1, "physical": True, "atomic": atomic}
            bench.readers[1].todo.append(Burst(va, 1, **options))
            bench.writers[1].todo.append(bench.write(va + 0x100, 1, strobe=0, **options))
    checked = await bench.finish()
    assert len(checked) == 28
    for _, burst, event in checked:
        assert (event is not None) == (burst.va >= MEMORY), burst
    codes = {(event.cause, Record.of(event.record or 0).access) for _, _, event in checked if event}
    assert codes == {(REGION, 8), (REGION, 9), (REGION, 10)}


@cocotb.test(**LIMIT)
async def permissions(dut):
    """Read-only pages and pages without atomics refuse the right accesses, from both ports."""
    bench = await begin(dut)
    tables = bench.tables()
    bench.map(tables, 0x0000, 0x1000, read_only=True)
    bench.map(tables, 0x1000, 0x2000, atomics=False)
    bench.map(tables, 0x2000, 0x3000, read_only=True, atomics=False)
    bench.map(tables, 0x3000, 0x4000, sparse=True)
    await bench.bind(1, tables)
    wanted = {
        0x0000: ((None, READ_ONLY), (READ_ONLY, READ_ONLY)),
        0x1000: ((None, None), (ATOMICS, ATOMICS)),
        0x2000: ((None, READ_ONLY), (READ_ONLY, READ_ONLY)),
        0x3000: ((None, None), (None, None)),
    }
    for va, turn in itertools.product(wanted, range(2)):
        for atomic in (False, True):
            options = {"asid": 1, "atomic": atomic}
            bench.readers[0].todo.append(Burst(va, 1 + turn, **options))
            bench.writers[0].todo.append(bench.write(va + 0x800, 1 + turn, **options))
    checked = await bench.finish()
    assert len(checked) == 32
    for _, burst, event in checked:
        cause = wanted[burst.va & 0xF000][burst.atomic][bool(burst.beats)]
        assert (event.cause if event else None) == cause, burst
    assert bench.counts["sparse"] == 8


@cocotb.test(**LIMIT)
async def sparse(dut):
    """Long reads of sparse pages return zeros, and writes are dropped, in order with other
    accesses."""
    bench = await begin(dut)
    tables = bench.tables()
    bench.map(tables, 0x0000, 0x1000)
    bench.map(tables, 0x1000, 0x2000, sparse=True)
    await bench.bind(1, tables)
    before = bytes(bench.store.content)
    for page in (0, 1, 0, 1, 1, 0):
        bench.readers[0].todo.append(Burst(page << 12, 20, asid=1))
        lanes = 0 if page == 0 else None
        bench.writers[0].todo.append(bench.write(page << 12, 20, strobe=lanes, asid=1))
    checked = await bench.finish()
    assert all(status == OK for _, burst, _ in checked for _, status in burst.answer)
    assert bench.counts == {"page": 6, "sparse": 6}
    assert bench.store.content == before


@cocotb.test(**LIMIT)
async def together(dut):
    """If all clients fault in the same cycle, in both directions, each gets a record, in turn."""
    bench = await begin(dut)
    for turn in range(5):
        for client in range(CLIENTS):
            va = 0x10_0000 * client + 0x1000 * turn
            bench.readers[client].todo.append(Burst(va, 3, asid=0))
            bench.writers[client].todo.append(bench.write(va + 0x8000, 3, asid=0))
    checked = await bench.finish()
    events = [event for _, _, event in checked if event is not None]
    assert len(events) == len(checked) == bench.faults.count == 10 * CLIENTS
    assert all(event.record is not None for event in events)
    events.sort(key=lambda event: event.cycle)
    late = [event.cycle for event in events if event.va & 0xF000 in (0x4000, 0xC000)]
    early = [event.cycle for event in events if event.va & 0xF000 in (0, 0x8000)]
    assert max(early) < min(late), "in turn"


@cocotb.test(**LIMIT)
async def bus_errors(dut):
    """Data that the bus refuses is not a fault: its beats have status BUS, and there is no
    record."""
    bench = await begin(dut)
    tables = bench.tables()
    bench.map(tables, 0, BAD.start)
    await bench.bind(1, tables)
    bench.readers[0].todo.append(Burst(0, 3, asid=1))
    bench.writers[0].todo.append(bench.write(0, 3, asid=1))
    checked = await bench.finish()
    assert [[status for _, status in burst.answer] for _, burst, _ in checked] == [[BUS] * 3, [BUS]]
    assert bench.faults.count == 0 and state(bench) == (0, 0, 0)
