"""Translation as a whole: clients, address spaces and changing tables (ASID-1 … ASID-9).

The driver writes tables to memory, which is modelled in Python. Every answer is compared with the
tables between the cycles of look-up and answer; the reference knows only pages.
"""

import itertools
import os
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb
from amaranth.lib import data
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.driver.memory.page_tables import Page, PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.hw.config import Config
from signalbox.hw.mmu.translation import Mmu
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

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
"""Number of look-ups that may wait in one first level."""

PAGE, FAULT, SPARSE, RETRY = range(4)
ALL, ASID, ONE = range(3)
READ, WRITE = range(2)
PDE, PTE, UNBOUND, RO, POISONED = 0, 2, 4, 6, 14
OK, BUS = range(2)
SIZES = (1 << 12, 1 << 16, 1 << 21)
NEVER = float("inf")


@dataclass
class Mapping:
    """A page of a space, in the tables from cycle `born` on, and used until `gone` at most."""

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
    access: int = READ
    offered: int = -1
    answered: int = -1
    outcome: int = -1
    fault: int = -1
    pa: int = -1


class Bench:
    """Testbench that drives the unit cycle by cycle and models memory and software.

    Members
    -------
    bound : tables of each ASID.
    live, old : pages of each ASID, in the tables or not.
    latency : latency of a read of memory.
    broken : addresses whose reads fail.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut, self.numbers, self.now = dut, Random(seed), 0
        mmu = Mmu(CONFIG, CLIENTS, TAG)
        members = mmu.signature.members
        streams = {"request": members["request"], "answer": members["answer"]}
        streams |= {"command": members["command"]}
        read = members["read"].signature.members
        streams |= {"ask": read["request"], "beat": read["beat"]}
        self.shapes = {
            name: member.signature.members["payload"].shape for name, member in streams.items()
        }
        self.bytes = bytearray(CONFIG.memory_bytes)
        self.memory = Memory(self, CONFIG.memory_bytes, base=1 << 22)  # type: ignore[arg-type]
        self.bound: dict[int, PageTables] = {}
        self.pages: list[Mapping] = []
        self.unbound: dict[int, list[tuple[int, float]]] = {}
        self.todo: list[list[Look]] = [[] for _ in range(CLIENTS)]
        self.offers: list[tuple[int, Look] | None] = [None] * CLIENTS
        self.waiting: dict[tuple[int, int], Look] = {}
        self.numbering = itertools.count()
        self.latency, self.pace, self.eager = (5, 5), 1.0, 1.0
        self.beats: list[tuple[int, int]] = []
        self.broken: set[int] = set()
        self.reads = self.done_at = 0
        self.done: list[Look] = []
        self.counts: Counter = Counter()

    # The machine, as seen by the driver

    def memory_read(self, address: int, size: int) -> bytes:
        return bytes(self.bytes[address : address + size])

    def memory_write(self, address: int, content: bytes) -> None:
        self.bytes[address : address + len(content)] = content

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut, int(os.environ["COCOTB_RANDOM_SEED"]))
        for client in range(CLIENTS):
            getattr(dut, f"request__{client}__valid").value = 0
            getattr(dut, f"request__{client}__payload").value = 0
            getattr(dut, f"answer__{client}__ready").value = 1
        for name in ("command__valid", "read__request__ready", "read__beat__valid"):
            getattr(dut, name).value = 0
        dut.command__payload.value = dut.read__beat__payload.value = 0
        await reset(dut)
        return bench

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
                one.dead = min(one.dead, self.now)
        self.bound.pop(asid, None)
        begun = self.now
        await self.command(bind=1, scope=ASID, asid=asid, row=row)
        self.unbound.setdefault(asid, []).append((begun, NEVER))
        if tables is not None:
            self.bound[asid] = tables
            for page in tables.pages():
                # It may be found as soon as the bind is in progress.
                self.pages.append(Mapping(page, asid, begun))
            self.unbound[asid][-1] = (begun, self.now)

    def map(self, asid: int, va: int, pa: int, size: int, **options: Any) -> bool:
        needs = self.bound[asid].map(va, pa, size, page_size=size, **options)
        page = self.bound[asid].find(va)
        assert page is not None
        self.pages.append(Mapping(page, asid, self.now))
        return needs

    def unmap(self, one: Mapping) -> None:
        self.bound[one.asid].unmap(one.page.va, one.page.size)
        one.dead = self.now

    async def invalidate(self, scope: int, asid: int = 0, va: int = 0) -> None:
        await self.command(scope=scope, asid=asid, vpn=va >> 12)

    async def command(self, **values: Any) -> None:
        """Send a command and wait for its acknowledgement. Then covered pages that had left the
        tables earlier may not be used."""
        dut, covered = self.dut, []
        for one in self.pages:
            vpn = values.get("vpn", 0)
            mine = one.asid == values.get("asid")
            inside = values["scope"] != ONE or one.has(vpn << 12)
            if one.dead < NEVER and (values["scope"] == ALL or (mine and inside)):
                covered.append(one)
        dut.command__valid.value = 1
        dut.command__payload.value = self.shapes["command"].const(values).as_bits()
        while not await self.step():
            pass
        dut.command__valid.value = 0
        while self.done_at < self.now - 1:
            await self.step()
        for one in covered:
            one.gone = min(one.gone, self.done_at - 1)

    # Cycles

    async def step(self) -> bool:
        """One cycle. Returns whether a command was taken in it."""
        dut, numbers = self.dut, self.numbers
        for client in range(CLIENTS):
            self._offer(client)
            ready = int(numbers.random() < self.eager)
            getattr(dut, f"answer__{client}__ready").value = ready
        due = bool(self.beats and self.beats[0][0] <= self.now)
        dut.read__beat__valid.value = int(due)
        if due:
            dut.read__beat__payload.value = self.beats[0][1]
        dut.read__request__ready.value = int(numbers.random() < self.pace)
        await ReadOnly()
        self._sample(due)
        taken = dut.command__valid.value == 1 and dut.command__ready.value == 1
        if dut.done.value == 1:
            self.done_at = self.now
        await RisingEdge(dut.clk)
        self.now += 1
        return taken

    def _offer(self, client: int) -> None:
        dut = self.dut
        if self.offers[client] is None and self.todo[client]:
            look = self.todo[client].pop(0)
            look.offered = self.now
            self.offers[client] = next(self.numbering) & 0xFFF, look
        offer = self.offers[client]
        getattr(dut, f"request__{client}__valid").value = int(offer is not None)
        if offer is not None:
            number, look = offer
            values = {"tag": {"number": number}, "asid": look.asid, "va": look.va}
            word = self.shapes["request"].const({**values, "access": look.access})
            getattr(dut, f"request__{client}__payload").value = word.as_bits()

    def _sample(self, due: bool) -> None:
        dut = self.dut
        if due:
            assert dut.read__beat__ready.value == 1
            self.beats.pop(0)
        if dut.read__request__valid.value == 1 and dut.read__request__ready.value == 1:
            ask = self.shapes["ask"].from_bits(dut.read__request__payload.value.to_unsigned())
            assert ask.physical == 1
            assert ask.beats == 0
            self._read(ask.va & -16)
        for client in range(CLIENTS):
            self._client(client)

    def _read(self, address: int) -> None:
        self.reads += 1
        inside = address + 16 <= CONFIG.memory_bytes
        content = int.from_bytes(self.memory_read(address, 16), "little") if inside else 0
        status = BUS if address in self.broken else OK
        values = {"data": content, "status": status if inside else 2, "last": 1}
        word = self.shapes["beat"].const(values).as_bits()
        self.beats.append((self.now + self.numbers.randint(*self.latency), word))

    def _client(self, client: int) -> None:
        dut, offer = self.dut, self.offers[client]
        if offer is not None and getattr(dut, f"request__{client}__ready").value == 1:
            self.waiting[client, offer[0]] = offer[1]
            self.offers[client] = None
        valid = getattr(dut, f"answer__{client}__valid").value == 1
        if valid and getattr(dut, f"answer__{client}__ready").value == 1:
            word = getattr(dut, f"answer__{client}__payload").value.to_unsigned()
            answer = self.shapes["answer"].from_bits(word)
            look = self.waiting.pop((client, answer.tag.number))
            look.answered, look.outcome = self.now, answer.outcome.value
            look.fault, look.pa = int(answer.fault), answer.pa
            self.done.append(look)

    async def rest(self, limit: int = 40_000) -> list[Look]:
        """Step until everything is answered and checked. Returns the look-ups since the last
        call."""
        end = self.now + limit
        while any(self.todo) or any(self.offers) or self.waiting:
            assert self.now < end, f"no answer: {self.waiting}"
            await self.step()
        done, self.done = self.done, []
        for look in done:
            self.check(look)
        return done

    # Checks

    def check(self, look: Look) -> None:
        """Check that a page valid at that time agrees with the answer; or for a fault, that there
        was a time without a page."""
        mine = [
            one
            for one in self.pages
            if one.asid == look.asid and one.has(look.va) and one.born <= look.answered
        ]
        usable = [one for one in mine if one.gone >= look.answered]
        self.counts[look.outcome, look.fault if look.outcome == FAULT else 0] += 1
        if look.outcome == PAGE:
            right = [
                one
                for one in usable
                if look.pa == one.page.pa + look.va - one.page.va
                and not (one.page.read_only and look.access == WRITE)
            ]
            assert right, (look, mine)
        elif look.fault == RO:
            assert look.access == WRITE
            assert any(one.page.read_only for one in usable), (look, mine)
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
    """A hit in the second level takes 11 cycles more than one in the first."""
    bench = await Bench.start(dut)
    await bench.bind(0, bench.tables())
    bench.map(0, 0, 0x5000, 1 << 12)
    took = []
    for client in (0, 0, 1):
        bench.todo[client].append(Look(client, 0, 8))
        (look,) = await bench.rest()
        took.append(look.answered - look.offered)
    assert took[1:] == [1, 1 + 11]


@cocotb.test(**LIMIT)
async def two_spaces(dut):
    """Page 20, example 1: the same addresses of two spaces give different pages for every client.
    The first access walks, later ones hit."""
    bench = await Bench.start(dut)
    for asid in range(2):
        await bench.bind(asid, bench.tables())
        for page in range(2):
            bench.map(asid, page << 12, (2 * asid + page) << 12, 1 << 12)
    for client, turn in itertools.product(range(CLIENTS), range(2)):
        for asid, page in itertools.product(range(2), range(2)):
            bench.todo[client].append(Look(client, asid, (page << 12) + 4 * turn))
        for look in await bench.rest():
            assert look.outcome == PAGE
            assert look.pa == (2 * look.asid << 12) + look.va
        # Five levels for the first page of each space, and the second page's PTE.
        assert bench.reads == 2 * 5 + 2


@cocotb.test(**LIMIT)
async def shared_page(dut):
    """Page 20, example 2: one physical page at different addresses of two spaces (ASID-6)."""
    bench = await Bench.start(dut)
    for asid, va in ((0, 0x1_0000_0000), (1, 0x7_0000)):
        await bench.bind(asid, bench.tables())
        bench.map(asid, va, 0x9000, 1 << 12)
        bench.todo[0].append(Look(0, asid, va + 0x123))
    assert [look.pa for look in await bench.rest()] == [0x9123] * 2


@cocotb.test(**LIMIT)
async def reused(dut):
    """Page 20, example 4: if an ASID is bound to one table, then to another, in any cycle of a walk
    with all clients active, no translation of the first is used afterwards (ASID-8)."""
    bench = await Bench.start(dut)
    first, second = bench.tables(), bench.tables()
    for n in range(4):
        first.map(n << 12, n << 12, 1 << 12)
        second.map(n << 12, (n + 16) << 12, 1 << 12)
    for offset in range(60):
        await bench.bind(3, first)
        if offset % 2:
            await bench.rest()
        for client in range(CLIENTS):
            bench.todo[client] += [Look(client, 3, (client + n) % 4 << 12) for n in range(40)]
        for _ in range(offset):
            await bench.step()
        await bench.bind(3, second)
        await bench.rest()


@cocotb.test(**LIMIT)
async def one_fault_stops_one(dut):
    """Unbound space, missing page, read-only page, unreadable table: each look-up gets its own
    cause, and others get their pages (ASID-5)."""
    bench = await Bench.start(dut)
    await bench.bind(0, bench.tables())
    await bench.bind(1, bench.tables())
    bench.map(0, 0, 0x5000, 1 << 12, read_only=True)
    bench.map(0, 0x1000, 0x6000, 1 << 12)
    bench.map(1, 0, 0x7000, 1 << 12)
    bench.broken = {bench.bound[1].root & -16}
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
        bench.numbers.shuffle(looks)
        bench.todo[client] += looks
    for look in await bench.rest():
        outcome, fault = expected[look.asid, look.va, look.access]
        assert look.outcome == outcome, look
        assert outcome == PAGE or look.fault == fault, look


@cocotb.test(**LIMIT)
async def a_burst_locks_nobody_out(dut):
    """While all other clients miss endlessly, misses of one client are answered within the stated
    bound: at most the possible number of waiting walks precede it, each as long as five reads (page
    20)."""
    bench = await Bench.start(dut)
    bench.latency = (30, 30)
    for asid in range(2):
        await bench.bind(asid, bench.tables())
    bench.map(0, 0, 0, 1 << 21)
    for n in range(64):
        bench.map(1, n << 12, n << 12, 1 << 12)
    last = CLIENTS - 1
    for client in range(last):
        bench.todo[client] = [Look(client, 0, (n % 256 << 38) + (client << 30)) for n in range(900)]
    worst = 0
    for n in range(40):
        look = Look(last, 1, n << 12)
        bench.todo[last].append(look)
        while look.answered < 0:
            await bench.step()
        worst = max(worst, look.answered - look.offered)
    assert all(bench.todo[:last]), "another client ran out of requests"
    for todo in bench.todo:
        todo.clear()
    await bench.rest()
    waiting = MISSES * CLIENTS
    assert worst <= (1 + waiting // WALKS) * (5 * (30 + 2) + 40), worst


@cocotb.test(**LIMIT)
async def pages_invalidated_one_after_the_other(dut):
    """Each of several back-to-back commands is executed (ASID-9)."""
    bench = await Bench.start(dut)
    await bench.bind(2, bench.tables())
    for n in range(8):
        bench.map(2, n << 12, n << 12, 1 << 12)
        bench.todo[0].append(Look(0, 2, n << 12))
    await bench.rest()
    for one in list(bench.pages):
        bench.unmap(one)
        bench.map(2, one.page.va, one.page.pa + 0x10000, 1 << 12)
    dut.command__valid.value = 1
    for n in range(8):
        word = bench.shapes["command"].const({"scope": ONE, "asid": 2, "vpn": n})
        dut.command__payload.value = word.as_bits()
        while not await bench.step():
            pass
    dut.command__valid.value = 0
    while bench.done_at < bench.now - 1:
        await bench.step()
    for n in range(8):
        bench.todo[0].append(Look(0, 2, n << 12))
    assert [look.pa for look in await bench.rest()] == [0x10000 + (n << 12) for n in range(8)]


def address(bench: Bench) -> int:
    """One of 36 pages in three regions of 2 MiB."""
    region = bench.numbers.choice((0, 1 << 21, 0x1_2345 << 21))
    return region + bench.numbers.choice((0, 1 << 16, 20 << 16)) + bench.numbers.randrange(4 << 12)


def change(bench: Bench) -> dict[str, int] | None:
    """Map or unmap a page. Returns the required invalidation, if any."""
    numbers = bench.numbers
    asid = numbers.choice(list(bench.bound))
    size = numbers.choice((SIZES[0],) * 3 + SIZES[1:])
    va = address(bench) // size * size
    mine = [one for one in bench.pages if one.asid == asid and one.dead == NEVER]
    over = [one for one in mine if one.page.va < va + size and va < one.page.va + one.page.size]
    if over:
        one = numbers.choice(over)
        bench.unmap(one)
        if numbers.random() < 0.5:
            return {"scope": ONE, "asid": asid, "va": one.page.va}
        return {"scope": numbers.choice((ASID, ASID, ALL)), "asid": asid}
    pa = numbers.randrange(CONFIG.memory_bytes // size) * size
    needs = bench.map(asid, va, pa, size, read_only=numbers.random() < 0.3)
    return {"scope": ASID, "asid": asid} if needs else None


def ask(bench: Bench, client: int, count: int) -> None:
    numbers = bench.numbers
    for _ in range(count):
        asid = 5 if numbers.random() < 0.05 else numbers.randrange(4)
        access = numbers.choice((READ, READ, WRITE))
        bench.todo[client].append(Look(client, asid, address(bench), access))


@cocotb.test(**LIMIT)
async def random_(dut):
    """All answers are correct while pages of all sizes come and go, spaces are bound again, and
    invalidations of any scope occur, with all clients active and memory of varying speed (ASID-1 …
    ASID-9)."""
    bench = await Bench.start(dut)
    numbers = bench.numbers
    spaces = [bench.tables() for _ in range(6)]
    for asid in range(4):
        await bench.bind(asid, spaces[asid])
    for _ in range(80):
        change(bench)
    for asid in range(4):
        await bench.invalidate(ASID, asid)
    free = spaces[4:]
    counts, rounds = bench.counts, Rounds(120)
    while rounds.more(counts[PAGE, 0] > 300 and len(counts) >= 4, counts):
        bench.latency = numbers.choice(((1, 1), (1, 30), (20, 60)))
        bench.eager, bench.pace = numbers.choice((0.3, 1.0)), numbers.choice((0.5, 1.0))
        for client in range(CLIENTS):
            ask(bench, client, numbers.randrange(20))
        for _ in range(numbers.randrange(4)):
            todo = change(bench)
            for _ in range(numbers.randrange(20)):
                await bench.step()
            if todo is not None:
                await bench.invalidate(**todo)
        if numbers.random() < 0.2:
            asid = numbers.randrange(4)
            free.append(bench.bound[asid])
            await bench.bind(asid, free.pop(0))
        if numbers.random() < 0.3:
            await bench.rest()
    await bench.rest()
