"""Second-level TLB: every result is a current translation, one per cycle (ASID-3, -8 … -11).

Walks and page tables are modelled in Python: pages by address space, each with the last cycle in
which it may be used.
"""

import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import cocotb

from signalbox.hw.config import Config
from signalbox.hw.mmu.l2_tlb import L2Tlb
from signalbox.hw.mmu.records import Outcome, Scope
from signalbox.hw.page_tables import FaultType
from signalbox.tb.models.replacement import PseudoLru
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.mmu.patterns import patterns

LIMIT = {"timeout_time": 40, "timeout_unit": "ms"}

CONFIG = Config(asids=int(os.environ.get("ASIDS", "8")))
TAG = 10
ENTRIES, WAYS = int(os.environ.get("ENTRIES", "64")), int(os.environ.get("WAYS", "4"))
SETS = ENTRIES // WAYS

PAGE, FAULT, SPARSE, RETRY = Outcome
ALL, ASID, ONE = Scope
SMALL, BIG, HUGE = range(3)
SHIFTS = (0, 4, 9)
PERMISSIONS = ("read_only", "privileged", "no_atomics")


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
    outcome: Outcome = RETRY
    ppn: int = -1
    bits: tuple[int, int, int] = (0, 0, 0)


class L2Testbench(Testbench):
    """Drives the unit and models walks. Their results do not come from a `Source`: they come in any
    order, and each follows the tables until it is taken.

    Members
    -------
    mappings : all pages so far.
    tables : current pages.
    latency : range of the cycles of a walk.
    waiting : look-ups without a result, by tag.
    walks : (due, tag) of the walks in progress.
    done : look-ups with a result.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(L2Tlb, CONFIG, TAG, entries=ENTRIES, ways=WAYS))
        self._probe = Source(self, "probe", then=self._enter)
        self._invalidate = Strobe(self, "invalidate")
        self._tags = itertools.count()
        self.mappings: list[Mapping] = []
        self.tables: list[Mapping] = []
        self.waiting: dict[int, Look] = {}
        self.walks: list[tuple[int, int]] = []
        self.done: list[Look] = []
        self.latency = (1, 1)

    async def start(self) -> Self:
        await super().start()
        await self.steps(SETS + 2)
        return self

    # Page tables

    def map(self, asid: int, vpn: int, size: int = SMALL) -> Mapping:
        first, second, third = (self.random.getrandbits(1) for _ in range(3))
        bits = first, second, third
        mapping = Mapping(asid, vpn, size, self.random.getrandbits(28), bits)
        self.mappings.append(mapping)
        self.tables.append(mapping)
        return mapping

    def unmap(self, gone: Iterable[Mapping]) -> None:
        """Remove pages from the tables. They may be used until an invalidation."""
        self.tables = [one for one in self.tables if one not in gone]

    def current(self, asid: int, vpn: int) -> Mapping | None:
        return next((one for one in self.tables if one.has(asid, vpn)), None)

    # Cycles

    async def step(self, invalidate: dict[str, Any] | None = None) -> None:
        """One cycle."""
        walk = next((one for one in self.walks if one[0] <= self.cycle), None)
        self.drive(walked__valid=walk is not None)
        if walk is not None:
            self.drive(walked__payload={**self._request(walk[1]), "end": self._end(walk[1])})
        if invalidate:
            self._invalidate.send(**invalidate)
        now = self.cycle
        await super().step()
        if walk is not None and self.get("walked__ready"):
            self.walks.remove(walk)
        self._miss(now)
        self._result(now)
        if invalidate:
            self._retire(now, **invalidate)

    def ask(self, look: Look) -> None:
        """Look up a page, after all others."""
        self._probe.put(functools.partial(self._issue, look))

    def _issue(self, look: Look) -> dict[str, Any]:
        """Request of a look-up, which is offered now."""
        tag = next(self._tags) % (1 << TAG)
        self.waiting[tag] = look
        return self._request(tag)

    def _enter(self, request: dict[str, Any]) -> None:
        """A look-up was taken."""
        self.waiting[request["tag"]].taken = self.cycle

    def _request(self, tag: int) -> dict[str, Any]:
        look = self.waiting[tag]
        return {"tag": tag, "asid": look.asid, "vpn": look.vpn}

    def _end(self, tag: int) -> dict[str, Any]:
        """The result of a walk with the tables of the current cycle."""
        found = self.current(self.waiting[tag].asid, self.waiting[tag].vpn)
        if found is None:
            return {"outcome": FAULT, "fault": FaultType.PTE}
        permissions = dict(zip(PERMISSIONS, found.bits, strict=True))
        return {"outcome": PAGE, "page": {"size": found.size, "ppn": found.ppn, **permissions}}

    def _miss(self, now: int) -> None:
        """Begin the walk of a look-up that missed."""
        missed = self.get("missed")
        if missed["valid"]:
            look = self.waiting[missed["tag"]]
            assert (look.asid, look.vpn) == (missed["asid"], missed["vpn"])
            look.walks += 1
            self.walks.append((now + self.random.randint(*self.latency), missed["tag"]))

    def _result(self, now: int) -> None:
        result = self.get("result")
        if result["valid"]:
            look = self.waiting.pop(result["tag"])
            assert result["asid"] == look.asid
            look.answered, look.outcome = now, result["end"]["outcome"]
            if look.outcome is PAGE:
                page = result["end"]["page"]
                shift = SHIFTS[page["size"].value]
                first, second, third = (page[name] for name in PERMISSIONS)
                look.bits = first, second, third
                look.ppn = page["ppn"] >> shift << shift | look.vpn % (1 << shift)
            self.done.append(look)

    def _retire(self, now: int, scope: Scope, asid: int = 0, vpn: int = 0) -> None:
        """Note that pages that have left the tables may not be used after cycle `now`."""
        for one in self.mappings:
            named = scope == ALL or (one.asid == asid and (scope == ASID or one.has(asid, vpn)))
            if named and one not in self.tables:
                one.gone = min(one.gone, now)

    async def removed(self) -> None:
        """Step until no page is being removed; one cycle first, until a removal is visible."""
        await self.step()
        await self.until(lambda: not self.get("removing"), "no page is being removed")

    async def rest(self) -> list[Look]:
        """Step until everything is answered. Returns the look-ups since the last call, checked."""
        await self.until(lambda: not (self._probe.pending or self.waiting), "all results")
        done, self.done = self.done, []
        for look in done:
            self.check(look)
        return done

    async def look(self, *pages: Mapping) -> list[Look]:
        """Look up pages, each at a random address within it."""
        for one in pages:
            inside = self.random.getrandbits(SHIFTS[one.size]) if one.size else 0
            first = one.vpn >> SHIFTS[one.size] << SHIFTS[one.size]
            self.ask(Look(one.asid, first | inside))
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


def spread(tb: L2Testbench, asid: int, count: int, size: int = SMALL) -> list[Mapping]:
    """Contiguous pages, which go to all sets in turn."""
    return [tb.map(asid, n << SHIFTS[size], size) for n in range(count)]


@cocotb.test(**LIMIT)
async def a_look_up_every_cycle(dut):
    """With pages of all sizes and several spaces, every look-up is taken when it is offered, one
    per cycle, and answered 4 cycles later (ASID-3)."""
    tb = await L2Testbench(dut).start()
    pages = [
        page
        for asid, size in ((0, SMALL), (1 % CONFIG.asids, BIG), (2 % CONFIG.asids, HUGE))
        for page in spread(tb, asid, ENTRIES // 4, size)
    ]
    if CONFIG.asids == 1:
        pages = pages[: ENTRIES // 4]
    assert await tb.walked(*pages) == len(pages)
    looks = await tb.look(*tb.random.choices(pages, k=300))
    assert sum(look.walks for look in looks) == 0
    assert {look.answered - look.taken for look in looks} == {4}
    assert looks[-1].taken - looks[0].taken == 299


@cocotb.test(**LIMIT)
async def walks_and_look_ups_share_the_pipeline(dut):
    """The result of a walk takes one cycle from look-ups, and is output 6 cycles later; a result is
    accepted in every second cycle at most."""
    tb = await L2Testbench(dut).start()
    known = spread(tb, 0, SETS)
    await tb.look(*known)
    new = [tb.map(0, (1 << 20) + n) for n in range(16)]
    tb.latency = (40, 40)
    looks = await tb.look(*new, *known * 4)
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
    tb = await L2Testbench(dut).start()
    known = tb.map(0, 0)
    await tb.look(known)
    bits = SETS.bit_length() - 1
    # All in the same set, which is not that of `known`.
    pages = [tb.map(0, 1 | (n << 2 * bits)) for n in range(WAYS)]
    tb.latency = (30, 30)
    looks = await tb.look(*pages, *[known] * 60)
    hits = [look for look in looks if not look.walks]
    gaps = [b.taken - a.taken for a, b in itertools.pairwise(hits)]
    assert max(gaps) <= 2
    assert sum(gaps) <= len(gaps) + WAYS
    assert await tb.walked(*pages, known) == 0


@cocotb.test(**LIMIT)
async def pages_that_differ_in_one_bit(dut):
    """All bits of a page number, and of an ASID, distinguish pages."""
    tb = await L2Testbench(dut).start()
    vpn = tb.random.getrandbits(37)
    first = tb.map(0, vpn)
    for bit in range(37):
        other = tb.map(0, vpn ^ 1 << bit)
        assert await tb.walked(other) == 1
        assert await tb.walked(first) <= 1
    for asid in range(1, CONFIG.asids):
        assert await tb.walked(tb.map(asid, vpn)) == 1


@cocotb.test(**LIMIT)
async def scopes(dut):
    """An invalidation removes exactly its scope: a page of any size; a space; everything
    (ASID-9)."""
    tb = await L2Testbench(dut).start()
    last = CONFIG.asids - 1
    pages = [
        tb.map(asid, 0x2_0000 + (size << 12), size)
        for asid in {0, last}
        for size in (SMALL, BIG, HUGE)
    ]
    await tb.look(*pages)
    assert await tb.walked(*pages) == 0
    for page in pages:
        # At an address in the page, and at one next to it.
        for vpn, count in ((page.vpn, 1), (page.vpn ^ 1 << 9, 0)):
            await tb.step({"scope": ONE, "asid": page.asid, "vpn": vpn})
            await tb.removed()
            assert await tb.walked(*(one for one in pages if one is not page)) == 0
            assert await tb.walked(page) == count
    for asid in {0, last}:
        await tb.step({"scope": ASID, "asid": asid})
        mine = [page for page in pages if page.asid == asid]
        assert await tb.walked(*(page for page in pages if page.asid != asid)) == 0
        assert await tb.walked(*mine) == len(mine)
    await tb.step({"scope": ALL})
    await tb.steps(SETS)
    assert await tb.walked(*pages) == len(pages)
    assert await tb.walked(*pages) == 0


@cocotb.test(**LIMIT)
async def effective_in_one_cycle(dut):
    """A look-up in progress at an invalidation, or in any cycle after it, never gets an older
    result. Look-ups of other spaces still hit, after 4 cycles; after each, the next one waits at
    most 3 cycles (ASID-8, ASID-9)."""
    tb = await L2Testbench(dut).start()
    other = CONFIG.asids - 1
    for scope, offset in itertools.product((ONE, ASID, ALL), range(-5, 12)):
        page, beside = tb.map(0, 0x77), tb.map(other, 0x3_0077)
        await tb.look(page, beside)
        event = {"scope": scope, "asid": 0, "vpn": 0x77}
        for cycle in range(-6, 20):
            if cycle == 0:
                tb.unmap([page])
                tb.map(0, 0x77)
            tb.ask(Look(*((0, 0x77) if cycle == offset else (other, 0x3_0077))))
            await tb.step(event if cycle == 0 else None)
        looks = await tb.rest()
        if scope != ALL and other:
            others = [look for look in looks if look.asid == other]
            assert sum(look.walks for look in others) == 0
            assert {look.answered - look.taken for look in others} == {4}
            taken = sorted(look.taken for look in others)
            assert max(b - a for a, b in itertools.pairwise(taken)) <= 4
        tb.unmap(tb.tables)
        await tb.step({"scope": ALL})
        await tb.steps(SETS)


@cocotb.test(**LIMIT)
async def any_address_of_a_page(dut):
    """A page of any size is mapped or replaced in any cycle of a look-up, and another of its
    addresses is invalidated: from the next cycle on, every result is the new page, or RETRY for an
    earlier look-up (ASID-9)."""
    tb = await L2Testbench(dut).start()
    vpn, retried = 0x4_0000, Counter[tuple[int, str]]()
    states = ("absent", "mapped", "cached")
    for size, state, offset in itertools.product((SMALL, BIG, HUGE), states, range(15)):
        inside = (1 << SHIFTS[size]) - 1
        looked = vpn | tb.random.getrandbits(9) & inside
        old = [tb.map(0, vpn, size)] if state != "absent" else []
        if state == "cached":
            await tb.look(*old)
        tb.ask(Look(0, looked))
        await tb.steps(offset)
        tb.unmap(old)
        tb.map(0, vpn, size)
        event = tb.cycle
        await tb.step({"scope": ONE, "asid": 0, "vpn": looked ^ inside})
        tb.ask(Look(0, looked))
        looks = await tb.rest()
        for look in looks:
            retry = look.outcome is RETRY and look.taken <= event
            assert look.outcome is PAGE or retry or look.answered <= event, (state, offset, look)
            retried[size, state] += retry
        tb.unmap(tb.tables)
        await tb.step({"scope": ALL})
        await tb.steps(SETS)
    assert all(retried[size, state] for size in range(3) for state in states[:2]), retried


@cocotb.test(**LIMIT)
async def numbers_come_round(dut):
    """After far more invalidations of a space than there are generations, with a new page before
    each, no old page is found; other spaces keep their pages (ASID-8, ASID-9)."""
    tb = await L2Testbench(dut).start()
    old = []
    other = spread(tb, CONFIG.asids - 1, SETS) if CONFIG.asids > 1 else []
    await tb.look(*other)
    for turn in range(60):
        page = tb.map(0, turn)
        await tb.look(page)
        old.append(page)
        tb.unmap([page])
        await tb.step({"scope": ASID, "asid": 0})
        for one in tb.random.choices(old, k=3):
            tb.ask(Look(0, one.vpn))
        await tb.steps(tb.random.choice((0, 0, 3, 2 * SETS)))
    for look in await tb.rest():
        assert look.outcome != PAGE
    assert await tb.walked(*other) == 0
    await tb.steps(6 * SETS + 2 * CONFIG.asids)
    page = tb.map(0, 0)
    await tb.look(page)
    assert await tb.walked(page) == 0, "its space is still closed"


@cocotb.test(**LIMIT, skip=CONFIG.asids < 4)
async def what_counts_no_more_goes_first(dut):
    """If two spaces fill the sets and one is invalidated, pages of a third space replace its
    entries, and none of the other space (ASID-11)."""
    tb = await L2Testbench(dut).start()
    half = ENTRIES // 2
    first, second = spread(tb, 1, half), spread(tb, 2, half)
    await tb.look(*first, *second)
    assert await tb.walked(*first, *second) == 0
    await tb.look(*second, *first)
    await tb.step({"scope": ASID, "asid": 1})
    third = spread(tb, 3, half)
    await tb.look(*third)
    assert await tb.walked(*second, *third) == 0


@cocotb.test(**LIMIT)
async def least_recently_used(dut):
    """In a full set, the entry that was just used is kept (ASID-11)."""
    tb = await L2Testbench(dut).start()
    pages = spread(tb, 0, ENTRIES)
    await tb.look(*pages)
    for turn in range(20):
        kept = tb.random.choice(pages)
        await tb.look(kept)
        # One more page for every set.
        await tb.look(*(tb.map(0, (turn + 1 << 16) + n) for n in range(SETS)))
        assert await tb.walked(kept) == 0


@cocotb.test(**LIMIT)
async def as_good_as_pseudo_lru(dut):
    """With single look-ups in four sets, in several patterns, some with invalidations of single
    pages, there are no more walks than in a tree pseudo-LRU of the same number of ways
    (ASID-11)."""
    tb, model = await L2Testbench(dut).start(), PseudoLru(WAYS, sets=4)
    bits = SETS.bit_length() - 1
    for share in (0.0, 0.05):
        for name, numbers in patterns(tb.random, 4 * WAYS):
            walked, expected = 0, 0
            for number in numbers:
                group, page = number % 4, number % 4 | number // 4 << 2 * bits
                walked += await tb.walked(tb.current(0, page) or tb.map(0, page))
                expected += not model.access(page, group)
                if tb.random.random() < share:
                    model.remove(page, group)
                    await tb.step({"scope": ONE, "asid": 0, "vpn": page})
                    await tb.removed()
            cocotb.log.info("%s: %d walks, pseudo-LRU %d", name, walked, expected)
            assert walked <= expected, (name, walked, expected)


@cocotb.test(**LIMIT)
async def random_(dut):
    """No result is a page that was already gone, while pages of all sizes come and go and are
    invalidated by any scope, immediately or later, with look-ups in progress."""
    tb = await L2Testbench(dut).start()
    numbers, hits, asids = tb.random, 0, min(CONFIG.asids, 8)
    # Two of them differ in one bit only.
    regions = [numbers.getrandbits(37) >> 9 << 9 for _ in range(2)]
    regions.append(regions[0] ^ 1 << numbers.randrange(9, 37))
    rounds = Rounds(150)
    while rounds.more(hits > 200, hits):
        tb.latency = numbers.choice(((1, 1), (1, 8), (20, 40)))
        for _ in range(numbers.randrange(120)):
            vpn = numbers.choice(regions) | numbers.randrange(48)
            tb.ask(Look(numbers.randrange(asids), vpn))
        asid, vpn = numbers.randrange(asids), numbers.choice(regions) | numbers.randrange(48)
        page, size = tb.current(asid, vpn), numbers.choice((SMALL, SMALL, BIG, HUGE))
        if page is None:
            shift = SHIFTS[size]
            taken = [
                one for one in tb.tables if one.asid == asid and one.vpn >> shift == vpn >> shift
            ]
            tb.unmap(taken)
            tb.map(asid, vpn, size)
            event: dict[str, Any] = {"scope": ASID, "asid": asid} if taken else {}
        else:
            tb.unmap([page])
            scope = numbers.choice((ONE, ONE, ONE, ASID, ALL))
            event = {"scope": scope, "asid": asid, "vpn": page.vpn}
            if numbers.random() < 0.1:
                event = {}
        await tb.steps(numbers.randrange(4))
        await tb.removed()
        await tb.step(event or None)
        await tb.steps(numbers.randrange(30))
        if numbers.random() < 0.3:
            hits += sum(not look.walks for look in await tb.rest())
    await tb.rest()
