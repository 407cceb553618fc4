"""Virtual memory as a whole: random clients, while software changes tables, binds and invalidates
(ASID-1 … ASID-9)."""

import itertools
from operator import ge
from random import Random

import cocotb

from signalbox.driver.memory.page_tables import MapError, Page
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer
from signalbox.tb.units.mmu.clients import Burst
from signalbox.tb.units.mmu.history import NEVER
from signalbox.tb.units.mmu.testbench import (
    ALL,
    ASID,
    ASIDS,
    BAD,
    DATA,
    LAST,
    MEMORY,
    PAGE,
    MemorySystemTestbench,
    Tables,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

SMALL, BIG, HUGE, WHOLE = 1 << 12, 1 << 16, 1 << 21, 1 << 29

SLOTS = [
    *((0x1000 * n, SMALL) for n in range(8)),
    (LAST - 0xFFF, SMALL),
    *((0x10_0000 + BIG * n, BIG) for n in range(3)),
    (0x20_0000, HUGE),
    (0x40_0000, HUGE),
    (0x40_3000, SMALL),
    (0x43_0000, BIG),
    *((5 * WHOLE + start, size) for start, size in ((0, WHOLE), (0x4000, SMALL), (HUGE, HUGE))),
    (9 * WHOLE, WHOLE),
]
"""Addresses at which pages may be mapped in every space; some are mutually exclusive."""

LIMITS = (*[LAST] * 20, 0x4FFF, 0x11_FFFF, 0x3F_FFFF, 9 * WHOLE + 0x41_FFFF)
"""Last addresses of spaces."""

FRAMES = 12
"""Number of physical pages of each size, so that spaces share them."""


class Software:
    """One requester's part of the software, which endlessly changes the tables of its spaces."""

    def __init__(self, tb: MemorySystemTestbench, requester: int, asids: list[int]) -> None:
        self.tb, self.rng = tb, tb.random
        self.requester, self.asids = requester, asids
        self.tables: dict[int, Tables | None] = dict.fromkeys(asids)
        self.done = 0

    async def run(self) -> None:
        for asid in self.asids:
            await self.rebind(asid)
        while True:
            actions = [self.map] * 8 + [self.unmap] * 3 + [self.protect] * 3 + [self.rebind]
            actions += [self.share, self.invalidate, self.invalidate, self.refused]
            actions += [self.break_table] * 2
            await self.rng.choice(actions)(self.rng.choice(self.asids))
            self.done += 1
            await self.tb.steps(self.rng.choice([0, 0, 1, 5, 30, 100]))

    def frame(self, size: int) -> int:
        if size == WHOLE:
            # All of memory, and addresses beyond its end.
            return 0
        frames = range(DATA.start, DATA.stop - size + 1, size)
        chosen = [*frames[:FRAMES], *(one for one in frames if one in BAD)][: FRAMES + 1]
        return self.rng.choice(chosen)

    async def map(self, asid: int) -> None:
        tables, rng = self.tables[asid], self.rng
        if tables is None:
            return await self.rebind(asid)
        va, size = rng.choice(SLOTS)
        try:
            replaced = self.tb.map(tables, va, self.frame(size), size, **self.kind())
        except MapError:
            return await self.unmap(asid)
        if replaced:
            await self.forget(asid, tables, replaced[0])
            tables.release()
        return None

    def kind(self) -> dict[str, bool]:
        """Attributes of a page; most pages allow everything."""
        if self.rng.random() < 0.6:
            return {}
        name = self.rng.choice(["read_only", "read_only", "atomics", "sparse", "privileged"])
        return {name: name != "atomics"}

    async def unmap(self, asid: int) -> None:
        """Unmap a page, usually followed by an invalidation; another page may take its place
        first."""
        tables, rng = self.tables[asid], self.rng
        pages = list(tables.pages()) if tables else []
        if tables is None or not pages:
            return
        page = rng.choice(pages)
        self.tb.unmap(tables, page)
        if rng.random() < 0.5:
            self.tb.map(tables, page.va, self.frame(page.size), page.size)
        if rng.random() < 0.8:
            await self.forget(asid, tables, page)

    async def protect(self, asid: int) -> None:
        tables, rng = self.tables[asid], self.rng
        pages = list(tables.pages()) if tables else []
        if tables is None or not pages:
            return
        page = rng.choice(pages)
        self.tb.protect(tables, page, read_only=not page.read_only)
        if rng.random() < 0.8:
            await self.forget(asid, tables, page)

    async def forget(self, asid: int, tables: Tables, page: Page) -> None:
        """An invalidation that covers a page, in all spaces with these tables."""
        scope = self.rng.choice([ALL, ASID, PAGE, PAGE, PAGE])
        base = None if scope == ALL else tables.root
        if base is not None and self.rng.random() < 0.5 and not self.is_shared(tables):
            base = None
        va = page.va + self.rng.randrange(page.size)
        await self.tb.invalidate(scope, asid=asid, va=va, base=base, requester=self.requester)

    def is_shared(self, tables: Tables) -> bool:
        return sum(one is tables for one in self.tables.values()) > 1

    async def rebind(self, asid: int) -> None:
        """Bind other tables or none; the old tables, if unused, become garbage."""
        old = self.tables[asid]
        tables = None if self.rng.random() < 0.1 else self.tb.tables()
        if tables is not None:
            for va, size in self.rng.sample(SLOTS, 9):
                if self.is_free(tables, va, size):
                    self.tb.map(tables, va, self.frame(size), size, **self.kind())
        await self.bind(asid, tables)
        if old is not None and old not in self.tables.values():
            for table in old.addresses():
                self.tb.memory_write(table.start, self.rng.randbytes(len(table)))
            old.free()

    @staticmethod
    def is_free(tables: Tables, va: int, size: int) -> bool:
        return not any(one.va < va + size and va < one.va + one.size for one in tables.pages())

    async def share(self, asid: int) -> None:
        """Bind the tables of another space."""
        other = self.tables[self.rng.choice(self.asids)]
        if other is not None and self.tables[asid] is None:
            await self.bind(asid, other)

    async def bind(self, asid: int, tables: Tables | None) -> None:
        self.tables[asid] = tables
        limit = self.rng.choice(LIMITS)
        await self.tb.bind(asid, tables, limit=limit, requester=self.requester)

    async def invalidate(self, asid: int) -> None:
        """Invalidate something without need."""
        rng = self.rng
        tables = self.tables[asid]
        await self.tb.invalidate(
            rng.choice([ALL, ASID, PAGE]),
            asid=asid,
            va=rng.choice(SLOTS)[0],
            base=rng.choice([None, None, 0x7000, tables.root if tables else 0]),
            requester=self.requester,
        )

    async def refused(self, asid: int) -> None:
        """Send commands that are refused."""
        await self.tb.refused(self.rng.randrange(5), requester=self.requester)

    async def break_table(self, asid: int) -> None:
        """Make a table unreadable for some time."""
        tables, rng, tb = self.tables[asid], self.rng, self.tb
        if tables is None:
            return
        place = rng.choice(tables.addresses())
        moment = [tb.cycle, NEVER]
        tb.history.poisoned.append(moment)
        tb.broken.ranges.append(place)
        await tb.steps(rng.randrange(400))
        tb.broken.ranges.remove(place)
        moment[1] = tb.cycle


def inside(rng: Random, size: int) -> int:
    """An offset in a page of that size; in a page that covers all of memory, outside tables and
    records."""
    if size < WHOLE:
        return rng.randrange(size)
    part = DATA if rng.random() < 0.8 else range(MEMORY, size)
    return rng.randrange(part.start, part.stop)


class Traffic:
    """Keeps all clients busy, mostly with mapped pages."""

    def __init__(self, tb: MemorySystemTestbench, programs: list[Software]) -> None:
        self.tb, self.rng, self.programs = tb, tb.random, programs

    async def run(self) -> None:
        tb, idle = self.tb, 0.0
        for cycle in itertools.count():
            if cycle % 500 == 0:
                idle = self.rng.choice([0, 0, 0.9, 0.99])
            for writes, ports in ((False, tb.readers), (True, tb.writers)):
                for port in ports:
                    if len(port.todo) < 2 and self.rng.random() >= idle:
                        port.todo.append(self.burst(writes=writes))
            await tb.steps()

    def burst(self, *, writes: bool) -> Burst:
        rng = self.rng
        longest = rng.choice([1, 1, 1, 2, 4, 20])
        if rng.random() < 0.04:
            options = {"asid": rng.randrange(ASIDS), "physical": True}
            va = rng.choice([rng.randrange(DATA.stop), rng.randrange(MEMORY, LAST)])
            return self.tb.burst_at(va, longest, writes=writes, **options)
        asid, va = self.place()
        options = {"asid": asid, "atomic": rng.random() < 0.1}
        if options["atomic"]:
            # Distinguishes reports of a client's two ports.
            va = va & ~0x800 | writes << 11
        return self.tb.burst_at(va, longest, writes=writes, **options)

    def place(self) -> tuple[int, int]:
        """An address, and a space; one of the spaces is never bound by software."""
        rng = self.rng
        program = rng.choice(self.programs)
        asid = rng.choice(program.asids)
        tables = program.tables[asid]
        pages = list(tables.pages()) if tables else []
        if pages and rng.random() < 0.9:
            page = rng.choice(pages)
            return asid, page.va + inside(rng, page.size)
        va, size = rng.choice(SLOTS)
        va = rng.randrange(LAST) if rng.random() < 0.2 else va + inside(rng, size)
        return rng.choice([asid, asid, 3]), va


async def read_faults(tb: MemorySystemTestbench) -> None:
    """Software that reads the fault buffer; occasionally it is late, and records are dropped."""
    rng = tb.random
    while True:
        await tb.steps(rng.choice([5, 5, 20, 300]))
        tb.drive(faults__get=tb.get("faults__put"))
        if tb.ports["faults__status"].bits() & 2:
            tb.drive(faults__clear=rng.choice([2, 3]))
            await tb.steps()
            tb.drive(faults__clear=0)


async def vary(tb: MemorySystemTestbench) -> None:
    """Vary memory's latency."""
    while True:
        tb.bus.latency = tb.random.choice([0, 3, 10, 40])
        await tb.steps(tb.random.randrange(400))


def accesses(tb: MemorySystemTestbench) -> int:
    """Number of the clients' bursts that have reached memory so far."""
    moved = [*tb.bus.reads_of.items(), *tb.bus.writes_of.items()]
    return sum(len(bursts) for source, bursts in moved if source)


def superseded(tb: MemorySystemTestbench) -> int:
    """Number of finished bursts at addresses that had another, outdated translation before."""
    bursts = [burst for port in (*tb.readers, *tb.writers) for burst in port.ended]
    return sum(
        any(
            one.has(burst.va) and one.gone <= burst.cycles[0]
            for one in tb.history.mappings.get(burst.asid, [])
        )
        for burst in bursts
        if not burst.physical
    )


def coverage(tb: MemorySystemTestbench, programs: list[Software]) -> tuple[int, ...]:
    """Accesses, superseded translations, faults, and each program's changes so far."""
    return accesses(tb), superseded(tb), tb.faults.count, *(one.done for one in programs)


ENOUGH = (100, 30, 50, 10, 10)
"""The minimum of each."""


@cocotb.test(**LIMIT)
@cocotb.parametrize(share=[0.4, 0.8, 1.0])
async def random_system(dut, share):
    """Whatever software does, every burst agrees with a page of its space valid at that time, and
    no outdated translation is used, or in flight, after an acknowledgement."""
    tb = await MemorySystemTestbench(dut, share=share, records=8).start()
    programs = [Software(tb, 0, [0, 1]), Software(tb, 1, [2])]
    parts = [*programs, Traffic(tb, programs)]
    tasks = [cocotb.start_soon(one.run()) for one in parts]
    others = [cocotb.start_soon(read_faults(tb)), cocotb.start_soon(vary(tb))]
    rounds = Rounds(fewer(6, 2))
    while rounds.more(all(map(ge, met := coverage(tb, programs), ENOUGH)), met):
        await tb.steps(1000)
    tasks.pop().cancel()
    checked = await tb.finish()
    for task in [*tasks, *others]:
        task.cancel()
    counts = dict(sorted(tb.counts.items()))
    done = [one.done for one in programs]
    cocotb.log.info(f"{len(checked)} bursts: {counts}; {done} changes; {tb.faults.dropped} lost")
