"""Binds and invalidations with the whole of virtual memory: their waits, their effects on others,
and refusals (ASID-8, ASID-9)."""

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
    MemorySystemTestbench,
    Tables,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

SCOPES = {"all": ALL, "asid": ASID, "page": PAGE}

LONGEST = min(256, 4096 // BEAT)
"""Maximum number of beats of a burst."""


async def begin(
    dut: Any, spaces: int = 2, pages: int = 4
) -> tuple[MemorySystemTestbench, list[Tables]]:
    """A testbench with `spaces` spaces, each with its own small pages at the same addresses from 0
    on."""
    tb = await MemorySystemTestbench(dut).start()
    tables = [tb.tables() for _ in range(spaces)]
    for asid, one in enumerate(tables):
        for page in range(pages):
            tb.map(one, page << 12, frame(asid, page))
        await tb.bind(asid, one)
    return tb, tables


def frame(asid: int, page: int) -> int:
    return DATA.start + (asid * 16 + page << 12)


def status(checked: list[tuple[int, Burst, Event | None]]) -> set[int]:
    return {one for _, burst, _ in checked for _, one in burst.answer}


def command(tb: MemorySystemTestbench, how: str, tables: list[Tables]) -> Coroutine:
    """A command that ends the validity of page 0 of space 0."""
    if how == "bind":
        return tb.bind(0, tb.tables())
    if how == "unbind":
        return tb.bind(0, None)
    if how == "base":
        return tb.invalidate(ASID, base=tables[0].root)
    return tb.invalidate(SCOPES[how], asid=0, va=0x123)


async def served_meanwhile(tb: MemorySystemTestbench, task: Any, asid: int, client: int) -> None:
    """Check that another client is served in a space while a command waits."""
    for page in range(4):
        reads, writes = tb.readers[client], tb.writers[client]
        reads.todo.append(Burst(page << 12, 2, asid=asid))
        writes.todo.append(tb.write(0x800 + (page << 12), 2, asid=asid))
    for port in (tb.readers[client], tb.writers[client]):
        while port.busy:
            await tb.steps()
            assert tb.cycle < 4000, "not served"
    assert not task.done(), "acknowledged too early"


@cocotb.test(**LIMIT)
@cocotb.parametrize(
    how=["all", "asid", "page", "base", "bind", "unbind"], writes=[False, True], count=[1, LONGEST]
)
async def waits_for_the_bus(dut, how, writes, count):
    """A command waits for an earlier burst without a response; another space, and another client's
    later bursts, are served meanwhile."""
    tb, tables = await begin(dut)
    port = (tb.writers if writes else tb.readers)[0]
    tb.bus.held = {1}
    port.todo.append(tb.write(0, count, asid=0) if writes else Burst(0, count, asid=0))
    accesses = tb.bus.writes_of if writes else tb.bus.reads_of
    while not accesses.get(1):
        await tb.steps()
    (page,) = [one for one in tables[0].pages() if one.va == 0]
    if how not in {"bind", "unbind"}:
        tb.unmap(tables[0], page)
        tb.map(tables[0], 0, frame(5, 0))
    task = cocotb.start_soon(command(tb, how, tables))
    await tb.steps(100)
    await served_meanwhile(tb, task, 1, 1)
    if how not in {"bind", "unbind"}:
        await served_meanwhile(tb, task, 0, 2)
        assert tb.bus.reads_of[3][0].address == frame(5, 0), "the new page"
    tb.bus.held = set()
    await task
    assert status(await tb.finish()) == {OK}


@cocotb.test(**LIMIT)
@cocotb.parametrize(how=["all", "asid", "page", "base", "bind", "unbind"], writes=[False, True])
async def waits_for_the_client(dut, how, writes):
    """A command waits until the client has accepted the responses to its bursts."""
    tb, tables = await begin(dut)
    port = (tb.writers if writes else tb.readers)[0]
    port.answers.pace = lambda: False
    for number in range(4):
        va = number << 8
        port.todo.append(tb.write(va, 3, asid=0) if writes else Burst(va, 3, asid=0))
    await tb.steps(150)
    task = cocotb.start_soon(command(tb, how, tables))
    await tb.steps(300)
    assert not task.done(), "acknowledged too early"
    port.answers.pace = lambda: True
    await task
    assert not port.waiting
    assert status(await tb.finish()) == {OK}


@cocotb.test(**LIMIT)
async def requesters_take_turns(dut):
    """Two requesters that always have a command are served in turn."""
    tb, _ = await begin(dut)
    order: list[int] = []

    async def ask(requester: int) -> None:
        for number in range(20):
            scope = (ALL, ASID, PAGE)[number % 3]
            await tb.invalidate(scope, asid=requester, requester=requester)
            order.append(requester)

    for task in [cocotb.start_soon(ask(requester)) for requester in range(2)]:
        await task
    assert order in ([0, 1] * 20, [1, 0] * 20)


async def read_all(
    tb: MemorySystemTestbench, spaces: int, pages: int = 2, port: int = 0
) -> list[int]:
    """Read some pages of all spaces. Returns the number of table entries read for each space."""
    walked = []
    for asid in range(spaces):
        before = len(tb.bus.reads_of.get(0, []))
        for page in range(pages):
            tb.readers[port].todo.append(Burst(page << 12, 1, asid=asid))
        assert status(await tb.finish()) == {OK}
        walked.append(len(tb.bus.reads_of[0]) - before)
    return walked


@cocotb.test(**LIMIT)
async def refused_changes_nothing(dut):
    """Unknown operations, nonexistent ASIDs, and bases beyond the end of memory are refused, and
    every space keeps its tables and cached translations."""
    tb, _ = await begin(dut)
    await read_all(tb, 2)
    for which in [*range(5)] * 3:
        await tb.refused(which, requester=which % 2)
        assert await read_all(tb, 2) == [0, 0]


@cocotb.test(**LIMIT)
async def exact(dut):
    """Exactly the invalidated page of one space, or the invalidated space, is walked again."""
    tb, _ = await begin(dut, spaces=3)
    await read_all(tb, 3, pages=1)
    await tb.invalidate(PAGE, asid=1, va=0xFFF)
    first, second, third = await read_all(tb, 3, pages=1)
    assert (first, third) == (0, 0) and second
    await tb.invalidate(PAGE, asid=1, va=0x1000)
    assert await read_all(tb, 3, pages=1) == [0, 0, 0]
    await tb.invalidate(ASID, asid=2)
    first, second, third = await read_all(tb, 3, pages=1)
    assert (first, second) == (0, 0) and third
    await tb.invalidate(ALL)
    assert all(await read_all(tb, 3, pages=1))


@cocotb.test(**LIMIT)
async def by_base(dut):
    """An invalidation by page directory base affects exactly the spaces with this base, including
    the first and the last space."""
    tb, tables = await begin(dut, spaces=2)
    sets = [{0}, {ASIDS - 1}, {0, 1}, {0, 1, ASIDS - 1}, {1, ASIDS - 1}, set()]
    asids = sorted({0, 1, 2, ASIDS - 1})
    for chosen, scope in itertools.product(sets, (ASID, PAGE)):
        for asid in asids:
            await tb.bind(asid, tables[0 if asid in chosen else 1])
        await check_by_base(tb, tables[0], chosen, asids, scope)


async def check_by_base(
    tb: MemorySystemTestbench, tables: Tables, chosen: set[int], asids: list[int], scope: int
) -> None:
    """Check that only spaces with these tables are walked again."""

    async def read(asid: int) -> int:
        before = len(tb.bus.reads_of.get(0, []))
        tb.readers[0].todo.append(Burst(0, 1, asid=asid))
        assert status(await tb.finish()) == {OK}
        return len(tb.bus.reads_of[0]) - before

    for asid in asids:
        await read(asid)
    for asid in asids:
        assert await read(asid) == 0
    (page,) = [one for one in tables.pages() if one.va == 0]
    tb.unmap(tables, page)
    tb.map(tables, 0, page.pa ^ 0x8000)
    await tb.invalidate(scope, base=tables.root)
    for asid in asids:
        assert (await read(asid) > 0) == (asid in chosen), (asid, chosen)


@cocotb.test(**LIMIT)
@cocotb.parametrize(latency=[0, 9], how=["bind", "page"])
async def reused(dut, latency, how):
    """Page 20, example 4: if an ASID gets other tables, or a page another address, in every other
    cycle (on Icarus, in some cycles) of walks that fill all slots, no access uses the old ones
    after the acknowledgement (ASID-8)."""
    tb = MemorySystemTestbench(dut)
    tb.bus.latency = latency
    await tb.start()
    spaces = [tb.tables(), tb.tables()]
    for number, tables in enumerate(spaces):
        for page in range(4):
            tb.map(tables, page << 12, frame(number, page))
    offsets = some(range(70), 5)[tb.random.randrange(2) :: 2]
    for offset in offsets:
        await tb.bind(2, spaces[0])
        for client, page in itertools.product(range(CLIENTS), range(4)):
            va = ((client + page) % 4 << 12) + 64 * page
            tb.readers[client].todo.append(Burst(va, 1, asid=2))
            tb.writers[client].todo.append(tb.write(va, 1, asid=2))
        await tb.steps(offset)
        await change(tb, spaces, how)
        for client, page in itertools.product(range(CLIENTS), range(4)):
            # Wrongly cached data would be used now.
            tb.readers[client].todo.append(Burst(page << 12, 1, asid=2))
        assert status(await tb.finish()) == {OK}
    assert tb.counts["page"] == len(offsets) * 12 * CLIENTS


async def change(tb: MemorySystemTestbench, spaces: list[Tables], how: str) -> None:
    if how == "bind":
        await tb.bind(2, spaces[1])
        return
    (page,) = [one for one in spaces[0].pages() if one.va == 0x1000]
    protected = page.pa ^ 0x10_0000
    tb.unmap(spaces[0], page)
    tb.map(spaces[0], page.va, protected)
    await tb.invalidate(PAGE, asid=2, va=page.va)


@cocotb.test(**LIMIT)
@cocotb.parametrize(size=[1 << 16, 1 << 21])
async def limit_inside_a_page(dut, size):
    """A page that extends beyond the limit is refused, regardless of cached data; a page that ends
    at the limit is not."""
    tb = await MemorySystemTestbench(dut).start()
    tables = tb.tables()
    for va in (0, 2 * size):
        tb.map(tables, va, va, size)
    for last, end in (
        (2 * size + 0x4FFF, size),
        (3 * size - 0x1001, size),
        (3 * size - 1, 3 * size),
    ):
        await tb.bind(0, tables, limit=last)
        for va in (2 * size + 0x5000, 2 * size + 0x4000, 0, 2 * size + 0x5000, size - 0x1000):
            tb.readers[0].todo.append(Burst(va, 1, asid=0))
            ((_, _, event),) = await tb.finish()
            assert (event and event.cause) == (None if va < end else LIMIT_FAULT), hex(va)
