"""The page walker alone: every result agrees with the tables, with few reads (ASID-2, -4, -7, -8).

Memory is modelled in Python. Its tables are random words, generated on first access, most of which
point to other tables. The reference walk is `tb.models.pagetables`.
"""

import functools
import itertools
import os
from collections import Counter
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.mmu.records import Outcome, Scope
from signalbox.hw.mmu.walker import Walker
from signalbox.hw.page_tables import FaultType
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.models.pagetables import ORDINARY, Fault, Sparse, Translation, walk
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

WIDTH, WALKS = int(os.environ.get("WIDTH", "128")), int(os.environ.get("WALKS", "32"))
MEMORY = int(os.environ.get("MEMORY", str(1 << 32)))
CONFIG = Config(asids=8, data_width=WIDTH, walks=WALKS, walk_cache=4, memory_bytes=MEMORY)
TAG = 10

PAGE, FAULT, SPARSE, RETRY = Outcome
ALL, ASID, ONE = Scope
OK, BUS, OUTSIDE = MemoryStatus
SIZES = (1 << 12, 1 << 16, 1 << 21)
"""Sizes of translations; a page of 512 MiB has pieces of the largest size."""
WHOLE = 1 << 29
LEVELS = (47, 38, 29, 21, 12)
TABLES = 64


def directory(at: int) -> int:
    """A PDE for the table at `at`."""
    return 1 << 1 | at >> 12 << 8


def dual(big: int | None, small: int | None) -> tuple[int, int]:
    """Both halves of a PD0 entry."""
    return (
        0 if big is None else 1 << 1 | big >> 8 << 4,
        0 if small is None else 1 << 1 | small >> 12 << 8,
    )


def leaf(pa: int, **bits: int) -> int:
    """A PTE."""
    shifts = {"privileged": 5, "read_only": 6, "no_atomics": 7, "kind": 56, "aperture": 1}
    return 1 | pa >> 12 << 8 | sum(value << shifts[name] for name, value in bits.items())


class WalkerTestbench(Testbench):
    """Drives the unit and models memory and ASID table. Memory is not a `ReadServer`, as words are
    generated and can fail individually, and a read returns the words of the cycle in which it was
    accepted.

    Members
    -------
    words : memory, by address of 8 bytes.
    drawn : generates missing words.
    spaces : page directory base and last page per ASID; missing ones are unbound.
    read, beat : sink of reads, source of their beats.
    result : sink of the results.
    latency : range of a read's latency.
    asked, asked_at : (asid, page number) and cycle of each request, by tag.
    done : results by tag, with their cycles, since the last `rest`.
    results : all results.
    reads : (cycle, address) of all reads.
    most : maximum number of reads in flight.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(Walker, CONFIG, TAG))
        self.beat = Source(self, "read__beat", then=self._return)
        self._request = Source(self, "request", then=self._enter)
        self.read = Sink(self, "read__request", then=self._read)
        self.result = Sink(self, "result", then=self._end, held=False)
        self._invalidate = Strobe(self, "invalidate")
        self.words: dict[int, int | None] = {}
        self.drawn = lambda _address: 0
        self.spaces: dict[int, tuple[int, int]] = {}
        self.latency = (5, 5)
        self._flying = self.most = 0
        self._tags = itertools.count()
        self.asked: dict[int, tuple[int, int]] = {}
        self.asked_at: dict[int, int] = {}
        self._waiting: set[int] = set()
        self.done: dict[int, tuple[int, dict[str, Any]]] = {}
        self.results: dict[int, tuple[int, dict[str, Any]]] = {}
        self.reads: list[tuple[int, int]] = []

    # Memory

    def load(self, address: int) -> int | None:
        if address not in self.words:
            self.words[address] = self.drawn(address)
        return self.words[address]

    def store_dual(self, address: int, halves: tuple[int, int]) -> None:
        self.words[address], self.words[address + 8] = halves

    def _read(self, request: dict[str, Any]) -> None:
        """Answer a read."""
        assert request["physical"] == 1
        address, beats = request["va"], request["beats"] + 1
        self.reads.append((self.cycle, address))
        self._flying += 1
        self.most = max(self.most, self._flying)
        delay = self.random.randint(*self.latency)
        if address + beats * WIDTH // 8 > CONFIG.memory_bytes:
            self.beat.put({"status": OUTSIDE, "last": 1}, delay)
            return
        for beat in range(beats):
            base = (address & -(WIDTH // 8)) + beat * WIDTH // 8
            words = [self.load(base + 8 * i) for i in range(WIDTH // 64)]
            data = sum((word or 0) << 64 * i for i, word in enumerate(words))
            # Only the requested words must be readable.
            first = (address - base) // 8 if beats == 1 else 0
            wanted = words[first : first + (2 if _is_dual(address) else 1)]
            status = BUS if None in wanted else OK
            self.beat.put({"data": data, "status": status, "last": beat == beats - 1}, delay)

    def _return(self, beat: dict[str, Any]) -> None:
        self._flying -= beat["last"]

    # Cycles

    async def step(self, invalidate: dict[str, Any] | None = None) -> None:
        """One cycle."""
        if invalidate:
            self._invalidate.send(**invalidate)
        await super().step()
        assert self.get("read__beat__ready") or not self.get("read__beat__valid")
        if self.get("look"):
            self.drive(row=self._row(self.get("asid")))

    def _row(self, asid: int) -> dict[str, int]:
        if asid not in self.spaces:
            return {}
        base, last = self.spaces[asid]
        return {"bound": 1, "base": base >> 12, "last": last}

    def ask(self, *pages: tuple[int, int]) -> None:
        """Request translations of pages: ASID and page number."""
        for asid, vpn in pages:
            self._request.put(functools.partial(self._issue, asid, vpn))

    def _issue(self, asid: int, vpn: int) -> dict[str, int]:
        return {"tag": next(self._tags) % (1 << TAG), "asid": asid, "vpn": vpn}

    def _enter(self, request: dict[str, int]) -> None:
        """A request was taken."""
        tag = request["tag"]
        assert tag not in self._waiting
        self._waiting.add(tag)
        self.asked[tag], self.asked_at[tag] = (request["asid"], request["vpn"]), self.cycle

    def _end(self, result: dict[str, Any]) -> None:
        """A result was taken."""
        self._waiting.remove(result["tag"])
        self.done[result["tag"]] = self.results[result["tag"]] = self.cycle, result["end"]

    async def accepted(self, count: int) -> None:
        """Step until `reads` has `count` reads."""
        await self.until(lambda: len(self.reads) >= count, f"{count} reads")

    async def rest(self, limit: int | None = None) -> dict[int, tuple[int, dict[str, Any]]]:
        """Step until everything is answered. Returns the results since the last call."""
        await self.until(lambda: not (self._request.pending or self._waiting), "all results", limit)
        done, self.done = self.done, {}
        return done

    # Expected results

    def expected(self, asid: int, vpn: int) -> tuple:
        """Expected outcome, with the fault or page."""
        if asid not in self.spaces:
            return FAULT, FaultType.UNBOUND_INST_BLOCK
        base, last = self.spaces[asid]
        if vpn > last:
            return FAULT, FaultType.VA_LIMIT
        found = walk(self.load, CONFIG.memory_bytes, base, vpn << 12)
        if isinstance(found, Sparse):
            return (SPARSE,)
        if isinstance(found, Fault):
            return FAULT, found.code
        assert isinstance(found, Translation)
        size = min(found.page_bytes, SIZES[-1])
        if vpn << 12 | size - 1 > last << 12 | 0xFFF:
            return FAULT, FaultType.VA_LIMIT
        bits = (found.read_only, found.privileged, found.atomic_disable)
        return PAGE, SIZES.index(size), found.pa, *map(int, bits)

    def given(self, vpn: int, end: dict[str, Any]) -> tuple:
        """Outcome of a result, in the form of `expected`."""
        outcome = end["outcome"]
        if outcome is PAGE:
            page = end["page"]
            size = page["size"].value
            inside = SIZES[size] - 1
            pa = (page["ppn"] << 12) & ~inside | (vpn << 12) & inside
            return PAGE, size, pa, page["read_only"], page["privileged"], page["no_atomics"]
        return (outcome, end["fault"]) if outcome is FAULT else (outcome,)

    def check(self, done: dict[int, tuple[int, dict[str, Any]]]) -> Counter:
        """Check that all results are correct. Returns the number of each outcome."""
        counts: Counter = Counter()
        for tag, (_, end) in done.items():
            asid, vpn = self.asked[tag]
            given, expected = self.given(vpn, end), self.expected(asid, vpn)
            assert given == expected, (asid, hex(vpn), given, expected)
            counts[given[:2] if given[0] is FAULT else given[0]] += 1
        return counts


def _is_dual(address: int) -> bool:
    """Whether an address is in the part of memory with tables of PD0."""
    return address % 16 == 0 and address >> 12 & 7 == 3


def random_tables(tb: WalkerTestbench, wrong: float) -> None:
    """Tables of random entries: most of them point to other tables; a fraction `wrong` of all words
    is arbitrary, or cannot be read."""
    numbers = tb.random

    def table(kind: int) -> int:
        return (numbers.randrange(TABLES) << 3 | kind) << 12

    def draw(address: int) -> int | None:
        kind, share = address >> 12 & 7, numbers.random()
        if numbers.random() < wrong:
            words = (None, numbers.getrandbits(64), numbers.getrandbits(8), 0, 8)
            # In wide memory, both halves of a large entry are readable, or neither is.
            word = numbers.choice(words[1:] if WIDTH > 64 and address & 8 else words)
            if WIDTH > 64 and word is None:
                tb.words[address | 8] = None
            return word
        if kind == 2 and share < 0.3:
            last = (MEMORY - 1) // WHOLE * WHOLE
            at = numbers.choice((0, table(0), last, last + WHOLE))
            bits = {name: numbers.getrandbits(1) for name in ("privileged", "no_atomics")}
            return leaf(at, **bits, kind=numbers.choice(ORDINARY))
        if kind < 3:
            return directory(table(kind + 1))
        if kind == 3 and address & 8:
            return dual(None, table(4))[1] if share < 0.9 else 0
        of_memory = {"kind": numbers.choice(ORDINARY)}
        if kind == 3 and share < 0.3:
            return leaf(table(0), read_only=numbers.getrandbits(1), **of_memory)
        if kind == 3:
            return dual(table(4), None)[0] if share < 0.7 else 0
        bits = {name: numbers.getrandbits(1) for name in ("privileged", "read_only")}
        return leaf(numbers.getrandbits(12) << 12, **bits, **of_memory) if share < 0.7 else 0

    tb.drawn = draw


def chain(tb: WalkerTestbench, asid: int, va: int, *, root: int, pte: int) -> list[int]:
    """Tables that map one page of 4 KiB of `asid`. Returns the addresses of the entries."""
    tables = [root, root + 0x4000, root + 0x8000, root + 0xB000, root + 0x10000]
    at = [tables[n] + 8 * (va >> LEVELS[n] & (3, 511, 511)[n]) for n in range(3)]
    at.append(tables[3] + 16 * (va >> 21 & 255))
    at.append(tables[4] + 8 * (va >> 12 & 511))
    for n in range(3):
        tb.words[at[n]] = directory(tables[n + 1])
    tb.store_dual(at[3], dual(None, tables[4]))
    tb.words[at[4]] = pte
    tb.spaces[asid] = root, (1 << 37) - 1
    return at


@cocotb.test(**LIMIT)
async def fixed_cost(dut):
    """A single walk takes 5 cycles from request to first read, 2 from an entry to the next read,
    and 6 from the last entry to the result. Another walk in the same PD0 region reads only PD0 and
    the page table."""
    tb = await WalkerTestbench(dut).start()
    va = 0x1_2345_6789_A000
    at = chain(tb, 2, va, root=0x100000, pte=leaf(0x5000, privileged=1))
    tb.ask((2, va >> 12))
    done = await tb.rest()
    assert tb.check(done) == {PAGE: 1}
    assert [address for _, address in tb.reads] == at
    (tag, (end, _)), *_ = done.items()
    offers = [cycle for cycle, _ in tb.reads]
    assert offers[0] - tb.asked_at[tag] == 5
    came = tb.beat.sent
    lasts = came if WIDTH > 64 else [*came[:3], *came[4:]]
    assert [b - a for a, b in zip(lasts, offers[1:], strict=False)] == [2] * 4
    assert end - lasts[-1] == 6

    tb.reads.clear()
    tb.words[at[4] ^ 8] = leaf(0x6000)
    tb.ask((2, va >> 12), (2, va >> 12 ^ 1))
    assert tb.check(await tb.rest()) == {PAGE: 2}
    assert [address for _, address in tb.reads][:2] == at[3:]
    assert len(tb.reads) <= 3


@cocotb.test(**LIMIT)
async def any_tables(dut):
    """With random, partly nonsensical tables, several spaces, and slow and fast memory, every
    request has one result, equal to the reference."""
    tb = await WalkerTestbench(dut).start()
    counts: Counter = Counter()
    settings = (
        (0.0, (1, 1), 1.0, 1.0),
        (0.1, (1, 60), 0.5, 0.7),
        (0.3, (20, 20), 1.0, 0.2),
    )
    rounds = Rounds(len(settings))
    while rounds.more(counts[PAGE] > 100 and len(counts) > 6, counts):
        wrong, latency, pace, eager = settings[rounds.number % len(settings)]
        tb.words.clear()
        random_tables(tb, wrong)
        tb.spaces = {
            asid: (tb.random.randrange(4) << 15, tb.random.choice((-1, 99)) % (1 << 37))
            for asid in range(6)
        }
        tb.latency = latency
        tb.read.pace, tb.result.pace = tb.share(pace), tb.share(eager)
        regions = [tb.random.getrandbits(37) for _ in range(8)]
        for _ in range(400):
            flips = tb.random.choice((0, 1, 0xF, 0x1FF, 0x1FFFF))
            vpn = tb.random.choice(regions) ^ tb.random.getrandbits(37) & flips
            if tb.random.random() < 0.1:
                vpn &= 0xFF
            tb.ask((tb.random.randrange(8), vpn))
        # In the worst case one after another, with five reads each.
        counts += tb.check(await tb.rest(limit=400 * 5 * 70))
        await tb.step({"scope": ALL})


@cocotb.test(**LIMIT)
async def kinds(dut):
    """Pages of KIND 0 and 6 are ordinary memory; all others fault (HOST-17)."""
    tb = await WalkerTestbench(dut).start()
    page = chain(tb, 1, 0, root=0x100000, pte=0)[4]
    for kind in range(256):
        tb.words[page] = leaf(0x7000, kind=kind)
        tb.ask((1, 0))
        found = (PAGE,) if kind in (0, 6) else ((FAULT, FaultType.UNSUPPORTED_KIND),)
        assert tuple(tb.check(await tb.rest())) == found, kind


@cocotb.test(**LIMIT)
async def largest_pages(dut):
    """A PTE in PD1 maps 512 MiB (HOST-17). The first walk reads three entries; later walks, of any
    piece, read none and take 7 cycles, until the region is invalidated. Other spaces and regions do
    not see the page."""
    tb = await WalkerTestbench(dut).start()
    va = 0x1_2345 << 29
    directory_1 = chain(tb, 1, va, root=0x100000, pte=0)[2]
    chain(tb, 2, va, root=0x200000, pte=leaf(0x7000))
    tb.words[directory_1] = leaf(3 * WHOLE | 0x1234_5000, read_only=1, privileged=1)
    first = va >> 12
    tb.ask((1, first | 0x1_2345))
    await tb.rest()
    assert len(tb.reads) == 3
    inside = [0, 0x1FF, 0x200, 0x1_FFFF, *(tb.random.getrandbits(17) for _ in range(20))]
    for number in inside:
        tb.reads.clear()
        tb.ask((1, first | number))
        ((tag, (end, result)),) = (await tb.rest()).items()
        assert tb.given(first | number, result) == (PAGE, 2, 3 * WHOLE + (number << 12), 1, 1, 0)
        assert not tb.reads
        assert end - tb.asked_at[tag] == 7
    tb.ask((2, first), (1, first ^ 0x2_0000), (1, first | 7))
    assert tb.check(await tb.rest()) == {PAGE: 2, (FAULT, FaultType.PDE): 1}
    for scope, vpn in ((ONE, first | 0x1_0000), (ASID, 0), (ALL, 0)):
        tb.reads.clear()
        await tb.step({"scope": scope, "asid": 1, "vpn": vpn})
        tb.ask((1, first | 0x1_2345))
        assert tb.check(await tb.rest()) == {PAGE: 1}
        assert len(tb.reads) == 3, scope


@cocotb.test(**LIMIT)
async def refused_largest_pages(dut):
    """A page of 512 MiB outside memory, of another kind or in another aperture faults. If only a
    part of the page lies within memory or the space's limit, the 2 MiB pieces inside can be used,
    also from the walk cache."""
    tb = await WalkerTestbench(dut).start()
    page = chain(tb, 1, 0, root=0x100000, pte=0)[2]
    last = MEMORY - 1 & -WHOLE
    pieces = (MEMORY - last) // SIZES[2]
    cases = [
        (leaf(last + WHOLE), {FaultType.REGION}, {FaultType.REGION}),
        (leaf(last), {None}, {FaultType.REGION}),
        *(
            (
                leaf(0, aperture=n),
                {FaultType.UNSUPPORTED_APERTURE},
                {FaultType.UNSUPPORTED_APERTURE},
            )
            for n in (1, 2, 3)
        ),
        *(
            (leaf(0, kind=n), {None} if n in ORDINARY else {FaultType.UNSUPPORTED_KIND}, None)
            for n in (0, 1, 5, 6, 7, 0xFE, 255)
        ),
        (8, {"sparse"}, {"sparse"}),
        (leaf(0) - 1, {FaultType.PDE}, {FaultType.PDE}),
    ]
    for entry, within, beyond in cases:
        tb.words[page] = entry
        await tb.step({"scope": ALL})
        for vpn in (0, pieces * 512 - 1, pieces * 512, 0x1_FFFF, 5):
            tb.ask((1, vpn))
            ((_, (_, end)),) = (await tb.rest()).items()
            assert tb.given(vpn, end) == tb.expected(1, vpn), (hex(entry), hex(vpn))
            fault = {PAGE: None, FAULT: end["fault"], SPARSE: "sparse"}[end["outcome"]]
            wanted = within if vpn < pieces * 512 or beyond is None else beyond
            assert {fault} == wanted, (hex(entry), hex(vpn), fault)
    tb.words[page] = leaf(0)
    tb.spaces[1] = tb.spaces[1][0], 3 * 512 + 7
    await tb.step({"scope": ALL})
    for vpn, outcome in ((0, PAGE), (3 * 512 - 1, PAGE), (3 * 512, FAULT), (3 * 512 + 8, FAULT)):
        tb.ask((1, vpn))
        ((_, (_, end)),) = (await tb.rest()).items()
        assert end["outcome"] is outcome, hex(vpn)
        assert outcome is PAGE or end["fault"] == FaultType.VA_LIMIT


@cocotb.test(**LIMIT)
async def walks_in_flight(dut):
    """As many reads are in flight as there are walks; entries shared by walks are read once."""
    tb = await WalkerTestbench(dut).start()
    random_tables(tb, 0.0)
    tb.spaces = {0: (0, (1 << 37) - 1)}
    tb.latency = (200, 200)
    # All walks share PD3 and PD2; below, each has its own region.
    tb.ask(*((0, n << 17) for n in range(WALKS)))
    tb.check(await tb.rest())
    assert tb.most >= WALKS
    addresses = Counter(address for _, address in tb.reads[: 2 + WALKS])
    assert max(addresses.values()) == 1


@cocotb.test(**LIMIT)
async def late_comers_join(dut):
    """A walk for the same page, of any size, that begins in any cycle of another walk needs no
    further reads (ASID-4)."""
    tb = await WalkerTestbench(dut).start()
    tb.latency = (20, 20)
    at = chain(tb, 1, 0, root=0x100000, pte=leaf(0x7000))
    big, small = 0x120000, 0x110000
    tb.words[big] = leaf(0x30000)
    entries = (
        (dual(None, small), 5, 0),
        (dual(big, small), 5, 0xF),
        ((leaf(0x20_0000), 0), 4, 0x1FF),
    )
    for entry, needed, inside in entries:
        tb.store_dual(at[3], entry)
        for gap in range(22 * needed):
            await tb.step({"scope": ALL})
            tb.reads.clear()
            tb.ask((1, 0))
            await tb.steps(gap)
            tb.ask((1, tb.random.getrandbits(9) & inside))
            assert tb.check(await tb.rest()) == {PAGE: 2}
            assert len(tb.reads) == needed, gap


@cocotb.test(**LIMIT)
async def pages_are_walked_once(dut):
    """As many walks as can be in progress, of one page or one large page, read each entry once."""
    tb = await WalkerTestbench(dut).start()
    at = chain(tb, 1, 0, root=0x100000, pte=leaf(0x7000))
    cases = ((dual(None, 0x110000), 5, 0), ((leaf(0x200000), 0), 4, 7), (None, 3, 0x1007))
    for entry, expected, apart in cases:
        if entry is None:
            tb.words[at[2]] = leaf(WHOLE)
        else:
            tb.store_dual(at[3], entry)
        await tb.step({"scope": ALL})
        tb.reads.clear()
        tb.latency = (30, 30)
        tb.ask(*((1, n * apart) for n in range(WALKS)))
        assert tb.check(await tb.rest()) == {PAGE: WALKS}
        assert len(tb.reads) == expected


@cocotb.test(**LIMIT)
async def faults_are_not_shared(dut):
    """A walk that followed a faulting walk reads the entry itself: the page may have been mapped
    meanwhile."""
    tb = await WalkerTestbench(dut).start()
    at = chain(tb, 1, 0, root=0x100000, pte=0)
    tb.latency = (40, 40)
    tb.ask((1, 0), (1, 0))
    await tb.accepted(5)
    tb.words[at[4]] = leaf(0x9000)  # its read has returned the old entry
    done = await tb.rest()
    outcomes = [tb.given(0, end)[0] for _, end in done.values()]
    assert Counter(outcomes) == {PAGE: 1, FAULT: 1}


@cocotb.test(**LIMIT)
async def faults_hold_up_nobody(dut):
    """Walks of an empty directory follow each other in vain while new ones arrive: each waits only
    for one read of another walk and for its own read."""
    tb = await WalkerTestbench(dut).start()
    tb.spaces[1] = 0x100000, (1 << 37) - 1
    for latency in range(3, 15):
        tb.latency = (latency, latency)
        tb.ask(*((1, tb.random.getrandbits(9)) for _ in range(30 * WALKS)))
        done = await tb.rest()
        waited = max(now - tb.asked_at[tag] for tag, (now, _) in done.items())
        assert waited <= 2 * latency + 5 * WALKS + 30, (latency, waited)


@cocotb.test(**LIMIT)
async def empty_tables_hold_up_nobody(dut):
    """Walks of a region with tables that map nothing, or only sparse pages, follow each other down
    while new ones arrive, and end within a bound: a walk that relied on another for the absence of
    a larger page restarts once, and none is sent back."""
    tb = await WalkerTestbench(dut).start()
    big, small = 0x120000, 0x110000
    cases = (
        (dual(None, small), 0, FAULT),
        (dual(big, None), 0, FAULT),
        (dual(big, small), 8, SPARSE),
    )
    for (entry, pte, outcome), latency in itertools.product(cases, range(3, 15)):
        tb.words.clear()
        tb.drawn = lambda address, pte=pte: pte if small <= address < small + 0x1000 else 0
        at = chain(tb, 1, 0, root=0x100000, pte=pte)
        tb.store_dual(at[3], entry)
        tb.latency = (latency, latency)
        await tb.step({"scope": ALL})
        tb.ask(*((1, tb.random.getrandbits(9)) for _ in range(15 * WALKS)))
        done = await tb.rest()
        assert {end["outcome"] for _, end in done.values()} == {outcome}
        waited = max(now - tb.asked_at[tag] for tag, (now, _) in done.items())
        assert waited <= 12 * latency + 20 * WALKS + 30, (latency, waited)


@cocotb.test(**LIMIT)
async def larger_pages_mapped_meanwhile(dut):
    """A page of 64 KiB is mapped while a walk reads PD0, or the page's missing entry. A later
    request finds the page, even if it follows that read: a new page needs no invalidation."""
    tb = await WalkerTestbench(dut).start()
    tb.latency = (40, 40)
    big, small = 0x120000, 0x110000
    for has_table, wait in itertools.product((False, True), range(45)):
        at = chain(tb, 1, 0, root=0x100000, pte=leaf(0x5000))
        tb.words[big] = 0
        tb.store_dual(at[3], dual(big if has_table else None, small))
        await tb.step({"scope": ALL})
        tb.reads.clear()
        tb.ask((1, 0))
        await tb.accepted(4 + has_table)
        tb.words[big] = leaf(0x30000)
        tb.store_dual(at[3], dual(big, small))
        await tb.steps(wait)
        tb.ask((1, 5))
        given = {tb.asked[tag]: end for tag, (_, end) in (await tb.rest()).items()}
        assert tb.given(5, given[1, 5]) == tb.expected(1, 5), (has_table, wait)


@cocotb.test(**LIMIT)
async def invalidations(dut):
    """Tables change while they are walked. From the cycle after the invalidation, no result covered
    by it is from the old tables; results of other spaces are not retried."""
    tb = await WalkerTestbench(dut).start()
    tb.latency = (1, 25)
    vpn = 0x12345
    entries = {asid: chain(tb, asid, vpn << 12, root=0x100000 * (asid + 1), pte=leaf(0x1000))
               for asid in range(4)}  # fmt: skip
    retried, turns = 0, Rounds(150 if WALKS < 32 else 60)
    while turns.more(retried > 20, retried):
        turn = turns.number
        pace, eager = tb.random.choice(((1.0, 1.0), (0.5, 0.3)))
        tb.read.pace, tb.result.pace = tb.share(pace), tb.share(eager)
        for _ in range(12):
            tb.ask((tb.random.randrange(4), vpn ^ tb.random.choice((0, 0, 1))))
        await tb.steps(tb.random.randrange(60))
        asid, scope = tb.random.randrange(4), tb.random.choice((ALL, ASID, ONE))
        # The page moves, by its entry or by other tables.
        if scope is ONE or tb.random.getrandbits(1):
            tb.words[entries[asid][4]] = leaf((turn + 2) << 12)
        else:
            root = 0x1000000 + 0x20000 * (turn + 1)
            entries[asid] = chain(tb, asid, vpn << 12, root=root, pte=leaf((turn + 2) << 12))
            await tb.step()
        before = set(tb.done)
        event = tb.cycle
        await tb.step({"scope": scope, "asid": asid, "vpn": vpn})
        done = await tb.rest()
        for tag, (when, end) in done.items():
            if tag in before:
                continue
            whose, page = tb.asked[tag]
            given = tb.given(page, end)
            covered = scope is ALL or whose == asid
            if given[0] is RETRY:
                assert covered
                assert tb.asked_at[tag] <= event
                retried += 1
            elif when > event or not covered:
                assert given == tb.expected(whose, page), (turn, tag, given)


@cocotb.test(**LIMIT)
async def any_address_of_a_page(dut):
    """A page of any size is mapped or replaced in any cycle of a walk, even while its result is not
    taken, and another of its addresses is invalidated: from the next cycle on, every result is the
    new page, or RETRY for a walk that began before (ASID-9). Only if a page of 512 MiB was missing,
    such a walk may still fault."""
    tb = await WalkerTestbench(dut).start()
    vpn, big, small = 0x4_0000, 0x120000, 0x110000
    first, second = WHOLE, 2 * WHOLE
    for size, mapped, held in itertools.product(range(4), (False, True), (False, True)):
        inside, retried = ((*SIZES, WHOLE)[size] >> 12) - 1, 0
        for offset in range(70):
            at = chain(tb, 1, vpn << 12, root=0x100000, pte=0)
            tb.words[big] = 0
            tb.store_dual(at[3], (0, 0) if size == 2 else dual(big, small))
            place = (at[4], big, at[3], at[2])[size]
            tb.words[place] = leaf(first) if mapped else 0
            looked = vpn | tb.random.getrandbits(17) & inside
            if mapped and offset % 2:
                # The walk cache may know it.
                tb.ask((1, looked ^ inside))
                await tb.rest()
            tb.result.pace = lambda held=held: not held
            tb.ask((1, looked))
            await tb.steps(offset)
            tb.words[place] = leaf(second)
            event = tb.cycle
            await tb.step({"scope": ONE, "asid": 1, "vpn": looked ^ inside})
            tb.result.pace = lambda: True
            tb.ask((1, looked))
            for tag, (when, end) in (await tb.rest()).items():
                given, retry = tb.given(looked, end), end["outcome"] is RETRY
                assert not retry or tb.asked_at[tag] <= event
                faults = size == 3 and not mapped and tb.asked_at[tag] <= event
                faults &= given == (FAULT, FaultType.PDE)
                if when > event and not retry and not faults:
                    assert given == tb.expected(1, looked), (size, mapped, held, offset, given)
                retried += retry
            await tb.step({"scope": ALL})
        assert retried, (size, mapped, held)


@cocotb.test(**LIMIT)
async def bind_in_every_cycle(dut):
    """If a space gets other tables in any cycle of a walk, while other walks begin, no later walk
    uses the former tables (ASID-8; page 20, example 4)."""
    tb = await WalkerTestbench(dut).start()
    tb.latency = (9, 9)
    vpn = 0x5_4321
    roots = itertools.count(0x100000, 0x20000)
    chain(tb, 3, vpn << 12, root=next(roots), pte=leaf(0x1000))
    for scope, offset in itertools.product((ASID, ALL), range(70)):
        await tb.step({"scope": ALL})
        tb.ask(*[(3, vpn)] * 2)
        for cycle in range(offset):
            if cycle % 5 == 4:
                tb.ask((3, vpn))
            await tb.step()
        chain(tb, 3, vpn << 12, root=next(roots), pte=leaf((offset + 2) << 12))
        tb.ask((3, vpn))
        await tb.step()
        event = tb.cycle
        tb.ask(*[(3, vpn)] * 3)
        await tb.step({"scope": scope, "asid": 3})
        await tb.rest()
        tb.ask((3, vpn))
        await tb.rest()
        for tag, (when, end) in tb.results.items():
            given = tb.given(vpn, end)
            if given[0] is RETRY:
                assert tb.asked_at[tag] < event
            elif when > event:
                assert given == tb.expected(3, vpn), (scope, offset, tag)
        tb.results.clear()
