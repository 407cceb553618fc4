"""Binds and invalidations with the whole of virtual memory: what they wait for, what they do not
affect, and refusals (ASID-8, ASID-9)."""

import itertools
from collections.abc import Coroutine
from typing import Any

import cocotb

from signalbox.tb.testbench.sample import some
from signalbox.tb.units.mmu.clients import OK, Burst
from signalbox.tb.units.mmu.history import LIMIT as LIMIT_FAULT
from signalbox.tb.units.mmu.history import Event
from signalbox.tb.units.mmu.testbench import (
    ALL,
    ASID,
    ASIDS,
    BEAT,
    CLIENTS,
    DATA,
    PAGE,
    Bench,
    Tables,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

SCOPES = {"all": ALL, "asid": ASID, "page": PAGE}

LONGEST = min(256, 4096 // BEAT)
"""Maximum number of beats of a burst."""


async def begin(dut: Any, spaces: int = 2, pages: int = 4) -> tuple[Bench, list[Tables]]:
    """A testbench with some spaces, each with its own small pages at the same addresses from 0
    on."""
    bench = Bench(dut)
    await bench.start()
    tables = [bench.tables() for _ in range(spaces)]
    for asid, one in enumerate(tables):
        for page in range(pages):
            bench.map(one, page << 12, frame(asid, page))
        await bench.bind(asid, one)
    return bench, tables


def frame(asid: int, page: int) -> int:
    return DATA.start + (asid * 16 + page << 12)


def status(checked: list[tuple[int, Burst, Event | None]]) -> set[int]:
    return {one for _, burst, _ in checked for _, one in burst.answer}


def command(bench: Bench, how: str, tables: list[Tables]) -> Coroutine:
    """A command that ends the validity of page 0 of space 0."""
    if how == "bind":
        return bench.bind(0, bench.tables())
    if how == "unbind":
        return bench.bind(0, None)
    if how == "base":
        return bench.invalidate(ASID, base=tables[0].root)
    return bench.invalidate(SCOPES[how], asid=0, va=0x123)


async def served_meanwhile(bench: Bench, task: Any, asid: int, client: int) -> None:
    """Check that another client continues in a space that is not covered by a waiting command."""
    for page in range(4):
        reads, writes = bench.readers[client], bench.writers[client]
        reads.todo.append(Burst(page << 12, 2, asid=asid))
        writes.todo.append(bench.write(0x800 + (page << 12), 2, asid=asid))
    for port in (bench.readers[client], bench.writers[client]):
        while port.todo or port.offered or port.waiting:
            await bench.wait(1)
            assert bench.now < 4000, "not served"
    assert not task.done(), "acknowledged too early"


@cocotb.test(**LIMIT)
@cocotb.parametrize(
    how=["all", "asid", "page", "base", "bind", "unbind"], writes=[False, True], count=[1, LONGEST]
)
async def waits_for_the_bus(dut, how, writes, count):
    """A command waits for a burst whose response does not come; another space, and a client with
    later bursts, are served meanwhile."""
    bench, tables = await begin(dut)
    port = (bench.writers if writes else bench.readers)[0]
    bench.bus.held = {1}
    port.todo.append(bench.write(0, count, asid=0) if writes else Burst(0, count, asid=0))
    accesses = bench.bus.writes_of if writes else bench.bus.reads_of
    while not accesses.get(1):
        await bench.wait(1)
    (page,) = [one for one in tables[0].pages() if one.va == 0]
    if how not in {"bind", "unbind"}:
        bench.unmap(tables[0], page)
        bench.map(tables[0], 0, frame(5, 0))
    task = cocotb.start_soon(command(bench, how, tables))
    await bench.wait(100)
    await served_meanwhile(bench, task, 1, 1)
    if how not in {"bind", "unbind"}:
        await served_meanwhile(bench, task, 0, 2)
        assert bench.bus.reads_of[3][0].address == frame(5, 0), "the new page"
    bench.bus.held = set()
    await task
    assert status(await bench.finish()) == {OK}


@cocotb.test(**LIMIT)
@cocotb.parametrize(how=["all", "asid", "page", "base", "bind", "unbind"], writes=[False, True])
async def waits_for_the_client(dut, how, writes):
    """A command waits until the client has accepted the data that it requested."""
    bench, tables = await begin(dut)
    port = (bench.writers if writes else bench.readers)[0]
    port.keen = lambda: False
    for number in range(4):
        va = number << 8
        port.todo.append(bench.write(va, 3, asid=0) if writes else Burst(va, 3, asid=0))
    await bench.wait(150)
    task = cocotb.start_soon(command(bench, how, tables))
    await bench.wait(300)
    assert not task.done(), "acknowledged too early"
    port.keen = lambda: True
    await task
    assert not port.waiting
    assert status(await bench.finish()) == {OK}


@cocotb.test(**LIMIT)
async def requesters_take_turns(dut):
    """Two requesters with endless commands are served in turn."""
    bench, _ = await begin(dut)
    order: list[int] = []

    async def ask(requester: int) -> None:
        for number in range(20):
            scope = (ALL, ASID, PAGE)[number % 3]
            await bench.invalidate(scope, asid=requester, requester=requester)
            order.append(requester)

    for task in [cocotb.start_soon(ask(requester)) for requester in range(2)]:
        await task
    assert order in ([0, 1] * 20, [1, 0] * 20)


async def read_all(bench: Bench, spaces: int, pages: int = 2, port: int = 0) -> list[int]:
    """Read some pages of all spaces. Returns the number of table entries read for each space."""
    walked = []
    for asid in range(spaces):
        before = len(bench.bus.reads_of.get(0, []))
        for page in range(pages):
            bench.readers[port].todo.append(Burst(page << 12, 1, asid=asid))
        assert status(await bench.finish()) == {OK}
        walked.append(len(bench.bus.reads_of[0]) - before)
    return walked


@cocotb.test(**LIMIT)
async def refused_changes_nothing(dut):
    """Unknown operations, nonexistent ASIDs, and bases beyond the end of memory are refused, and
    every space keeps its tables and cached translations."""
    bench, _ = await begin(dut)
    await read_all(bench, 2)
    for which in [*range(5)] * 3:
        await bench.refused(which, requester=which % 2)
        assert await read_all(bench, 2) == [0, 0]


@cocotb.test(**LIMIT)
async def exact(dut):
    """Exactly the invalidated page of one space, or the invalidated space, is walked again."""
    bench, _ = await begin(dut, spaces=3)
    await read_all(bench, 3, pages=1)
    await bench.invalidate(PAGE, asid=1, va=0xFFF)
    first, second, third = await read_all(bench, 3, pages=1)
    assert (first, third) == (0, 0) and second
    await bench.invalidate(PAGE, asid=1, va=0x1000)
    assert await read_all(bench, 3, pages=1) == [0, 0, 0]
    await bench.invalidate(ASID, asid=2)
    first, second, third = await read_all(bench, 3, pages=1)
    assert (first, second) == (0, 0) and third
    await bench.invalidate(ALL)
    assert all(await read_all(bench, 3, pages=1))


@cocotb.test(**LIMIT)
async def by_base(dut):
    """By page directory base, exactly the spaces with this base are invalidated, including the
    first and the last."""
    bench, tables = await begin(dut, spaces=2)
    sets = [{0}, {ASIDS - 1}, {0, 1}, {0, 1, ASIDS - 1}, {1, ASIDS - 1}, set()]
    asids = sorted({0, 1, 2, ASIDS - 1})
    for chosen, scope in itertools.product(sets, (ASID, PAGE)):
        for asid in asids:
            await bench.bind(asid, tables[0 if asid in chosen else 1])
        await check_by_base(bench, tables[0], chosen, asids, scope)


async def check_by_base(
    bench: Bench, tables: Tables, chosen: set[int], asids: list[int], scope: int
) -> None:
    """Only spaces with these tables are walked again."""

    async def read(asid: int) -> int:
        before = len(bench.bus.reads_of.get(0, []))
        bench.readers[0].todo.append(Burst(0, 1, asid=asid))
        assert status(await bench.finish()) == {OK}
        return len(bench.bus.reads_of[0]) - before

    for asid in asids:
        await read(asid)
    for asid in asids:
        assert await read(asid) == 0
    (page,) = [one for one in tables.pages() if one.va == 0]
    bench.unmap(tables, page)
    bench.map(tables, 0, page.pa ^ 0x8000)
    await bench.invalidate(scope, base=tables.root)
    for asid in asids:
        assert (await read(asid) > 0) == (asid in chosen), (asid, chosen)


@cocotb.test(**LIMIT)
@cocotb.parametrize(latency=[0, 9], how=["bind", "page"])
async def reused(dut, latency, how):
    """Page 20, example 4: if an ASID gets other tables, or a page another address, in any cycle (in
    Icarus in some) of walks that fill all slots, no access uses the old ones after the
    acknowledgement (ASID-8)."""
    bench = Bench(dut)
    bench.bus.latency = latency
    await bench.start()
    spaces = [bench.tables(), bench.tables()]
    for number, tables in enumerate(spaces):
        for page in range(4):
            bench.map(tables, page << 12, frame(number, page))
    offsets = some(range(70), 5)
    for offset in offsets:
        await bench.bind(2, spaces[0])
        for client, page in itertools.product(range(CLIENTS), range(4)):
            va = ((client + page) % 4 << 12) + 64 * page
            bench.readers[client].todo.append(Burst(va, 1, asid=2))
            bench.writers[client].todo.append(bench.write(va, 1, asid=2))
        await bench.wait(offset)
        await change(bench, spaces, how)
        for client, page in itertools.product(range(CLIENTS), range(4)):
            # Data cached wrongly would be used now.
            bench.readers[client].todo.append(Burst(page << 12, 1, asid=2))
        assert status(await bench.finish()) == {OK}
    assert bench.counts["page"] == len(offsets) * 12 * CLIENTS


async def change(bench: Bench, spaces: list[Tables], how: str) -> None:
    if how == "bind":
        await bench.bind(2, spaces[1])
        return
    (page,) = [one for one in spaces[0].pages() if one.va == 0x1000]
    protected = page.pa ^ 0x10_0000
    bench.unmap(spaces[0], page)
    bench.map(spaces[0], page.va, protected)
    await bench.invalidate(PAGE, asid=2, va=page.va)


@cocotb.test(**LIMIT)
@cocotb.parametrize(size=[1 << 16, 1 << 21])
async def limit_inside_a_page(dut, size):
    """A page that extends beyond the limit is refused, regardless of cached data; one that ends at
    the limit is not."""
    bench = Bench(dut)
    await bench.start()
    tables = bench.tables()
    for va in (0, 2 * size):
        bench.map(tables, va, va, size)
    for last, end in (
        (2 * size + 0x4FFF, size),
        (3 * size - 0x1001, size),
        (3 * size - 1, 3 * size),
    ):
        await bench.bind(0, tables, limit=last)
        for va in (2 * size + 0x5000, 2 * size + 0x4000, 0, 2 * size + 0x5000, size - 0x1000):
            bench.readers[0].todo.append(Burst(va, 1, asid=0))
            ((_, _, event),) = await bench.finish()
            assert (event and event.cause) == (None if va < end else LIMIT_FAULT), hex(va)
