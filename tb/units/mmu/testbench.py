"""Testbench of `hw.mmu.memory_system`: clients, memory, and software with its page tables.

Every burst is compared with its accesses on the bus, and with the pages that software had mapped at
that time (`tb/units/mmu/history.py`).
"""

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import cocotb

from signalbox.driver.memory.page_tables import Page, PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.hw.config import Config
from signalbox.hw.mmu.memory_system import MemorySystem
from signalbox.tb.testbench.axi_rules import AxiRules
from signalbox.tb.testbench.clocked import Participant, Testbench, component
from signalbox.tb.testbench.ends import Source
from signalbox.tb.units.mmu.clients import BUS, FAULT, OK, Burst, ReadClient, WriteClient
from signalbox.tb.units.mmu.history import ATOMIC, NEVER, READ, WRITE, Event, History, Row
from signalbox.tb.units.mmu.memories import ShufflingMemory, Store

__all__ = [
    "ALL",
    "ASID",
    "ASIDS",
    "ASID_BITS",
    "BAD",
    "BEAT",
    "BIND",
    "CLIENTS",
    "DATA",
    "LAST",
    "MEMORY",
    "PAGE",
    "RECORDS",
    "TABLES",
    "UNBIND",
    "MemorySystemTestbench",
    "Tables",
]

WIDTH, ASIDS, CLIENTS, SMS = (
    int(os.environ[name]) for name in ("WIDTH", "ASIDS", "CLIENTS", "SMS")
)
BEAT = WIDTH // 8
ASID_BITS = max(1, (ASIDS - 1).bit_length())

MEMORY = 1 << 24
DATA = range(0, 0xA0_0000)
"""Region for pages."""

BAD = range(0x9E_0000, 0xA0_0000)
"""Part of that region that is answered with bus errors."""

RECORDS = 0xB0_0000
"""Default address of the fault buffer."""

TABLES = 0xC0_0000
"""First address of page tables."""

ALL, ASID, PAGE, BIND, UNBIND = range(5)
"""Operations of an `MmuPort`."""

LAST = (1 << 49) - 1

REQUESTERS = 2
"""Number of requesters of binds and invalidations."""


class Tables(PageTables):
    """The driver's page tables, extended by sparse pages; `sparse` : their addresses."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.sparse = set[int]()

    def set_sparse(self, page: Page) -> None:
        """Make a mapped page sparse."""
        self._store_page(page, self._place(page), 1 << 3)
        self.sparse.add(page.va)

    def unmap(self, va: int, size: int) -> list[Page]:
        return self._filled(super().unmap(va, size))

    def protect(self, va: int, size: int, *, read_only: bool) -> list[Page]:
        return self._filled(super().protect(va, size, read_only=read_only))

    def _filled(self, pages: list[Page]) -> list[Page]:
        """Note that these pages are no longer sparse."""
        self.sparse -= {page.va for page in pages}
        return pages

    def addresses(self) -> list[range]:
        """Address ranges of all tables."""
        return self.named("")

    def named(self, level: str) -> list[range]:
        """Address ranges of the tables of a level."""
        buffers = [one for one in self._buffers.values() if one.name.startswith(level)]
        return [range(one.address, one.address + one.size) for one in buffers]


@dataclass
class Access:
    """A burst on the bus. Beats are (data, response) of a read, (data, strobe) of a write."""

    address: int
    count: int
    cycle: int
    beats: list[tuple[int, int]] = field(default_factory=list)
    response: int = 0


class Broken:
    """Addresses that the bus answers with errors."""

    def __init__(self, *ranges: range) -> None:
        self.ranges = list(ranges)

    def __contains__(self, address: int) -> bool:
        return any(address in one for one in self.ranges)


class Bus(ShufflingMemory):
    """A memory that records the reads and writes of every id."""

    def __init__(self, tb: Testbench, store: Store, *, share: float) -> None:
        super().__init__(tb, store, share=share)
        self.reads_of: dict[int, list[Access]] = {}
        self.writes_of: dict[int, list[Access]] = {}
        self._open: dict[int, deque[Access]] = {}
        self._asked: dict[int, deque[Access]] = {}

    def _take_read(self) -> None:
        super()._take_read()
        number = self.get("ar", "id")
        access = Access(self.get("ar", "addr"), self.get("ar", "len") + 1, self.cycle)
        self.reads_of.setdefault(number, []).append(access)
        self._open.setdefault(number, deque()).append(access)

    def _show_read(self, number: int, beat: tuple[int, int, bool]) -> None:
        super()._show_read(number, beat)
        access = self._open[number][0]
        access.beats.append(self._load(beat[1]))
        if len(access.beats) == access.count:
            self._open[number].popleft()

    def _write(self) -> None:
        number, address, cycle = self.writes[0]
        beats = list(self.bursts[0])
        super()._write()
        response = self.done[number][-1][1]
        access = Access(address, len(beats), cycle, beats, response)
        self.writes_of.setdefault(number, []).append(access)


class Requester:
    """A requester of binds and invalidations, one at a time."""

    def __init__(self, tb: Testbench, index: int) -> None:
        self._tb, self._prefix = tb, f"maintain__{index}"
        self._command = Source(tb, f"{self._prefix}__command")

    async def ask(
        self,
        operation: int,
        *,
        asid: int = 0,
        by_base: bool = False,
        va: int = 0,
        base: int = 0,
        limit: int = LAST,
        limit_cycles: int = 20_000,
    ) -> bool:
        """Send a command and wait for the acknowledgement. Returns whether it was accepted."""
        self._command.put({
            "operation": operation,
            "asid": asid,
            "by_base": by_base,
            "page": va >> 12,
            "base": base >> 12,
            "limit": limit >> 12,
        })
        await self._tb.steps()
        await self._tb.until(
            lambda: self._done["valid"], f"{self._prefix}: the acknowledgement", limit_cycles
        )
        assert not self._command.pending, f"{self._prefix}: acknowledged before it was accepted"
        return not self._done["refused"]

    @property
    def _done(self) -> dict[str, int]:
        return self._tb.get(f"{self._prefix}__done")


class FaultWatch(Participant):
    """Follows the fault port: each event has its record in memory, or was dropped."""

    def __init__(self, tb: Testbench, store: Store) -> None:
        self._tb, self._store = tb, store
        self.events: dict[tuple[int, int], deque[Event]] = {}
        self.dropped = self.count = self.put = 0
        tb.join(self)

    def sample(self, cycle: int) -> None:
        fault = self._tb.get("fault")
        assert fault["valid"] == self._tb.get("faults__fault")
        if fault["valid"]:
            client, asid, va = fault["client"], fault["asid"], fault["va"]
            access, cause = fault["access"].value, fault["fault"]
            self._take(Event(client, asid, va, bool(fault["physical"]), access, cause, cycle + 1))
        if not self._tb.get("faults__enable"):
            self.put = 0

    def _take(self, event: Event) -> None:
        put, dropped = self._tb.get("faults__put"), self._tb.get("faults__dropped")
        if dropped != self.dropped:
            assert (put, dropped) == (self.put, self.dropped + 1), event
        else:
            records = self._tb.get("faults__records")
            assert put == (0 if self.put + 1 >= records else self.put + 1), event
            place = (self._tb.get("faults__base") << 12) + 32 * self.put
            event.record = int.from_bytes(self._store.content[place : place + 32], "little")
        self.put, self.dropped, self.count = put, dropped, self.count + 1
        self.events.setdefault((event.client, event.access), deque()).append(event)


class MemorySystemTestbench(Testbench):
    """The system and its environment. `share` : fraction of cycles in which each stream
    proceeds."""

    def __init__(self, dut: Any, *, share: float = 1.0, records: int = 64) -> None:
        config = Config(asids=ASIDS, data_width=WIDTH, sms=SMS, memory_bytes=MEMORY)
        super().__init__(dut, component(MemorySystem, config, REQUESTERS))
        self.broken = Broken(BAD)
        self.store = Store(self.random.randbytes(MEMORY), self.broken)
        self.memory = Memory(self, MEMORY, base=TABLES)  # type: ignore[arg-type]
        self.history = History(self._built, MEMORY)
        pace = self.share(share)
        self.bus = Bus(self, self.store, share=share)
        self.faults = FaultWatch(self, self.store)
        self.readers = [ReadClient(self, n, pace) for n in range(CLIENTS)]
        self.writers = [WriteClient(self, n, pace) for n in range(CLIENTS)]
        ids = {"ar": CLIENTS + 1, "aw": CLIENTS + 1}
        self.rules = AxiRules(dut, "axi", limit=MEMORY, ids=ids)
        self.requesters = [Requester(self, n) for n in range(REQUESTERS)]
        self.set_buffer(records=records)
        self.drive(faults__enable=1)
        self._read_accesses = [0] * CLIENTS
        self._write_accesses = [0] * CLIENTS
        self.counts: dict[str, int] = {}

    @staticmethod
    def _built(asid: int) -> bool:
        return asid < ASIDS

    def set_buffer(self, *, base: int = RECORDS, records: int = 64) -> None:
        """Set the fault buffer."""
        self.drive(faults__base=base >> 12, faults__records=records)

    # The machine, as seen by the driver

    def memory_read(self, address: int, size: int) -> bytes:
        return bytes(self.store.content[address : address + size])

    def memory_write(self, address: int, content: bytes) -> None:
        self.store.content[address : address + len(content)] = content

    # Time

    async def start(self) -> Self:
        await super().start()
        cocotb.start_soon(self.rules.run())
        self.run()
        return self

    async def step(self) -> None:
        """One cycle."""
        self.drive(time=self.cycle)
        await super().step()

    # Software

    def tables(self) -> Tables:
        return Tables(self.memory)

    def map(
        self, tables: Tables, va: int, pa: int, size: int = 1 << 12, *, sparse=False, **options: Any
    ) -> list[Page]:
        """Map one page in all spaces with these tables. Returns the pages to be invalidated."""
        needs = tables.map(va, pa, size, page_size=size, **options)
        page = tables.find(va)
        assert page is not None
        if sparse:
            tables.set_sparse(page)
        sure = NEVER if needs else self.cycle
        self.history.add(tables, page, self.cycle, sure=sure)
        return needs

    def unmap(self, tables: Tables, page: Page) -> None:
        tables.unmap(page.va, page.size)
        self.history.remove(tables, page, self.cycle)

    def protect(self, tables: Tables, page: Page, *, read_only: bool) -> None:
        """Forbid or allow writes; a sparse page becomes a normal page."""
        tables.protect(page.va, page.size, read_only=read_only)
        self.history.remove(tables, page, self.cycle)
        new = tables.find(page.va)
        assert new is not None
        self.history.add(tables, new, self.cycle, sure=self.cycle)

    async def bind(
        self, asid: int, tables: Tables | None, *, limit: int = LAST, requester: int = 0
    ) -> None:
        """Bind tables. After the acknowledgement, earlier translations may not be used."""
        begun, asked = self.cycle, self.requesters[requester]
        old = self.history.leave(asid, begun)
        row = Row(None, LAST, begun)
        if tables is not None:
            row = Row(tables.root, limit, begun)
        new = self.history.enter(asid, row, tables)
        operation = BIND if tables else UNBIND
        base = tables.root if tables else 0
        assert await asked.ask(operation, asid=asid, base=base, limit=limit)
        self.history.acknowledge(old, self.cycle)
        for one in new:
            one.sure = self.cycle

    async def invalidate(
        self,
        scope: int,
        *,
        asid: int = 0,
        va: int = 0,
        base: int | None = None,
        requester: int = 0,
    ) -> None:
        """Invalidate. `base` : for all spaces with this page directory base, instead of `asid`."""
        asids = range(1 << ASID_BITS) if scope == ALL else [asid]
        if base is not None:
            asids = self.history.bound_to(base)
        covered = self.history.covered(asids, va if scope == PAGE else None)
        begun = self.cycle
        arguments = {"asid": asid, "va": va, "base": base or 0, "by_base": base is not None}
        assert await self.requesters[requester].ask(scope, **arguments)
        self.history.acknowledge([one for one in covered if one.dead <= begun], self.cycle)

    async def refused(self, which: int, *, requester: int = 0) -> None:
        """Send one of five commands that are refused."""
        rng = self.random
        operation, arguments = (
            (5 + rng.randrange(3), {}),
            (BIND, {"asid": rng.randrange(ASIDS, 1024), "base": TABLES}),
            (UNBIND, {"asid": ASIDS}),
            (PAGE, {"asid": 1023}),
            (BIND, {"asid": 0, "base": MEMORY + 0x1000 * rng.randrange(1 << 16)}),
        )[which]
        assert not await self.requesters[requester].ask(operation, **arguments), which

    # Traffic

    def write(self, va: int, count: int = 1, *, strobe: int | None = None, **options: Any) -> Burst:
        beats = []
        for _ in range(count):
            lanes = self.random.randrange(1, 1 << BEAT) if strobe is None else strobe
            beats.append((self.random.getrandbits(WIDTH), lanes))
        return Burst(va, count, beats, **options)

    def burst_at(self, va: int, longest: int, *, writes: bool, **options: Any) -> Burst:
        """A burst from `va` on, of up to `longest` beats within its page."""
        count = self.random.randint(1, min(longest, (4096 - va % 4096 // BEAT * BEAT) // BEAT))
        return self.write(va, count, **options) if writes else Burst(va, count, **options)

    async def finish(self, timeout: int = 50_000) -> list[tuple[int, Burst, Event | None]]:
        """Wait for all clients and check everything. Returns client, burst and fault of each."""
        checked = []
        for client in range(CLIENTS):
            for writes, port in ((False, self.readers[client]), (True, self.writers[client])):
                bursts = await port.finish(timeout)
                checked += self._check(client, bursts, writes=writes)
        for client in range(CLIENTS):
            assert self._read_accesses[client] == len(self.bus.reads_of.get(client + 1, [])), client
            assert self._write_accesses[client] == len(self.bus.writes_of.get(client + 1, [])), (
                client
            )
        assert not any(self.faults.events.values()), "unexpected fault reports"
        return checked

    # Checks

    def _check(
        self, client: int, bursts: Iterable[Burst], *, writes: bool
    ) -> list[tuple[int, Burst, Event | None]]:
        """Check the bursts of one port, in order."""
        return [(client, one, self._check_burst(client, one, writes=writes)) for one in bursts]

    def _check_burst(self, client: int, burst: Burst, *, writes: bool) -> Event | None:
        kind = ATOMIC if burst.atomic else WRITE if writes else READ
        if burst.answer[-1][1] == FAULT:
            assert len(burst.answer) == 1, burst
            event = self._event(client, burst, kind)
            self.history.check_fault(burst, kind, event)
            self._count(f"fault {event.cause}")
            return event
        check = self._match_write if writes else self._match_read
        access = check(client, burst)
        self.history.check_access(burst, kind, None if access is None else access.address)
        self._count("sparse" if access is None else "page")
        return None

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _event(self, client: int, burst: Burst, kind: int) -> Event:
        """The report of a fault; checks that it precedes the fault's status."""
        waiting = self._reports(client, kind, burst)
        assert waiting, f"no report: {burst}"
        event = waiting.popleft()
        asked = (client + 1, burst.asid, burst.va, burst.physical, kind)
        assert (event.client, event.asid, event.va, event.physical, event.access) == asked, burst
        assert burst.cycles[0] <= event.cycle < burst.cycles[-1], (burst, event)
        if event.record is not None:
            self.history.check_record(burst, event)
        return event

    def _reports(self, client: int, kind: int, burst: Burst) -> deque[Event]:
        """Reports of one port; reports of atomic accesses of both ports are distinguished by
        address."""
        events = self.faults.events.get((client + 1, kind), deque())
        if kind == ATOMIC:
            asked = (burst.asid, burst.va)
            mine = next((one for one in events if (one.asid, one.va) == asked), None)
            if mine is not None:
                events.remove(mine)
                events.appendleft(mine)
        return events

    def _match_read(self, client: int, burst: Burst) -> Access | None:
        """The access of a read; None if it was sparse, with only zeros."""
        assert len(burst.answer) == burst.count, burst
        accesses = self.bus.reads_of.get(client + 1, [])
        number = self._read_accesses[client]
        if all(one == (0, OK) for one in burst.answer):
            # Or memory contains zeros there; or where the next access is.
            if number == len(accesses) or accesses[number].beats != [(0, 0)] * burst.count:
                return None
            if _offset(burst) != accesses[number].address % 4096:
                return None
        assert number < len(accesses), f"not on the bus: {burst}"
        access = accesses[number]
        self._read_accesses[client] += 1
        _same_place(burst, access)
        for (data, status), (served, response) in zip(burst.answer, access.beats, strict=True):
            assert status == (BUS if response & 2 else OK), burst
            assert status == BUS or data == served, burst
        return access

    def _match_write(self, client: int, burst: Burst) -> Access | None:
        """The access of a write; None if it was dropped."""
        accesses = self.bus.writes_of.get(client + 1, [])
        ((_, status),) = burst.answer
        number = self._write_accesses[client]
        if number == len(accesses) or accesses[number].beats != burst.beats:
            assert status == OK, f"not on the bus: {burst}"
            return None
        self._write_accesses[client] += 1
        _same_place(burst, accesses[number])
        assert status == (BUS if accesses[number].response & 2 else OK), burst
        return accesses[number]


def _offset(burst: Burst) -> int:
    """Offset of its first beat in a page."""
    return burst.va % 4096 // BEAT * BEAT


def _same_place(burst: Burst, access: Access) -> None:
    """Check that the bus has the client's request, except for the page."""
    assert access.address % 4096 == _offset(burst), (burst, access)
    assert access.count == burst.count, (burst, access)
