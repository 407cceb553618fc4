"""Second-level TLB: every result is a current translation, one per cycle (ASID-3, -8 … -11).

Walks and page tables are modelled in Python: pages by address space, each with the last cycle in
which it may be used.
"""

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.mmu.l2_tlb import L2Tlb
from signalbox.tb.models.replacement import PseudoLru
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.mmu.patterns import patterns

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

CONFIG = Config(asids=int(os.environ.get("ASIDS", "8")))
TAG = 10
ENTRIES, WAYS = int(os.environ.get("ENTRIES", "64")), int(os.environ.get("WAYS", "4"))
SETS = ENTRIES // WAYS

PAGE, FAULT, SPARSE, RETRY = range(4)
ALL, ASID, ONE = range(3)
SMALL, BIG, HUGE = range(3)
SHIFTS = (0, 4, 9)
PERMISSIONS = ("read_only", "privileged", "no_atomics")
PTE = 2
"""FAULT_TYPE of a page that is not mapped."""


@dataclass
class Mapping:
    """A page. `bits` : read-only, privileged, no atomics. `gone` : last cycle in which it may be
    used."""

    asid: int
    vpn: int
    size: int
    ppn: int
    bits: tuple[int, int, int]
    gone: float = float("inf")

    def has(self, asid: int, vpn: int) -> bool:
        return self.asid == asid and vpn >> SHIFTS[self.size] == self.vpn >> SHIFTS[self.size]


@dataclass
class Look:
    """One look-up: cycles of its request and answer, and whether it led to a walk."""

    asid: int
    vpn: int
    taken: int = -1
    answered: int = -1
    walks: int = 0
    outcome: int = -1
    ppn: int = -1
    bits: tuple[int, int, int] = (0, 0, 0)


class Bench:
    """Testbench that drives the unit cycle by cycle and models walks.

    Members
    -------
    mappings : all pages so far.
    tables : current pages.
    latency : range of the cycles of a walk.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut, self.numbers = dut, Random(seed)
        members = L2Tlb(CONFIG, TAG, entries=ENTRIES, ways=WAYS).signature.members
        self.shapes = {
            name: members[name].signature.members["payload"].shape for name in ("probe", "walked")
        }
        self.shapes |= {name: members[name].shape for name in ("result", "missed", "invalidate")}
        self.now, self.tags = 0, itertools.count()
        self.mappings: list[Mapping] = []
        self.tables: list[Mapping] = []
        self.todo: list[Look] = []
        self.offered: int | None = None
        self.waiting: dict[int, Look] = {}
        self.walks: list[tuple[int, int]] = []
        self.done: list[Look] = []
        self.latency = (1, 1)

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut, int(os.environ["COCOTB_RANDOM_SEED"]))
        for stream, part in itertools.product(("probe", "walked"), ("valid", "payload")):
            getattr(dut, f"{stream}__{part}").value = 0
        dut.invalidate.value = 0
        await reset(dut)
        for _ in range(SETS + 2):
            await bench.step()
        return bench

    # Page tables

    def map(self, asid: int, vpn: int, size: int = SMALL) -> Mapping:
        first, second, third = (self.numbers.getrandbits(1) for _ in range(3))
        bits = first, second, third
        mapping = Mapping(asid, vpn, size, self.numbers.getrandbits(28), bits)
        self.mappings.append(mapping)
        self.tables.append(mapping)
        return mapping

    def unmap(self, gone: Iterable[Mapping]) -> None:
        """Remove pages from the tables. They may be used until an invalidation."""
        self.tables = [one for one in self.tables if one not in gone]

    def current(self, asid: int, vpn: int) -> Mapping | None:
        return next((one for one in self.tables if one.has(asid, vpn)), None)

    # Cycles

    async def step(self, invalidate: dict[str, int] | None = None) -> None:
        dut = self.dut
        if self.offered is None and self.todo:
            self.offered = next(self.tags) % (1 << TAG)
            self.waiting[self.offered] = self.todo.pop(0)
        dut.probe__valid.value = int(self.offered is not None)
        if self.offered is not None:
            dut.probe__payload.value = self._request("probe", self.offered)
        walk = next((one for one in self.walks if one[0] <= self.now), None)
        dut.walked__valid.value = int(walk is not None)
        if walk is not None:
            dut.walked__payload.value = self._request("walked", walk[1], end=self._end(walk[1]))
        event = self.shapes["invalidate"].const({"valid": 1, **(invalidate or {})})
        dut.invalidate.value = event.as_bits() if invalidate else 0
        await ReadOnly()
        self._sample(walk)
        if invalidate:
            self._invalidate(**invalidate)
        await RisingEdge(dut.clk)
        self.now += 1

    def _request(self, name: str, tag: int, **more: Any) -> int:
        look = self.waiting[tag]
        values = {"tag": tag, "asid": look.asid, "vpn": look.vpn, **more}
        return self.shapes[name].const(values).as_bits()

    def _end(self, tag: int) -> dict[str, Any]:
        """The result of a walk with the tables of the current cycle."""
        found = self.current(self.waiting[tag].asid, self.waiting[tag].vpn)
        if found is None:
            return {"outcome": FAULT, "fault": PTE}
        permissions = dict(zip(PERMISSIONS, found.bits, strict=True))
        return {"outcome": PAGE, "page": {"size": found.size, "ppn": found.ppn, **permissions}}

    def _sample(self, walk: tuple[int, int] | None) -> None:
        dut = self.dut
        if self.offered is not None and dut.probe__ready.value == 1:
            self.waiting[self.offered].taken = self.now
            self.offered = None
        if walk is not None and dut.walked__ready.value == 1:
            self.walks.remove(walk)
        missed = self.shapes["missed"].from_bits(dut.missed.value.to_unsigned())
        if missed.valid:
            look = self.waiting[missed.tag]
            assert (look.asid, look.vpn) == (missed.asid, missed.vpn)
            look.walks += 1
            self.walks.append((self.now + self.numbers.randint(*self.latency), missed.tag))
        result = self.shapes["result"].from_bits(dut.result.value.to_unsigned())
        if result.valid:
            look = self.waiting.pop(result.tag)
            assert result.asid == look.asid
            look.answered, look.outcome = self.now, result.end.outcome.value
            if look.outcome == PAGE:
                shift = SHIFTS[result.end.page.size.value]
                first, second, third = (result.end.page[name] for name in PERMISSIONS)
                look.bits = first, second, third
                look.ppn = result.end.page.ppn >> shift << shift | look.vpn % (1 << shift)
            self.done.append(look)

    def _invalidate(self, scope: int, asid: int = 0, vpn: int = 0) -> None:
        """Record that pages that have left the tables may not be used after this cycle."""
        for one in self.mappings:
            named = scope == ALL or (one.asid == asid and (scope == ASID or one.has(asid, vpn)))
            if named and one not in self.tables:
                one.gone = min(one.gone, self.now)

    async def removed(self) -> None:
        """Step until no page is being removed, beginning with the cycle after which this is
        visible."""
        await self.step()
        while self.dut.removing.value == 1:
            await self.step()

    async def rest(self, limit: int = 20_000) -> list[Look]:
        """Step until everything is answered. Returns the look-ups since the last call, checked."""
        end = self.now + limit
        while self.todo or self.offered is not None or self.waiting:
            assert self.now < end, f"no result: {self.waiting}"
            await self.step()
        done, self.done = self.done, []
        for look in done:
            self.check(look)
        return done

    async def look(self, *pages: Mapping) -> list[Look]:
        """Look up pages, each at a random address within."""
        for one in pages:
            inside = self.numbers.getrandbits(SHIFTS[one.size]) if one.size else 0
            first = one.vpn >> SHIFTS[one.size] << SHIFTS[one.size]
            self.todo.append(Look(one.asid, first | inside))
        return await self.rest()

    async def walked(self, *pages: Mapping) -> int:
        """Number of these pages that need a walk."""
        return sum(look.walks for look in await self.look(*pages))

    def check(self, look: Look) -> None:
        if look.outcome == PAGE:
            assert any(
                one.has(look.asid, look.vpn)
                and one.gone >= look.answered
                and one.bits == look.bits
                and look.ppn
                == one.ppn >> SHIFTS[one.size] << SHIFTS[one.size]
                | look.vpn % (1 << SHIFTS[one.size])
                for one in self.mappings
            ), look
        else:
            assert look.walks and look.outcome in {FAULT, RETRY}, look


def spread(bench: Bench, asid: int, count: int, size: int = SMALL) -> list[Mapping]:
    """Contiguous pages, which are in different sets in turn."""
    return [bench.map(asid, n << SHIFTS[size], size) for n in range(count)]


@cocotb.test(**LIMIT)
async def a_look_up_every_cycle(dut):
    """With pages of all sizes and several spaces, every look-up is taken when it is offered, one
    per cycle, and answered 4 cycles later (ASID-3)."""
    bench = await Bench.start(dut)
    pages = [
        page
        for asid, size in ((0, SMALL), (1 % CONFIG.asids, BIG), (2 % CONFIG.asids, HUGE))
        for page in spread(bench, asid, ENTRIES // 4, size)
    ]
    if CONFIG.asids == 1:
        pages = pages[: ENTRIES // 4]
    assert await bench.walked(*pages) == len(pages)
    looks = await bench.look(*bench.numbers.choices(pages, k=300))
    assert sum(look.walks for look in looks) == 0
    assert {look.answered - look.taken for look in looks} == {4}
    assert looks[-1].taken - looks[0].taken == 299


@cocotb.test(**LIMIT)
async def walks_and_look_ups_share_the_pipeline(dut):
    """The result of a walk takes one cycle from look-ups, and is output 6 cycles later; one is
    taken every second cycle."""
    bench = await Bench.start(dut)
    known = spread(bench, 0, SETS)
    await bench.look(*known)
    new = [bench.map(0, (1 << 20) + n) for n in range(16)]
    bench.latency = (40, 40)
    looks = await bench.look(*new, *known * 4)
    missed = [look for look in looks if look.walks]
    assert len(missed) == 16
    missed.sort(key=lambda look: look.taken)
    assert [look.answered - look.taken for look in missed] == [4 + 40 + n + 6 for n in range(16)]
    hits = sorted((look for look in looks if not look.walks), key=lambda look: look.taken)
    assert {look.answered - look.taken for look in hits} == {4}
    gaps = [b.taken - a.taken for a, b in itertools.pairwise(hits)]
    assert sum(gaps) == len(gaps) + 16


@cocotb.test(**LIMIT)
async def one_set_filled_at_once(dut):
    """Results of walks for one set in successive cycles are all kept; look-ups continue
    meanwhile."""
    bench = await Bench.start(dut)
    known = bench.map(0, 0)
    await bench.look(known)
    bits = SETS.bit_length() - 1
    # All in the same set, which is another one.
    pages = [bench.map(0, 1 | (n << 2 * bits)) for n in range(WAYS)]
    bench.latency = (30, 30)
    looks = await bench.look(*pages, *[known] * 60)
    hits = [look for look in looks if not look.walks]
    gaps = [b.taken - a.taken for a, b in itertools.pairwise(hits)]
    assert max(gaps) <= 2
    assert sum(gaps) <= len(gaps) + WAYS
    assert await bench.walked(*pages, known) == 0


@cocotb.test(**LIMIT)
async def pages_that_differ_in_one_bit(dut):
    """All bits of a page number, and of an ASID, distinguish pages."""
    bench = await Bench.start(dut)
    vpn = bench.numbers.getrandbits(37)
    first = bench.map(0, vpn)
    for bit in range(37):
        other = bench.map(0, vpn ^ 1 << bit)
        assert await bench.walked(other) == 1
        assert await bench.walked(first) <= 1
    for asid in range(1, CONFIG.asids):
        assert await bench.walked(bench.map(asid, vpn)) == 1


@cocotb.test(**LIMIT)
async def scopes(dut):
    """An invalidation removes exactly its scope: a page of any size; a space; everything
    (ASID-9)."""
    bench = await Bench.start(dut)
    last = CONFIG.asids - 1
    pages = [
        bench.map(asid, 0x2_0000 + (size << 12), size)
        for asid in {0, last}
        for size in (SMALL, BIG, HUGE)
    ]
    await bench.look(*pages)
    assert await bench.walked(*pages) == 0
    for page in pages:
        # At an address in the page, and at one next to it.
        for vpn, count in ((page.vpn, 1), (page.vpn ^ 1 << 9, 0)):
            await bench.step({"scope": ONE, "asid": page.asid, "vpn": vpn})
            await bench.removed()
            assert await bench.walked(*(one for one in pages if one is not page)) == 0
            assert await bench.walked(page) == count
    for asid in {0, last}:
        await bench.step({"scope": ASID, "asid": asid})
        mine = [page for page in pages if page.asid == asid]
        assert await bench.walked(*(page for page in pages if page.asid != asid)) == 0
        assert await bench.walked(*mine) == len(mine)
    await bench.step({"scope": ALL})
    for _ in range(SETS):
        await bench.step()
    assert await bench.walked(*pages) == len(pages)
    assert await bench.walked(*pages) == 0


@cocotb.test(**LIMIT)
async def effective_in_one_cycle(dut):
    """A look-up in progress or in any cycle after an invalidation never gets an older result.
    Look-ups of other spaces are answered all the time (ASID-8, ASID-9)."""
    bench = await Bench.start(dut)
    other = CONFIG.asids - 1
    for scope, offset in itertools.product((ONE, ASID, ALL), range(-5, 12)):
        page, beside = bench.map(0, 0x77), bench.map(other, 0x3_0077)
        await bench.look(page, beside)
        event = {"scope": scope, "asid": 0, "vpn": 0x77}
        for cycle in range(-6, 20):
            if cycle == 0:
                bench.unmap([page])
                bench.map(0, 0x77)
            bench.todo.append(Look(*((0, 0x77) if cycle == offset else (other, 0x3_0077))))
            await bench.step(event if cycle == 0 else None)
        looks = await bench.rest()
        if scope != ALL and other:
            assert sum(look.walks for look in looks if look.asid == other) == 0
        bench.unmap(bench.tables)
        await bench.step({"scope": ALL})
        for _ in range(SETS):
            await bench.step()


@cocotb.test(**LIMIT)
async def numbers_come_round(dut):
    """After far more invalidations of a space than there are generations, with one page each, no
    page is found again; other spaces keep theirs (ASID-8, ASID-9)."""
    bench = await Bench.start(dut)
    old = []
    other = spread(bench, CONFIG.asids - 1, SETS) if CONFIG.asids > 1 else []
    await bench.look(*other)
    for turn in range(60):
        page = bench.map(0, turn)
        await bench.look(page)
        old.append(page)
        bench.unmap([page])
        await bench.step({"scope": ASID, "asid": 0})
        for one in bench.numbers.choices(old, k=3):
            bench.todo.append(Look(0, one.vpn))
        for _ in range(bench.numbers.choice((0, 0, 3, 2 * SETS))):
            await bench.step()
    for look in await bench.rest():
        assert look.outcome != PAGE
    assert await bench.walked(*other) == 0
    for _ in range(6 * SETS + 2 * CONFIG.asids):
        await bench.step()
    page = bench.map(0, 0)
    await bench.look(page)
    assert await bench.walked(page) == 0, "its space is still closed"


@cocotb.test(**LIMIT, skip=CONFIG.asids < 4)
async def what_counts_no_more_goes_first(dut):
    """If sets are full with two spaces and one is invalidated, the pages of a third replace its
    entries and not those of the other (ASID-11)."""
    bench = await Bench.start(dut)
    half = ENTRIES // 2
    first, second = spread(bench, 1, half), spread(bench, 2, half)
    await bench.look(*first, *second)
    assert await bench.walked(*first, *second) == 0
    await bench.look(*second, *first)
    await bench.step({"scope": ASID, "asid": 1})
    third = spread(bench, 3, half)
    await bench.look(*third)
    assert await bench.walked(*second, *third) == 0


@cocotb.test(**LIMIT)
async def least_recently_used(dut):
    """In a full set, the entry that was just used is kept (ASID-11)."""
    bench = await Bench.start(dut)
    pages = spread(bench, 0, ENTRIES)
    await bench.look(*pages)
    for turn in range(20):
        kept = bench.numbers.choice(pages)
        await bench.look(kept)
        # One more page for every set.
        await bench.look(*(bench.map(0, (turn + 1 << 16) + n) for n in range(SETS)))
        assert await bench.walked(kept) == 0


@cocotb.test(**LIMIT)
async def as_good_as_pseudo_lru(dut):
    """With single look-ups in four sets, in several patterns, some with invalidations of single
    pages, there are no more walks than in a tree pseudo-LRU of the same number of ways
    (ASID-11)."""
    bench, model = await Bench.start(dut), PseudoLru(WAYS, sets=4)
    bits = SETS.bit_length() - 1
    for share in (0.0, 0.05):
        for name, numbers in patterns(bench.numbers, 4 * WAYS):
            walked, expected = 0, 0
            for number in numbers:
                group, page = number % 4, number % 4 | number // 4 << 2 * bits
                walked += await bench.walked(bench.current(0, page) or bench.map(0, page))
                expected += not model.access(page, group)
                if bench.numbers.random() < share:
                    model.remove(page, group)
                    await bench.step({"scope": ONE, "asid": 0, "vpn": page})
                    await bench.removed()
            cocotb.log.info("%s: %d walks, pseudo-LRU %d", name, walked, expected)
            assert walked <= expected, (name, walked, expected)


@cocotb.test(**LIMIT)
async def random_(dut):
    """No result is of a page that was gone, while pages of all sizes come and go and are
    invalidated by any scope, immediately or later, with look-ups in progress."""
    bench = await Bench.start(dut)
    numbers, hits, asids = bench.numbers, 0, min(CONFIG.asids, 8)
    # Two of them differ in one bit only.
    regions = [numbers.getrandbits(37) >> 9 << 9 for _ in range(2)]
    regions.append(regions[0] ^ 1 << numbers.randrange(9, 37))
    rounds = Rounds(150)
    while rounds.more(hits > 200, hits):
        bench.latency = numbers.choice(((1, 1), (1, 8), (20, 40)))
        for _ in range(numbers.randrange(120)):
            vpn = numbers.choice(regions) | numbers.randrange(48)
            bench.todo.append(Look(numbers.randrange(asids), vpn))
        asid, vpn = numbers.randrange(asids), numbers.choice(regions) | numbers.randrange(48)
        page, size = bench.current(asid, vpn), numbers.choice((SMALL, SMALL, BIG, HUGE))
        if page is None:
            shift = SHIFTS[size]
            taken = [
                one for one in bench.tables if one.asid == asid and one.vpn >> shift == vpn >> shift
            ]
            bench.unmap(taken)
            bench.map(asid, vpn, size)
            event: dict[str, int] = {"scope": ASID, "asid": asid} if taken else {}
        else:
            bench.unmap([page])
            scope = numbers.choice((ONE, ONE, ONE, ASID, ALL))
            event = {"scope": scope, "asid": asid, "vpn": page.vpn}
            if numbers.random() < 0.1:
                event = {}
        for _ in range(numbers.randrange(4)):
            await bench.step()
        await bench.removed()
        await bench.step(event or None)
        for _ in range(numbers.randrange(30)):
            await bench.step()
        if numbers.random() < 0.3:
            hits += sum(not look.walks for look in await bench.rest())
    await bench.rest()
