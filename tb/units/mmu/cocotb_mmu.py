"""Translation as a whole: clients, address spaces and changing tables (ASID-1 … ASID-9).

The driver writes tables to memory, which is modelled in Python. Every answer is compared with the
tables between the cycles of look-up and answer; the reference knows only pages.
"""

import functools
import itertools
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import cocotb
from amaranth.lib import data

from signalbox.driver.memory.page_tables import Page, PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.hw.config import Config
from signalbox.hw.mmu.records import Access, Outcome, Scope
from signalbox.hw.mmu.translation import Mmu
from signalbox.hw.page_tables import FaultType
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

CLIENTS, ENTRIES, SHARED, WAYS, WALKS = (
    int(os.environ.get(name, default))
    for name, default in (
        ("CLIENTS", "3"),
        ("L1_ENTRIES", "4"),
        ("L2_ENTRIES", "64"),
        ("L2_WAYS", "4"),
        ("WALKS", "8"),
    )
)
CONFIG = Config(
    asids=8,
    memory_bytes=1 << 24,
    l1_entries=ENTRIES,
    l2_entries=SHARED,
    l2_ways=WAYS,
    walks=WALKS,
)
TAG = data.StructLayout({"number": 12})
MISSES = 4
"""Number of look-ups that can wait in one first level."""

PAGE, FAULT, SPARSE, RETRY = Outcome
ALL, ASID, ONE = Scope
READ, WRITE, _ = Access
PDE, PTE, RO, POISONED = FaultType.PDE, FaultType.PTE, FaultType.RO, FaultType.POISONED
REGION, UNBOUND = FaultType.REGION, FaultType.UNBOUND_INST_BLOCK
OK, BUS, OUTSIDE = MemoryStatus
SIZES = (1 << 12, 1 << 16, 1 << 21)
WHOLE = 1 << 29
LARGEST = 7 * WHOLE
"""Virtual address of a page of 512 MiB, or of pages of 2 MiB."""
NEVER = float("inf")


@dataclass
class Mapping:
    """A page of a space, which is in the tables from cycle `born` on, and may be used until
    `gone`."""

    page: Page
    asid: int
    born: int
    dead: float = NEVER
    """Cycle in which it left the tables."""
    gone: float = NEVER

    def has(self, va: int) -> bool:
        return self.page.va <= va < self.page.va + self.page.size


@dataclass
class Look:
    """One look-up of a client, with the cycles of its offer and answer."""

    client: int
    asid: int
    va: int
    access: Access = READ
    offered: int = -1
    answered: int = -1
    outcome: Outcome = RETRY
    fault: int = -1
    pa: int = -1


class MmuTestbench(Testbench):
    """Drives the unit and models memory and software. Memory is not a `ReadServer`, as a read
    returns the bytes of the cycle in which it was accepted.

    Members
    -------
    bound : tables of each ASID.
    pages : all pages, in the tables or not.
    unbound : cycles from and to which each ASID was unbound.
    todo : look-ups of each client that have not been offered.
    read, answers : sinks of reads and of each client's answers.
    latency : latency of a read of memory.
    broken : addresses whose reads fail.
    counts : number of answers of each outcome and fault.
    """

    timeout = 40_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Mmu, CONFIG, CLIENTS, TAG))
        self.bytes = bytearray(CONFIG.memory_bytes)
        self.memory = Memory(self, CONFIG.memory_bytes, base=1 << 22)  # type: ignore[arg-type]
        self._beat = Source(self, "read__beat")
        self.read = Sink(self, "read__request", then=self._read)
        self._requests: list[Source] = []
        self.answers: list[Sink] = []
        for n in range(CLIENTS):
            enter, end = (functools.partial(one, n) for one in (self._enter, self._end))
            self._requests.append(Source(self, f"request__{n}", then=enter))
            self.answers.append(Sink(self, f"answer__{n}", then=end, held=False))
        self._command = Source(self, "command")
        self.bound: dict[int, PageTables] = {}
        self.pages: list[Mapping] = []
        self.unbound: dict[int, list[tuple[int, float]]] = {}
        self.todo: list[list[Look]] = [[] for _ in range(CLIENTS)]
        self._offers: dict[int, Look] = {}
        self._waiting: dict[tuple[int, int], Look] = {}
        self._numbering = itertools.count()
        self.latency = (5, 5)
        self.broken: set[int] = set()
        self.reads = 0
        self.done: list[Look] = []
        self.counts: Counter = Counter()

    # The machine, as seen by the driver

    def memory_read(self, address: int, size: int) -> bytes:
        return bytes(self.bytes[address : address + size])

    def memory_write(self, address: int, content: bytes) -> None:
        self.bytes[address : address + len(content)] = content

    # Software

    def tables(self) -> PageTables:
        return PageTables(self.memory)

    async def bind(self, asid: int, tables: PageTables | None) -> None:
        """Bind tables. After the acknowledgement, earlier translations may not be used."""
        row = {}
        if tables is not None:
            row = {"bound": 1, "base": tables.root >> 12, "last": (1 << 37) - 1}
        for one in self.pages:
            if one.asid == asid:
                one.dead = min(one.dead, self.cycle)
        self.bound.pop(asid, None)
        begun = self.cycle
        await self.command(bind=1, scope=ASID, asid=asid, row=row)
        self.unbound.setdefault(asid, []).append((begun, NEVER))
        if tables is not None:
            self.bound[asid] = tables
            for page in tables.pages():
                # Its pages may be found as soon as the bind is in progress.
                self.pages.append(Mapping(page, asid, begun))
            self.unbound[asid][-1] = (begun, self.cycle)

    def map(self, asid: int, va: int, pa: int, size: int, **options: Any) -> bool:
        needs = self.bound[asid].map(va, pa, size, page_size=size, **options)
        page = self.bound[asid].find(va)
        assert page is not None
        self.pages.append(Mapping(page, asid, self.cycle))
        return needs

    def unmap(self, one: Mapping) -> None:
        self.bound[one.asid].unmap(one.page.va, one.page.size)
        one.dead = self.cycle

    async def invalidate(self, scope: Scope, asid: int = 0, va: int = 0) -> None:
        await self.command(scope=scope, asid=asid, vpn=va >> 12)

    async def command(self, **values: Any) -> None:
        """Send a command and wait for its acknowledgement. After that, covered pages that had left
        the tables earlier may not be used."""
        covered = []
        for one in self.pages:
            vpn = values.get("vpn", 0)
            mine = one.asid == values.get("asid")
            inside = values["scope"] is not ONE or one.has(vpn << 12)
            if one.dead < NEVER and (values["scope"] is ALL or (mine and inside)):
                covered.append(one)
        last = await self.send(values)
        for one in covered:
            one.gone = min(one.gone, last)

    async def send(self, *commands: dict[str, Any]) -> int:
        """Send commands without a gap, and wait for the last acknowledgement. Returns the last
        cycle before it."""
        for one in commands:
            self._command.put(one)
        await self.until(lambda: not self._command.pending, "all commands are taken")
        await self.until(lambda: self.get("done"), "the acknowledgement")
        return self.cycle - 2

    # Cycles

    async def step(self) -> None:
        """One cycle."""
        for client, request in enumerate(self._requests):
            if not request.pending and self.todo[client]:
                request.put(self._issue(client, self.todo[client].pop(0)))
        await super().step()
        assert self.get("read__beat__ready") or not self.get("read__beat__valid")

    def _issue(self, client: int, look: Look) -> dict[str, Any]:
        """Request of a look-up, which is offered now."""
        look.offered, self._offers[client] = self.cycle, look
        tag = {"number": next(self._numbering) & 0xFFF}
        return {"tag": tag, "asid": look.asid, "va": look.va, "access": look.access}

    def _enter(self, client: int, request: dict[str, Any]) -> None:
        """A look-up was taken."""
        self._waiting[client, request["tag"]["number"]] = self._offers[client]

    def _end(self, client: int, answer: dict[str, Any]) -> None:
        """An answer was taken."""
        look = self._waiting.pop((client, answer["tag"]["number"]))
        look.answered, look.outcome = self.cycle, answer["outcome"]
        look.fault, look.pa = answer["fault"], answer["pa"]
        self.done.append(look)

    def _read(self, request: dict[str, Any]) -> None:
        """Answer a read."""
        assert request["physical"] == 1
        assert request["beats"] == 0
        self.reads += 1
        address = request["va"] & -16
        beat: dict[str, Any] = {"status": OUTSIDE, "last": 1}
        if address + 16 <= CONFIG.memory_bytes:
            content = int.from_bytes(self.memory_read(address, 16), "little")
            beat |= {"data": content, "status": BUS if address in self.broken else OK}
        self._beat.put(beat, self.random.randint(*self.latency))

    async def rest(self) -> list[Look]:
        """Step until everything is answered and checked. Returns the look-ups since the last
        call."""
        await self.until(self._idle, "all answers")
        done, self.done = self.done, []
        for look in done:
            self.check(look)
        return done

    def _idle(self) -> bool:
        return not (any(self.todo) or any(one.pending for one in self._requests) or self._waiting)

    # Checks

    def check(self, look: Look) -> None:
        """Check that the answer agrees with a page valid at that time; for a fault, that there was
        a time without a page."""
        mine = [
            one
            for one in self.pages
            if one.asid == look.asid and one.has(look.va) and one.born <= look.answered
        ]
        usable = [one for one in mine if one.gone >= look.answered]
        self.counts[look.outcome, look.fault if look.outcome is FAULT else 0] += 1
        if look.outcome is PAGE:
            right = [
                one
                for one in usable
                if look.pa == one.page.pa + look.va - one.page.va < CONFIG.memory_bytes
                and not (one.page.read_only and look.access == WRITE)
            ]
            assert right, (look, mine)
        elif look.fault == RO:
            assert look.access == WRITE
            assert any(one.page.read_only for one in usable), (look, mine)
        elif look.fault == REGION:
            past = [one.page.pa + look.va - one.page.va >= CONFIG.memory_bytes for one in mine]
            assert any(past), (look, mine)
        elif look.fault == POISONED:
            assert self.broken
        elif look.fault == UNBOUND:
            times = self.unbound.get(look.asid, [(0, NEVER)])
            never = look.asid not in self.unbound
            assert never or any(
                first <= look.answered and look.offered <= last for first, last in times
            ), (look, times)
        else:
            assert look.fault in {PDE, PTE}, look
            always = [one for one in mine if one.born <= look.offered and one.dead >= look.answered]
            assert not always, (look, always)


@cocotb.test(**LIMIT)
async def miss_cycles(dut):
    """A hit in the second level takes 11 cycles more than a hit in the first."""
    tb = await MmuTestbench(dut).start()
    await tb.bind(0, tb.tables())
    tb.map(0, 0, 0x5000, 1 << 12)
    took = []
    for client in (0, 0, 1):
        tb.todo[client].append(Look(client, 0, 8))
        (look,) = await tb.rest()
        took.append(look.answered - look.offered)
    assert took[1:] == [1, 1 + 11]


@cocotb.test(**LIMIT)
async def two_spaces(dut):
    """Page 20, example 1: the same addresses of two spaces give different pages for every client.
    The first access walks, later ones hit."""
    tb = await MmuTestbench(dut).start()
    for asid in range(2):
        await tb.bind(asid, tb.tables())
        for page in range(2):
            tb.map(asid, page << 12, (2 * asid + page) << 12, 1 << 12)
    for client, turn in itertools.product(range(CLIENTS), range(2)):
        for asid, page in itertools.product(range(2), range(2)):
            tb.todo[client].append(Look(client, asid, (page << 12) + 4 * turn))
        for look in await tb.rest():
            assert look.outcome is PAGE
            assert look.pa == (2 * look.asid << 12) + look.va
        # Five levels for the first page of each space, and the second page's PTE.
        assert tb.reads == 2 * 5 + 2


@cocotb.test(**LIMIT)
async def shared_page(dut):
    """Page 20, example 2: one physical page at different addresses of two spaces (ASID-6)."""
    tb = await MmuTestbench(dut).start()
    for asid, va in ((0, 0x1_0000_0000), (1, 0x7_0000)):
        await tb.bind(asid, tb.tables())
        tb.map(asid, va, 0x9000, 1 << 12)
        tb.todo[0].append(Look(0, asid, va + 0x123))
    assert [look.pa for look in await tb.rest()] == [0x9123] * 2


@cocotb.test(**LIMIT)
async def reused(dut):
    """Page 20, example 4: if an ASID is bound to one table, then to another, in any cycle of a walk
    with all clients active, no translation of the first is used afterwards (ASID-8)."""
    tb = await MmuTestbench(dut).start()
    first, second = tb.tables(), tb.tables()
    for n in range(4):
        first.map(n << 12, n << 12, 1 << 12)
        second.map(n << 12, (n + 16) << 12, 1 << 12)
    for offset in range(60):
        await tb.bind(3, first)
        if offset % 2:
            await tb.rest()
        for client in range(CLIENTS):
            tb.todo[client] += [Look(client, 3, (client + n) % 4 << 12) for n in range(40)]
        await tb.steps(offset)
        await tb.bind(3, second)
        await tb.rest()


@cocotb.test(**LIMIT)
async def one_fault_stops_one(dut):
    """Unbound space, missing page, read-only page, unreadable table: each look-up gets its own
    cause, and others get their pages (ASID-5)."""
    tb = await MmuTestbench(dut).start()
    await tb.bind(0, tb.tables())
    await tb.bind(1, tb.tables())
    tb.map(0, 0, 0x5000, 1 << 12, read_only=True)
    tb.map(0, 0x1000, 0x6000, 1 << 12)
    tb.map(1, 0, 0x7000, 1 << 12)
    tb.broken = {tb.bound[1].root & -16}
    expected = {
        (0, 0, READ): (PAGE, 0),
        (0, 0, WRITE): (FAULT, RO),
        (0, 0x1000, WRITE): (PAGE, 0),
        (0, 0x2000, READ): (FAULT, PTE),
        (0, 1 << 40, READ): (FAULT, PDE),
        (1, 0, READ): (FAULT, POISONED),
        (5, 0, READ): (FAULT, UNBOUND),
    }
    for client in range(CLIENTS):
        looks = [Look(client, *key) for key in expected]
        tb.random.shuffle(looks)
        tb.todo[client] += looks
    for look in await tb.rest():
        outcome, fault = expected[look.asid, look.va, look.access]
        assert look.outcome == outcome, look
        assert outcome == PAGE or look.fault == fault, look


@cocotb.test(**LIMIT)
async def a_burst_locks_nobody_out(dut):
    """While all other clients miss endlessly, misses of one client are answered within the stated
    bound: each is preceded by at most the number of walks that can wait, each as long as five reads
    (page 20)."""
    tb = await MmuTestbench(dut).start()
    tb.latency = (30, 30)
    for asid in range(2):
        await tb.bind(asid, tb.tables())
    tb.map(0, 0, 0, 1 << 21)
    for n in range(64):
        tb.map(1, n << 12, n << 12, 1 << 12)
    last = CLIENTS - 1
    for client in range(last):
        tb.todo[client] = [Look(client, 0, (n % 256 << 38) + (client << 30)) for n in range(900)]
    worst = 0
    for n in range(40):
        look = Look(last, 1, n << 12)
        tb.todo[last].append(look)
        while look.answered < 0:
            await tb.step()
        worst = max(worst, look.answered - look.offered)
    assert all(tb.todo[:last]), "another client ran out of requests"
    for todo in tb.todo:
        todo.clear()
    await tb.rest()
    waiting = MISSES * CLIENTS
    assert worst <= (1 + waiting // WALKS) * (5 * (30 + 2) + 40), worst


@cocotb.test(**LIMIT)
async def pages_invalidated_one_after_the_other(dut):
    """All of several back-to-back invalidations of pages are executed (ASID-9)."""
    tb = await MmuTestbench(dut).start()
    await tb.bind(2, tb.tables())
    for n in range(8):
        tb.map(2, n << 12, n << 12, 1 << 12)
        tb.todo[0].append(Look(0, 2, n << 12))
    await tb.rest()
    for one in list(tb.pages):
        tb.unmap(one)
        tb.map(2, one.page.va, one.page.pa + 0x10000, 1 << 12)
    await tb.send(*({"scope": ONE, "asid": 2, "vpn": n} for n in range(8)))
    for n in range(8):
        tb.todo[0].append(Look(0, 2, n << 12))
    assert [look.pa for look in await tb.rest()] == [0x10000 + (n << 12) for n in range(8)]


@cocotb.test(**LIMIT)
async def largest_pages(dut):
    """The TLBs hold the pieces of a page of 512 MiB (HOST-17). The invalidation of any of its
    addresses covers all pieces, in every first level; a space without such a page, or that no
    longer has one, keeps all other translations when a page is invalidated."""
    tb = await MmuTestbench(dut).start()
    for asid in range(2):
        await tb.bind(asid, tb.tables())
        tb.map(asid, 0, 0x5000, 1 << 12)
    tb.map(0, LARGEST, 0, WHOLE)

    async def access() -> tuple[int, int]:
        """Access both spaces. Returns the numbers of entries read for each."""
        reads = [tb.reads]
        for asid in range(2):
            for client, piece in itertools.product(range(CLIENTS), range(7)):
                va = (LARGEST if asid == 0 else 0) + piece * asid + (piece << 21) * (1 - asid)
                tb.todo[client].append(Look(client, asid, va + 8))
            assert {look.outcome for look in await tb.rest()} == {PAGE}
            reads.append(tb.reads)
        return reads[1] - reads[0], reads[2] - reads[1]

    # With more misses of a page than walks, later walks find its region in the walk cache and read
    # the two levels below again. A page of 512 MiB is in the walk cache itself.
    again = 2 * ((CLIENTS - 1) // WALKS)
    assert await access() == (3, 5 + again)
    assert await access() == (0, 0)
    before = tb.reads
    tb.todo[0].append(Look(0, 0, LARGEST + (1 << 24)))
    (look,) = await tb.rest()
    assert (look.outcome, look.fault) == (FAULT, REGION)
    tb.todo[0].append(Look(0, 0, 8))
    assert (await tb.rest())[0].pa == 0x5008
    await tb.invalidate(ONE, 1, 1 << 21)
    assert await access() == (0, 0), "another page"
    await tb.invalidate(ONE, 1, LARGEST)
    assert await access() == (0, 0), "another space"
    assert tb.reads - before == 5
    for turn in range(3):
        (page,) = [one for one in tb.pages if one.page.va == LARGEST and one.dead == NEVER]
        tb.unmap(page)
        tb.map(0, LARGEST, 0, WHOLE, read_only=turn % 2 == 0)
        await tb.invalidate(ONE, 0, LARGEST + tb.random.randrange(WHOLE))
        look = Look(0, 0, LARGEST + (6 << 21), WRITE)
        tb.todo[0].append(look)
        await tb.rest()
        assert (look.outcome is FAULT) == (turn % 2 == 0)
        _, others = await access()
        assert not others, "of another space"
    (page,) = [one for one in tb.pages if one.page.va == LARGEST and one.dead == NEVER]
    tb.unmap(page)
    await tb.invalidate(ONE, 0, LARGEST)
    for va, walked in ((0, True), (1 << 21, False)):
        await tb.invalidate(ONE, 0, va)
        before = tb.reads
        tb.todo[0].append(Look(0, 0, 8))
        assert (await tb.rest())[0].pa == 0x5008
        assert (tb.reads > before) == walked, "without pieces, only that page"


@cocotb.test(**LIMIT)
async def largest_page_replaced(dut):
    """If a page of 512 MiB is replaced, and another of its addresses invalidated, in any cycle of
    its first access, every client has the new page afterwards."""
    tb = await MmuTestbench(dut).start()
    await tb.bind(0, tb.tables())
    tb.map(0, LARGEST, 0, WHOLE)
    for offset in range(60):
        await tb.invalidate(ASID, 0)
        for client in range(CLIENTS):
            tb.todo[client].append(Look(client, 0, LARGEST + (client << 20), WRITE))
        await tb.steps(offset)
        tb.unmap(tb.pages[-1])
        tb.map(0, LARGEST, 0, WHOLE, read_only=offset % 2 == 0)
        await tb.invalidate(ONE, 0, LARGEST + (77 << 21))
        looks = [Look(client, 0, LARGEST + (client << 20), WRITE) for client in range(CLIENTS)]
        for look in looks:
            tb.todo[look.client].append(look)
        await tb.rest()
        assert {look.outcome for look in looks} == {PAGE if offset % 2 else FAULT}, offset


def address(tb: MmuTestbench) -> int:
    """An address in one of 36 pages in three regions of 2 MiB, or anywhere in a region of 512
    MiB."""
    if tb.random.random() < 0.25:
        return LARGEST + (tb.random.choice((0, 1, 7, 8, 255)) << 21) + tb.random.randrange(1 << 21)
    region = tb.random.choice((0, 1 << 21, 0x1_2345 << 21))
    return region + tb.random.choice((0, 1 << 16, 20 << 16)) + tb.random.randrange(4 << 12)


def change(tb: MmuTestbench) -> dict[str, Any] | None:
    """Map or unmap a page. Returns the required invalidation, if any."""
    numbers = tb.random
    asid = numbers.choice(list(tb.bound))
    va = address(tb)
    size = numbers.choice((SIZES[0],) * 3 + SIZES[1:])
    if va >= LARGEST and va < LARGEST + WHOLE:
        size = numbers.choice((WHOLE, WHOLE, SIZES[2]))
    va -= va % size
    mine = [one for one in tb.pages if one.asid == asid and one.dead == NEVER]
    over = [one for one in mine if one.page.va < va + size and va < one.page.va + one.page.size]
    if over:
        one = numbers.choice(over)
        tb.unmap(one)
        if numbers.random() < 0.5:
            inside = numbers.randrange(one.page.size)
            return {"scope": ONE, "asid": asid, "va": one.page.va + inside}
        return {"scope": numbers.choice((ASID, ASID, ALL)), "asid": asid}
    pa = numbers.randrange(CONFIG.memory_bytes // size or 1) * size
    needs = tb.map(asid, va, pa, size, read_only=numbers.random() < 0.3)
    return {"scope": ASID, "asid": asid} if needs else None


def ask(tb: MmuTestbench, client: int, count: int) -> None:
    numbers = tb.random
    for _ in range(count):
        asid = 5 if numbers.random() < 0.05 else numbers.randrange(4)
        access = numbers.choice((READ, READ, WRITE))
        tb.todo[client].append(Look(client, asid, address(tb), access))


@cocotb.test(**LIMIT)
async def random_(dut):
    """All answers are correct while pages of all sizes come and go, spaces are rebound, and
    invalidations of any scope occur, with all clients active and memory of varying speed (ASID-1 …
    ASID-9)."""
    tb = await MmuTestbench(dut).start()
    numbers = tb.random
    spaces = [tb.tables() for _ in range(6)]
    for asid in range(4):
        await tb.bind(asid, spaces[asid])
    for _ in range(80):
        change(tb)
    for asid in range(4):
        await tb.invalidate(ASID, asid)
    free = spaces[4:]
    counts, rounds = tb.counts, Rounds(120)
    while rounds.more(counts[PAGE, 0] > 300 and len(counts) >= 4, counts):
        tb.latency = numbers.choice(((1, 1), (1, 30), (20, 60)))
        eager = tb.share(numbers.choice((0.3, 1.0)))
        for answer in tb.answers:
            answer.pace = eager
        tb.read.pace = tb.share(numbers.choice((0.5, 1.0)))
        for client in range(CLIENTS):
            ask(tb, client, numbers.randrange(20))
        for _ in range(numbers.randrange(4)):
            todo = change(tb)
            await tb.steps(numbers.randrange(20))
            if todo is not None:
                await tb.invalidate(**todo)
        if numbers.random() < 0.2:
            asid = numbers.randrange(4)
            free.append(tb.bound[asid])
            await tb.bind(asid, free.pop(0))
        if numbers.random() < 0.3:
            await tb.rest()
    await tb.rest()
