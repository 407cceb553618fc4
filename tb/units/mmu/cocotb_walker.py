"""The page walker alone: every result agrees with the tables, with few reads (ASID-2, -4, -7, -8).

Memory is modelled in Python. Its tables are random words, generated on first access, most of which
point to other tables. The reference walk is `tb.models.pagetables`.
"""

import itertools
import os
from collections import Counter
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.mmu.walker import Walker
from signalbox.tb.models.pagetables import Fault, Sparse, Translation, walk
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

WIDTH, WALKS = int(os.environ.get("WIDTH", "128")), int(os.environ.get("WALKS", "32"))
CONFIG = Config(asids=8, data_width=WIDTH, walks=WALKS, walk_cache=4)
TAG = 10

PAGE, FAULT, SPARSE, RETRY = range(4)
ALL, ASID, ONE = range(3)
UNBOUND, VA_LIMIT = 4, 3
OK, BUS, OUTSIDE = range(3)
SIZES = (1 << 12, 1 << 16, 1 << 21)
LEVELS = (47, 38, 29, 21, 12)
TABLES = 64


def directory(at: int) -> int:
    """A PDE for the table at `at`."""
    return 1 << 1 | at >> 12 << 8


def dual(big: int | None, small: int | None) -> tuple[int, int]:
    """Both halves of an entry of PD0."""
    return (
        0 if big is None else 1 << 1 | big >> 8 << 4,
        0 if small is None else 1 << 1 | small >> 12 << 8,
    )


def leaf(pa: int, **bits: int) -> int:
    """A PTE."""
    shifts = {"privileged": 5, "read_only": 6, "no_atomics": 7, "kind": 56, "aperture": 1}
    return 1 | pa >> 12 << 8 | sum(value << shifts[name] for name, value in bits.items())


class Bench:
    """Testbench that drives the unit cycle by cycle and models memory and ASID table.

    Members
    -------
    words : memory, by address of 8 bytes.
    drawn : generates missing words.
    spaces : page directory base and last page per ASID; missing ones are unbound.
    latency : range of a read's latency.
    pace, eager : fractions of cycles in which reads are accepted, and results.
    asked : (asid, page number) by tag.
    done : results by tag, with their cycles, since the last `rest`.
    results : all results.
    reads : (cycle, address) of all reads.
    most : maximum number of reads in flight.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut, self.numbers = dut, Random(seed)
        walker = Walker(CONFIG, TAG)
        members = walker.signature.members
        self.shapes = {
            "request": members["request"].signature.members["payload"].shape,
            "result": members["result"].signature.members["payload"].shape,
            "row": members["row"].shape,
            "invalidate": members["invalidate"].shape,
            "beat": members["read"].signature.members["beat"].signature.members["payload"].shape,
            "ask": members["read"].signature.members["request"].signature.members["payload"].shape,
        }
        self.words: dict[int, int | None] = {}
        self.drawn = lambda _address: 0
        self.spaces: dict[int, tuple[int, int]] = {}
        self.latency, self.pace, self.eager = (5, 5), 1.0, 1.0
        self.now, self.most, self.tags = 0, 0, itertools.count()
        self.todo: list[tuple[int, int]] = []
        self.offered: tuple[int, tuple[int, int]] | None = None
        self.asked: dict[int, tuple[int, int]] = {}
        self.asked_at: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.done: dict[int, tuple[int, Any]] = {}
        self.results: dict[int, tuple[int, Any]] = {}
        self.reads: list[tuple[int, int]] = []
        self.beats: list[tuple[int, int, bool]] = []
        self.row = 0
        self.came: list[int] = []

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut, int(os.environ["COCOTB_RANDOM_SEED"]))
        for name in ("request__valid", "result__ready", "invalidate", "row"):
            getattr(dut, name).value = 0
        dut.read__request__ready.value = 0
        dut.read__beat__valid.value = 0
        await reset(dut)
        return bench

    # Memory

    def load(self, address: int) -> int | None:
        if address not in self.words:
            self.words[address] = self.drawn(address)
        return self.words[address]

    def store_dual(self, address: int, halves: tuple[int, int]) -> None:
        self.words[address], self.words[address + 8] = halves

    def _ready(self, address: int, beats: int) -> None:
        """Queue the beats of a read, each with the earliest cycle of its return."""
        when = self.now + self.numbers.randint(*self.latency)
        if address + beats * WIDTH // 8 > CONFIG.memory_bytes:
            self.beats.append((when, self._beat(0, OUTSIDE, last=True), True))
            return
        for beat in range(beats):
            base = (address & -(WIDTH // 8)) + beat * WIDTH // 8
            words = [self.load(base + 8 * i) for i in range(WIDTH // 64)]
            data = sum((word or 0) << 64 * i for i, word in enumerate(words))
            # Only the requested words have to be readable.
            first = (address - base) // 8 if beats == 1 else 0
            wanted = words[first : first + (2 if self._dual else 1)]
            status = BUS if None in wanted else OK
            last = beat == beats - 1
            self.beats.append((when, self._beat(data, status, last=last), last))

    def _beat(self, data: int, status: int, *, last: bool) -> int:
        values = {"data": data, "status": status, "last": int(last)}
        return self.shapes["beat"].const(values).as_bits()

    # Cycles

    async def step(self, invalidate: dict[str, int] | None = None) -> None:
        dut = self.dut
        if self.offered is None and self.todo:
            self.offered = next(self.tags) % (1 << TAG), self.todo.pop(0)
        dut.request__valid.value = int(self.offered is not None)
        if self.offered is not None:
            tag, (asid, vpn) = self.offered
            word = self.shapes["request"].const({"tag": tag, "asid": asid, "vpn": vpn})
            dut.request__payload.value = word.as_bits()
        dut.row.value = self.row
        due = self.beats and self.beats[0][0] <= self.now
        dut.read__beat__valid.value = int(bool(due))
        if due:
            dut.read__beat__payload.value = self.beats[0][1]
        dut.read__request__ready.value = int(self.numbers.random() < self.pace)
        dut.result__ready.value = int(self.numbers.random() < self.eager)
        event = self.shapes["invalidate"].const({"valid": 1, **invalidate}) if invalidate else None
        dut.invalidate.value = event.as_bits() if event is not None else 0
        await ReadOnly()
        self._sample(bool(due))
        await RisingEdge(dut.clk)
        self.now += 1

    def _row(self, asid: int) -> int:
        if asid not in self.spaces:
            return 0
        base, last = self.spaces[asid]
        return self.shapes["row"].const({"bound": 1, "base": base >> 12, "last": last}).as_bits()

    def _sample(self, due: bool) -> None:
        dut = self.dut
        if due:
            assert dut.read__beat__ready.value == 1
            self.beats.pop(0)
            self.came.append(self.now)
        if dut.look.value == 1:
            self.row = self._row(dut.asid.value.to_unsigned())
        if self.offered and dut.request__ready.value == 1:
            tag, self.asked[tag] = self.offered[0], self.offered[1]
            assert tag not in self.waiting
            self.asked_at[tag] = self.now
            self.waiting.add(tag)
            self.offered = None
        if dut.read__request__valid.value == 1 and dut.read__request__ready.value == 1:
            ask = self.shapes["ask"].from_bits(dut.read__request__payload.value.to_unsigned())
            assert ask.physical == 1
            beats = ask.beats + 1
            self._dual = ask.va % 16 == 0 and self._is_dual(ask.va)
            self.reads.append((self.now, ask.va))
            self._ready(ask.va, beats)
            self.most = max(self.most, sum(last for *_, last in self.beats))
        if dut.result__valid.value == 1 and dut.result__ready.value == 1:
            result = self.shapes["result"].from_bits(dut.result__payload.value.to_unsigned())
            self.waiting.remove(result.tag)
            self.done[result.tag] = self.results[result.tag] = self.now, result.end

    def _is_dual(self, address: int) -> bool:
        """Whether an address is in the part of memory with tables of PD0."""
        return address >> 12 & 7 == 3

    async def rest(self, limit: int = 20_000) -> dict[int, tuple[int, Any]]:
        """Step until everything is answered. Returns the results since the last call."""
        end = self.now + limit
        while self.todo or self.offered or self.waiting:
            assert self.now < end, f"no result: {self.waiting}"
            await self.step()
        done, self.done = self.done, {}
        return done

    # Expected results

    def expected(self, asid: int, vpn: int) -> tuple:
        """Expected outcome, with the fault or page."""
        if asid not in self.spaces:
            return FAULT, UNBOUND
        base, last = self.spaces[asid]
        if vpn > last:
            return FAULT, VA_LIMIT
        found = walk(self.load, CONFIG.memory_bytes, base, vpn << 12)
        if isinstance(found, Sparse):
            return (SPARSE,)
        if isinstance(found, Fault):
            return FAULT, found.code
        assert isinstance(found, Translation)
        if vpn << 12 | found.page_bytes - 1 > last << 12 | 0xFFF:
            return FAULT, VA_LIMIT
        bits = (found.read_only, found.privileged, found.atomic_disable)
        return PAGE, SIZES.index(found.page_bytes), found.pa, *map(int, bits)

    def given(self, vpn: int, end: Any) -> tuple:
        """The same for a result."""
        outcome = end.outcome.value
        if outcome == PAGE:
            page = end.page
            inside = SIZES[page.size.value] - 1
            pa = (page.ppn << 12) & ~inside | (vpn << 12) & inside
            return PAGE, page.size.value, pa, page.read_only, page.privileged, page.no_atomics
        return (outcome, int(end.fault)) if outcome == FAULT else (outcome,)

    def check(self, done: dict[int, tuple[int, Any]]) -> Counter:
        """Check that all results are correct. Returns the number of each outcome."""
        counts: Counter = Counter()
        for tag, (_, end) in done.items():
            asid, vpn = self.asked[tag]
            given, expected = self.given(vpn, end), self.expected(asid, vpn)
            assert given == expected, (asid, hex(vpn), given, expected)
            counts[given[:2] if given[0] == FAULT else given[0]] += 1
        return counts


def random_tables(bench: Bench, wrong: float) -> None:
    """Tables of random entries: most of them point to other tables; a fraction `wrong` of all words
    is arbitrary, or cannot be read."""
    numbers = bench.numbers

    def table(kind: int) -> int:
        return (numbers.randrange(TABLES) << 3 | kind) << 12

    def draw(address: int) -> int | None:
        kind, share = address >> 12 & 7, numbers.random()
        if numbers.random() < wrong:
            words = (None, numbers.getrandbits(64), numbers.getrandbits(8), 0, 8)
            # In wide memory, both halves of a large entry are readable, or neither is.
            word = numbers.choice(words[1:] if WIDTH > 64 and address & 8 else words)
            if WIDTH > 64 and word is None:
                bench.words[address | 8] = None
            return word
        if kind < 3:
            return directory(table(kind + 1))
        if kind == 3 and address & 8:
            return dual(None, table(4))[1] if share < 0.9 else 0
        if kind == 3 and share < 0.3:
            return leaf(table(0), read_only=numbers.getrandbits(1))
        if kind == 3:
            return dual(table(4), None)[0] if share < 0.7 else 0
        bits = {name: numbers.getrandbits(1) for name in ("privileged", "read_only")}
        return leaf(numbers.getrandbits(12) << 12, **bits) if share < 0.7 else 0

    bench.drawn = draw


def chain(bench: Bench, asid: int, va: int, *, root: int, pte: int) -> list[int]:
    """Tables that map one page of 4 KiB of `asid`. Returns the addresses of the entries."""
    tables = [root, root + 0x4000, root + 0x8000, root + 0xB000, root + 0x10000]
    at = [tables[n] + 8 * (va >> LEVELS[n] & (3, 511, 511)[n]) for n in range(3)]
    at.append(tables[3] + 16 * (va >> 21 & 255))
    at.append(tables[4] + 8 * (va >> 12 & 511))
    for n in range(3):
        bench.words[at[n]] = directory(tables[n + 1])
    bench.store_dual(at[3], dual(None, tables[4]))
    bench.words[at[4]] = pte
    bench.spaces[asid] = root, (1 << 37) - 1
    return at


@cocotb.test(**LIMIT)
async def fixed_cost(dut):
    """A single walk takes 5 cycles from request to first read, 2 from an entry to the next read,
    and 6 to the result. Another walk in the region of the same PD0 reads only that and the page
    table."""
    bench = await Bench.start(dut)
    va = 0x1_2345_6789_A000
    at = chain(bench, 2, va, root=0x100000, pte=leaf(0x5000, privileged=1))
    bench.todo.append((2, va >> 12))
    done = await bench.rest()
    assert bench.check(done) == {PAGE: 1}
    assert [address for _, address in bench.reads] == at
    (tag, (end, _)), *_ = done.items()
    offers = [cycle for cycle, _ in bench.reads]
    assert offers[0] - bench.asked_at[tag] == 5
    lasts = bench.came if WIDTH > 64 else [*bench.came[:3], *bench.came[4:]]
    assert [b - a for a, b in zip(lasts, offers[1:], strict=False)] == [2] * 4
    assert end - lasts[-1] == 6

    bench.reads.clear()
    bench.words[at[4] ^ 8] = leaf(0x6000)
    bench.todo += [(2, va >> 12), (2, va >> 12 ^ 1)]
    assert bench.check(await bench.rest()) == {PAGE: 2}
    assert [address for _, address in bench.reads][:2] == at[3:]
    assert len(bench.reads) <= 3


@cocotb.test(**LIMIT)
async def any_tables(dut):
    """With random tables, partly nonsense, several spaces, and slow and fast memory, every request
    has one result, equal to the reference."""
    bench = await Bench.start(dut)
    counts: Counter = Counter()
    settings = (
        (0.0, (1, 1), 1.0, 1.0),
        (0.1, (1, 60), 0.5, 0.7),
        (0.3, (20, 20), 1.0, 0.2),
    )
    rounds = Rounds(len(settings))
    while rounds.more(counts[PAGE] > 100 and len(counts) > 6, counts):
        wrong, latency, pace, eager = settings[rounds.number % len(settings)]
        bench.words.clear()
        random_tables(bench, wrong)
        bench.spaces = {
            asid: (bench.numbers.randrange(4) << 15, bench.numbers.choice((-1, 99)) % (1 << 37))
            for asid in range(6)
        }
        bench.latency, bench.pace, bench.eager = latency, pace, eager
        regions = [bench.numbers.getrandbits(37) for _ in range(8)]
        for _ in range(400):
            flips = bench.numbers.choice((0, 1, 0xF, 0x1FF, 0x1FFFF))
            vpn = bench.numbers.choice(regions) ^ bench.numbers.getrandbits(37) & flips
            if bench.numbers.random() < 0.1:
                vpn &= 0xFF
            bench.todo.append((bench.numbers.randrange(8), vpn))
        # In the worst case one after another, with five reads each.
        counts += bench.check(await bench.rest(limit=400 * 5 * 70))
        await bench.step({"scope": ALL})


@cocotb.test(**LIMIT)
async def walks_in_flight(dut):
    """As many reads are in flight as there are walks; each entry is read once for all."""
    bench = await Bench.start(dut)
    random_tables(bench, 0.0)
    bench.spaces = {0: (0, (1 << 37) - 1)}
    bench.latency = (200, 200)
    # All share PD3 and PD2; after that each has its own region.
    bench.todo = [(0, n << 17) for n in range(WALKS)]
    bench.check(await bench.rest())
    assert bench.most >= WALKS
    addresses = Counter(address for _, address in bench.reads[: 2 + WALKS])
    assert max(addresses.values()) == 1


@cocotb.test(**LIMIT)
async def late_comers_join(dut):
    """A walk for the same page, of any size, in any cycle of another walk, needs no further reads
    (ASID-4)."""
    bench = await Bench.start(dut)
    bench.latency = (20, 20)
    at = chain(bench, 1, 0, root=0x100000, pte=leaf(0x7000))
    big, small = 0x120000, 0x110000
    bench.words[big] = leaf(0x30000)
    entries = (
        (dual(None, small), 5, 0),
        (dual(big, small), 5, 0xF),
        ((leaf(0x20_0000), 0), 4, 0x1FF),
    )
    for entry, needed, inside in entries:
        bench.store_dual(at[3], entry)
        for gap in range(22 * needed):
            await bench.step({"scope": ALL})
            bench.reads.clear()
            bench.todo.append((1, 0))
            for _ in range(gap):
                await bench.step()
            bench.todo.append((1, bench.numbers.getrandbits(9) & inside))
            assert bench.check(await bench.rest()) == {PAGE: 2}
            assert len(bench.reads) == needed, gap


@cocotb.test(**LIMIT)
async def pages_are_walked_once(dut):
    """Continuous walks of one page, or of one large page, read each entry once."""
    bench = await Bench.start(dut)
    at = chain(bench, 1, 0, root=0x100000, pte=leaf(0x7000))
    for entry, expected in ((dual(None, 0x110000), 5), ((leaf(0x200000), 0), 4)):
        bench.store_dual(at[3], entry)
        await bench.step({"scope": ALL})
        bench.reads.clear()
        bench.latency = (30, 30)
        bench.todo = [(1, 0 if expected == 5 else n * 7) for n in range(WALKS)]
        assert bench.check(await bench.rest()) == {PAGE: WALKS}
        assert len(bench.reads) == expected


@cocotb.test(**LIMIT)
async def faults_are_not_shared(dut):
    """A walk that followed one that faults reads the entry itself: the page may have been mapped
    meanwhile."""
    bench = await Bench.start(dut)
    at = chain(bench, 1, 0, root=0x100000, pte=0)
    bench.latency = (40, 40)
    bench.todo = [(1, 0), (1, 0)]
    while len(bench.reads) < 5:
        await bench.step()
    bench.words[at[4]] = leaf(0x9000)  # its read has returned the old entry
    done = await bench.rest()
    outcomes = [bench.given(0, end)[0] for _, end in done.values()]
    assert sorted(outcomes) == [PAGE, FAULT]


@cocotb.test(**LIMIT)
async def faults_hold_up_nobody(dut):
    """Walks of an empty directory follow each other in vain while new ones arrive: each waits for
    one read of another walk and for its own."""
    bench = await Bench.start(dut)
    bench.spaces[1] = 0x100000, (1 << 37) - 1
    for latency in range(3, 15):
        bench.latency = (latency, latency)
        bench.todo = [(1, bench.numbers.getrandbits(9)) for _ in range(30 * WALKS)]
        done = await bench.rest()
        waited = max(now - bench.asked_at[tag] for tag, (now, _) in done.items())
        assert waited <= 2 * latency + 5 * WALKS + 30, (latency, waited)


@cocotb.test(**LIMIT)
async def empty_tables_hold_up_nobody(dut):
    """Walks of a region whose tables exist and map nothing, or only sparse pages, follow each other
    down while new ones arrive: a walk that relied on another for the absence of a larger page
    restarts once, and none is sent back."""
    bench = await Bench.start(dut)
    big, small = 0x120000, 0x110000
    cases = (
        (dual(None, small), 0, FAULT),
        (dual(big, None), 0, FAULT),
        (dual(big, small), 8, SPARSE),
    )
    for (entry, pte, outcome), latency in itertools.product(cases, range(3, 15)):
        bench.words.clear()
        bench.drawn = lambda address, pte=pte: pte if small <= address < small + 0x1000 else 0
        at = chain(bench, 1, 0, root=0x100000, pte=pte)
        bench.store_dual(at[3], entry)
        bench.latency = (latency, latency)
        await bench.step({"scope": ALL})
        bench.todo = [(1, bench.numbers.getrandbits(9)) for _ in range(15 * WALKS)]
        done = await bench.rest()
        assert {end.outcome.value for _, end in done.values()} == {outcome}
        waited = max(now - bench.asked_at[tag] for tag, (now, _) in done.items())
        assert waited <= 12 * latency + 20 * WALKS + 30, (latency, waited)


@cocotb.test(**LIMIT)
async def larger_pages_mapped_meanwhile(dut):
    """A page of 64 KiB is mapped while another walk reads PD0, or the page's missing entry. A later
    request does not fault, even if it follows that read: a new page needs no invalidation."""
    bench = await Bench.start(dut)
    bench.latency = (40, 40)
    big, small = 0x120000, 0x110000
    for has_table, wait in itertools.product((False, True), range(45)):
        at = chain(bench, 1, 0, root=0x100000, pte=leaf(0x5000))
        bench.words[big] = 0
        bench.store_dual(at[3], dual(big if has_table else None, small))
        await bench.step({"scope": ALL})
        bench.reads.clear()
        bench.todo.append((1, 0))
        while len(bench.reads) < 4 + has_table:
            await bench.step()
        bench.words[big] = leaf(0x30000)
        bench.store_dual(at[3], dual(big, small))
        for _ in range(wait):
            await bench.step()
        bench.todo.append((1, 5))
        given = {bench.asked[tag]: end for tag, (_, end) in (await bench.rest()).items()}
        assert bench.given(5, given[1, 5]) == bench.expected(1, 5), (has_table, wait)


@cocotb.test(**LIMIT)
async def invalidations(dut):
    """Tables change while they are walked. From the cycle after the invalidation, no result that it
    covers is from the old tables; spaces that it does not cover lose none."""
    bench = await Bench.start(dut)
    bench.latency = (1, 25)
    vpn = 0x12345
    entries = {asid: chain(bench, asid, vpn << 12, root=0x100000 * (asid + 1), pte=leaf(0x1000))
               for asid in range(4)}  # fmt: skip
    retried, turns = 0, Rounds(150 if WALKS < 32 else 60)
    while turns.more(retried > 20, retried):
        turn = turns.number
        bench.pace, bench.eager = bench.numbers.choice(((1.0, 1.0), (0.5, 0.3)))
        for _ in range(12):
            bench.todo.append((bench.numbers.randrange(4), vpn ^ bench.numbers.choice((0, 0, 1))))
        for _ in range(bench.numbers.randrange(60)):
            await bench.step()
        asid, scope = bench.numbers.randrange(4), bench.numbers.randrange(3)
        # The page moves, by its entry or by other tables.
        if scope == ONE or bench.numbers.getrandbits(1):
            bench.words[entries[asid][4]] = leaf((turn + 2) << 12)
        else:
            root = 0x1000000 + 0x20000 * (turn + 1)
            entries[asid] = chain(bench, asid, vpn << 12, root=root, pte=leaf((turn + 2) << 12))
            await bench.step()
        before = set(bench.done)
        event = bench.now
        await bench.step({"scope": scope, "asid": asid, "vpn": vpn})
        done = await bench.rest()
        for tag, (when, end) in done.items():
            if tag in before:
                continue
            whose, page = bench.asked[tag]
            given = bench.given(page, end)
            covered = scope == ALL or whose == asid
            if given[0] == RETRY:
                assert covered
                assert bench.asked_at[tag] <= event
                retried += 1
            elif when > event or not covered:
                assert given == bench.expected(whose, page), (turn, tag, given)


@cocotb.test(**LIMIT)
async def bind_in_every_cycle(dut):
    """A space gets other tables in any cycle of a walk, while other walks begin: no walk that
    begins afterwards uses the former tables (ASID-8; page 20, example 4)."""
    bench = await Bench.start(dut)
    bench.latency = (9, 9)
    vpn = 0x5_4321
    roots = itertools.count(0x100000, 0x20000)
    chain(bench, 3, vpn << 12, root=next(roots), pte=leaf(0x1000))
    for scope, offset in itertools.product((ASID, ALL), range(70)):
        await bench.step({"scope": ALL})
        bench.todo += [(3, vpn)] * 2
        for cycle in range(offset):
            if cycle % 5 == 4:
                bench.todo.append((3, vpn))
            await bench.step()
        chain(bench, 3, vpn << 12, root=next(roots), pte=leaf((offset + 2) << 12))
        bench.todo.append((3, vpn))
        await bench.step()
        event = bench.now
        bench.todo += [(3, vpn)] * 3
        await bench.step({"scope": scope, "asid": 3})
        await bench.rest()
        bench.todo.append((3, vpn))
        await bench.rest()
        for tag, (when, end) in bench.results.items():
            given = bench.given(vpn, end)
            if given[0] == RETRY:
                assert bench.asked_at[tag] < event
            elif when > event:
                assert given == bench.expected(3, vpn), (scope, offset, tag)
        bench.results.clear()
