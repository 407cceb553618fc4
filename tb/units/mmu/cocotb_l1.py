"""First-level TLB: every answer is a current translation, and hits are fast (ASID-3, -4, -8 … -11).

The next level and the page tables are modelled in Python: a list of pages, with the cycles from and
to which each may be used.
"""

import functools
import itertools
import os
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

import cocotb
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.l1_tlb import L1Tlb
from signalbox.hw.mmu.records import Access, Outcome, Scope
from signalbox.hw.page_tables import FaultType
from signalbox.tb.models.replacement import PseudoLru
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.mmu.patterns import patterns

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = Config(asids=8)
TAG = data.StructLayout({"number": 16})
ENTRIES, MISSES = int(os.environ.get("ENTRIES", "16")), int(os.environ.get("MISSES", "4"))

PAGE, FAULT, SPARSE, RETRY = Outcome
READ, WRITE, ATOMIC = Access
ALL, ASID, ONE = Scope
SHIFTS = (12, 16, 21)
NOT_MAPPED, PRIV, RO = FaultType.PTE, FaultType.PRIV, FaultType.RO
REGION, NO_ATOMICS = FaultType.REGION, FaultType.ATOMIC


@dataclass
class Mapping:
    """A page. `born` : cycle of its mapping. `gone` : last cycle in which it may be used."""

    asid: int
    va: int
    size: int
    pa: int
    read_only: bool = False
    privileged: bool = False
    no_atomics: bool = False
    born: int = 0
    gone: float = float("inf")

    def has(self, asid: int, va: int) -> bool:
        return self.asid == asid and va >> SHIFTS[self.size] == self.va >> SHIFTS[self.size]


@dataclass
class Look:
    """One look-up and its answer."""

    asid: int
    va: int
    access: Access = READ
    privileged: bool = False
    physical: bool = False
    issued: int = -1
    answered: int = -1
    outcome: Outcome = RETRY
    pa: int = -1
    fault: FaultType = FaultType.PDE


class L1Testbench(Testbench):
    """Drives the unit and models the next level. Results do not come from a `Source`: they come in
    any order, and each follows the tables until it is taken.

    Members
    -------
    mappings : all pages so far.
    request : source of the look-ups.
    answer, miss : sinks of answers and misses.
    latency : range of the cycles from a miss to its result.
    retries : fraction of results that request a retry.
    misses : (due, number, asid, page number) of every miss without a result.
    asked : (cycle, asid, page number) of every miss.
    done : answered look-ups.
    waiting : look-ups without an answer, by tag.
    fresh : look-ups that were taken, but neither answered nor reported as waiting.
    waited : look-ups in `waiting` that were reported as waiting, by `id`.
    """

    timeout = 20_000

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, component(L1Tlb, CONFIG, TAG, entries=ENTRIES, misses=MISSES))
        self.request = Source(self, "request", then=self._enter)
        self.answer = Sink(self, "answer", held=False)
        self.miss = Sink(self, "miss")
        self._invalidate = Strobe(self, "invalidate")
        self._numbering = itertools.count()
        self._offered: Look | None = None
        self._entered: Look | None = None
        self.mappings: list[Mapping] = []
        self.waiting: dict[int, Look] = {}
        self.done: list[Look] = []
        self.misses: list[tuple[int, int, int, int]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.latency, self.retries = (1, 1), 0.0
        self.fresh: deque[Look] = deque()
        self.waited: set[int] = set()

    @staticmethod
    def sparse(va: int) -> bool:
        """Whether an unmapped page at `va` is sparse."""
        return bool(va >> 13 & 1)

    # Page tables

    def map(self, mapping: Mapping) -> Mapping:
        mapping.born = self.cycle
        self.mappings.append(mapping)
        return mapping

    def current(self, asid: int, va: int) -> Mapping | None:
        live = (m for m in self.mappings if m.gone == float("inf") and m.has(asid, va))
        return next(live, None)

    # Cycles

    def look(self, *looks: Look) -> None:
        """Queue look-ups, one after the other."""
        for one in looks:
            self.request.put(functools.partial(self._issue, one))

    async def step(self, invalidate: dict[str, Any] | None = None) -> None:
        """One cycle."""
        due = self._result()
        if invalidate:
            self._invalidate.send(**invalidate)
        self._entered = None
        await super().step()
        if due and self.get("result__ready"):
            self.misses.remove(due)
        while self.miss.taken:
            self._ask(*self.miss.taken.pop())
        answered = self._end(*self.answer.taken.pop()) if self.answer.taken else None
        self._count(answered)
        if self._entered:
            self.fresh.append(self._entered)

    def _issue(self, look: Look) -> dict[str, Any]:
        """Request of a look-up, which is offered now."""
        look.issued, self._offered = self.cycle, look
        return {
            "tag": {"number": next(self._numbering) & 0xFFFF},
            "asid": look.asid,
            "va": look.va,
            "access": look.access,
            "privileged": look.privileged,
            "physical": look.physical,
        }

    def _enter(self, request: dict[str, Any]) -> None:
        """A look-up was taken."""
        assert self._offered is not None
        self.waiting[request["tag"]["number"]] = self._entered = self._offered

    def _result(self) -> tuple[int, int, int, int] | None:
        """Offer the oldest due result, from the tables of the current cycle. Returns its miss."""
        due = next((miss for miss in self.misses if miss[0] <= self.cycle), None)
        self.drive(result__valid=due is not None)
        if due is None:
            return None
        _, number, asid, vpn = due
        found = self.current(asid, vpn << 12)
        if Random(f"{due}").random() < self.retries:
            values: dict[str, Any] = {"outcome": RETRY}
        elif found is None and self.sparse(vpn << 12):
            values = {"outcome": SPARSE}
        elif found is None:
            values = {"outcome": FAULT, "fault": NOT_MAPPED}
        else:
            values = {
                "outcome": PAGE,
                "page": {
                    "size": found.size,
                    "ppn": found.pa >> 12,
                    "read_only": found.read_only,
                    "privileged": found.privileged,
                    "no_atomics": found.no_atomics,
                },
            }
        self.drive(result__payload={"miss": number, **values})
        return due

    def _ask(self, cycle: int, miss: dict[str, int]) -> None:
        """A miss was taken."""
        page = miss["asid"], miss["vpn"]
        assert page not in [one[2:] for one in self.misses], "a page is requested twice"
        assert miss["miss"] not in [one[1] for one in self.misses]
        self.misses.append((cycle + self.random.randint(*self.latency), miss["miss"], *page))
        self.asked.append((cycle, *page))

    def _end(self, cycle: int, answer: dict[str, Any]) -> Look:
        """An answer was taken. Returns its look-up."""
        look = self.waiting.pop(answer["tag"]["number"])
        look.answered, look.outcome = cycle, answer["outcome"]
        look.pa, look.fault = answer["pa"], answer["fault"]
        self.done.append(look)
        return look

    def _count(self, answered: Look | None) -> None:
        """Check the strobes for counters: each look-up that is not physical is reported once, as
        answered immediately or as waiting."""
        hit, missed = self.get("hit"), self.get("missed")
        assert not (hit["valid"] and missed["valid"])
        if hit["valid"] or missed["valid"]:
            look = self.fresh.popleft()
            assert not look.physical and look.asid == (hit if hit["valid"] else missed)["asid"]
            assert (look is answered) == hit["valid"], "neither answered at once nor waiting"
            if missed["valid"]:
                self.waited.add(id(look))
        elif answered is not None and answered.physical:
            assert self.fresh.popleft() is answered
        elif answered is not None:
            assert id(answered) in self.waited, "answered at once, and not told"
            self.waited.remove(id(answered))

    async def rest(self, limit: int | None = None) -> list[Look]:
        """Step until everything is answered. Returns the look-ups since the last call."""
        await self.until(lambda: not (self.request.pending or self.waiting), "all answers", limit)
        done, self.done = self.done, []
        return done

    # Checks

    def check(self, look: Look) -> None:
        """Check that the answer agrees with a mapping that was valid between request and answer."""
        outcome, fault = look.outcome, look.fault
        if look.physical:
            right = look.va < CONFIG.memory_bytes
            assert (outcome, look.pa) == (PAGE, look.va) if right else fault == REGION
            return
        candidates = [
            m
            for m in self.mappings
            if m.has(look.asid, look.va) and m.born <= look.answered and m.gone >= look.issued
        ]
        expected = [self.expected(m, look) for m in candidates]
        if outcome == PAGE:
            usable = [
                e for m, e in zip(candidates, expected, strict=True) if look.answered <= m.gone
            ]
            assert (PAGE, look.pa) in usable, (look, candidates)
        elif outcome == SPARSE or fault == NOT_MAPPED:
            assert (outcome == SPARSE) == self.sparse(look.va)
            always = any(m.born <= look.issued and m.gone >= look.answered for m in candidates)
            assert not always, (look, candidates)
        else:
            assert (FAULT, fault) in expected, (look, candidates)

    @staticmethod
    def expected(mapping: Mapping, look: Look) -> tuple[Outcome, int]:
        if mapping.privileged and not look.privileged:
            return FAULT, PRIV
        if mapping.read_only and look.access != READ:
            return FAULT, RO
        if mapping.no_atomics and look.access == ATOMIC:
            return FAULT, NO_ATOMICS
        return PAGE, mapping.pa + look.va % (1 << SHIFTS[mapping.size])


@cocotb.test(**LIMIT)
async def hits_every_cycle(dut):
    """With as many pages as entries, of all sizes, every look-up after the first round is answered
    in the next cycle, one per cycle, and no page is requested again (ASID-11)."""
    tb = await L1Testbench(dut).start()
    pages = [tb.map(Mapping(n % 3, n << 22, n % 3, n << 21)) for n in range(ENTRIES)]
    for _ in range(2):
        tb.look(*(Look(page.asid, page.va + 8) for page in pages))
        for look in await tb.rest():
            tb.check(look)
    asked = len(tb.asked)
    assert asked == ENTRIES
    for page in tb.random.choices(pages, k=200):
        tb.look(Look(page.asid, page.va + tb.random.randrange(4096)))
    looks = await tb.rest()
    assert [look.answered - look.issued for look in looks] == [1] * 200
    assert len(tb.asked) == asked
    for look in looks:
        tb.check(look)


@cocotb.test(**LIMIT)
async def as_good_as_pseudo_lru(dut):
    """With single look-ups in several patterns, some with invalidations of single pages, there are
    no more misses than in a tree pseudo-LRU of the same size (ASID-11)."""
    tb, model = await L1Testbench(dut).start(), PseudoLru(ENTRIES)
    for share in (0.0, 0.05):
        for name, numbers in patterns(tb.random, ENTRIES):
            before, expected = len(tb.asked), 0
            for number in numbers:
                asid, va = number % 3, number << 12
                page = tb.current(asid, va) or tb.map(Mapping(asid, va, 0, va))
                tb.look(Look(asid, va))
                (look,) = await tb.rest()
                tb.check(look)
                expected += not model.access(number)
                if tb.random.random() < share:
                    model.remove(number)
                    await tb.step({"scope": ONE, "asid": asid, "vpn": page.va >> 12})
                    # A page that has just become invalid is not used immediately.
                    await tb.steps(3)
            missed = len(tb.asked) - before
            cocotb.log.info("%s: %d misses, pseudo-LRU %d", name, missed, expected)
            assert missed <= expected, (name, missed, expected)


@cocotb.test(**LIMIT)
async def hits_under_misses(dut):
    """While there is room for two more misses, hits are answered one per cycle; with room for one
    more, one in every second cycle."""
    tb = await L1Testbench(dut).start()
    page = tb.map(Mapping(1, 0, 0, 0x5000))
    tb.look(Look(1, 0))
    await tb.rest()
    tb.latency = (300, 300)
    for room in (2, 1):
        missing = [Look(2, (n + 1) << 12) for n in range(MISSES - room)]
        for look in missing:
            if tb.current(2, look.va) is None:
                tb.map(Mapping(2, look.va, 0, 0x9000))
        await tb.step({"scope": ASID, "asid": 2, "vpn": 0})
        hits = [Look(1, page.va + 4 * n) for n in range(100)]
        tb.look(*missing, *hits)
        done = await tb.rest()
        assert done[:100] == hits
        gaps = [b.answered - a.answered for a, b in itertools.pairwise(hits)]
        assert max(gaps) == 3 - room
        assert all(look.answered - look.issued >= 300 for look in missing)
        for look in done:
            tb.check(look)


@cocotb.test(**LIMIT)
async def one_page_is_asked_for_once(dut):
    """Look-ups of a page that has already been requested do not request it again, and all get it
    (ASID-4)."""
    tb = await L1Testbench(dut).start()
    tb.map(Mapping(3, 0, 0, 0x7000))
    tb.latency = (50, 50)
    tb.look(*(Look(3, 8 * n) for n in range(MISSES)))
    for look in await tb.rest():
        tb.check(look)
    assert len(tb.asked) == 1


@cocotb.test(**LIMIT, skip=MISSES < 4)
async def followers_are_not_forgotten(dut):
    """If a result is out of date when it arrives, and its requester then hits a smaller page, the
    followers are also looked up again."""
    tb = await L1Testbench(dut).start()
    for early in range(8):
        tb.mappings.clear()
        await tb.step({"scope": ALL})
        tb.map(Mapping(1, 0, 1, 0x40_0000))
        tb.latency = (30, 30)
        tb.look(Look(1, 0x1000), Look(1, 0x1008))
        await tb.until(lambda: tb.misses, "a miss")
        ((due, *_),) = tb.misses
        tb.latency = (3, 3)
        tb.look(Look(1, 0x2000))
        await tb.until(lambda: tb.done, "an answer")
        # The tables now have a page of 2 MiB, whose parts are invalidated individually.
        tb.mappings.insert(0, Mapping(1, 0, 2, 0x80_0000, born=tb.cycle))
        await tb.steps(due + 4 - early - tb.cycle)
        await tb.step({"scope": ONE, "asid": 1, "vpn": 0x30})
        for look in await tb.rest(limit=200):
            tb.check(look)


@cocotb.test(**LIMIT)
async def takes_the_place_of_its_parts(dut):
    """A new page replaces a smaller one that it contains, and no other, even if all places are
    taken (ASID-11)."""
    tb = await L1Testbench(dut).start()
    part = tb.map(Mapping(1, 0, 0, 0x40_0000))
    others = [tb.map(Mapping(1, n << 22, n % 3, n << 22)) for n in range(1, ENTRIES)]
    tb.look(*(Look(1, page.va) for page in (*others, part)))
    await tb.rest()
    assert len(tb.asked) == ENTRIES
    tb.mappings.remove(part)
    whole = tb.map(Mapping(1, 0, 1, 0x40_0000))
    tb.look(Look(1, 0x1000))
    await tb.rest()
    assert len(tb.asked) == ENTRIES + 1
    tb.look(*(Look(1, page.va) for page in (whole, *others)))
    for look in await tb.rest():
        tb.check(look)
    assert len(tb.asked) == ENTRIES + 1, "other pages were evicted"


@cocotb.test(**LIMIT)
async def spaces_do_not_mix(dut):
    """The same page is translated differently in every address space (ASID-3; example 1)."""
    tb = await L1Testbench(dut).start()
    for asid in range(CONFIG.asids):
        tb.map(Mapping(asid, 0, 0, asid << 12))
    for _ in range(3):
        tb.look(*(Look(asid, 0x10) for asid in range(CONFIG.asids)))
        for look in await tb.rest():
            tb.check(look)
    assert len(tb.asked) == CONFIG.asids or ENTRIES < CONFIG.asids


@cocotb.test(**LIMIT)
async def scopes(dut):
    """An invalidation removes exactly the entries in its scope (ASID-9)."""
    tb = await L1Testbench(dut).start()
    pages = [tb.map(Mapping(1 + n % 2, n << 22, n // 2, n << 21)) for n in range(4)]
    pages = pages[: min(4, ENTRIES)]
    looks = [(page.asid, page.va) for page in pages]

    async def asked_again() -> list[int]:
        before = len(tb.asked)
        tb.look(*(Look(*look) for look in looks))
        await tb.rest()
        found = [one[1:] for one in tb.asked[before:]]
        return [n for n, (asid, va) in enumerate(looks) if (asid, va >> 12) in found]

    everything = list(range(len(pages)))
    assert await asked_again() == everything
    assert await asked_again() == []
    await tb.step({"scope": ASID, "asid": 1, "vpn": 0})
    assert await asked_again() == [n for n in everything if looks[n][0] == 1]
    for n, page in enumerate(pages):
        inside = page.va + (1 << SHIFTS[page.size]) - 1
        await tb.step({"scope": ONE, "asid": page.asid, "vpn": inside >> 12})
        assert await asked_again() == [n]
        await tb.step({"scope": ONE, "asid": page.asid, "vpn": (inside >> 12) + 1})
        await tb.step({"scope": ONE, "asid": page.asid ^ 3, "vpn": inside >> 12})
        assert await asked_again() == []
    await tb.step({"scope": ALL, "asid": 0, "vpn": 0})
    assert await asked_again() == everything


@cocotb.test(**LIMIT)
async def others_lose_nothing(dut):
    """If a page replaces a page of another space that is invalidated in any cycle around the
    replacement, by space or by page, the new page remains (ASID-9)."""
    tb = await L1Testbench(dut).start()
    tb.latency = (8, 8)
    old = [tb.map(Mapping(1, n << 12, 0, n << 12)) for n in range(ENTRIES)]
    new = tb.map(Mapping(2, 0x5000, 0, 0x7000))
    for scope, offset, emptied in itertools.product((ASID, ONE), range(14), (False, True)):
        await tb.step({"scope": ALL})
        tb.look(*(Look(1, page.va) for page in old))
        await tb.rest()
        if emptied:
            await tb.step({"scope": ASID, "asid": 1})
            await tb.steps(4)
        asked = len(tb.asked)
        tb.look(Look(2, new.va))
        await tb.steps(offset)
        await tb.step({"scope": scope, "asid": 1, "vpn": 0})
        await tb.rest()
        tb.look(Look(2, new.va))
        for look in await tb.rest():
            tb.check(look)
        assert len(tb.asked) == asked + 1, (scope, offset, emptied)


@cocotb.test(**LIMIT)
async def anything(dut):
    """Every answer is current, for look-ups of every kind, while pages come, change and go."""
    tb = await L1Testbench(dut).start()
    numbers, rounds = tb.random, Rounds(20)
    kinds: set[tuple[Outcome, int]] = set()
    causes = NOT_MAPPED, PRIV, RO, REGION, NO_ATOMICS
    every = {(PAGE, 0), (SPARSE, 0), *((FAULT, cause) for cause in causes)}
    while rounds.more(kinds == every, every - kinds):
        tb.latency = numbers.choice(((1, 1), (1, 8), (5, 60)))
        tb.answer.pace = tb.share(numbers.choice((0.3, 1.0)))
        tb.request.pace = tb.share(numbers.choice((0.3, 1.0)))
        tb.miss.pace = tb.share(numbers.choice((0.2, 1.0)))
        tb.retries = numbers.choice((0.0, 0.3))
        for _ in range(60):
            await random_change(tb)
            for _ in range(numbers.randrange(6)):
                tb.look(random_look(tb))
            await tb.steps(numbers.randrange(10))
        for look in await tb.rest():
            tb.check(look)
            outcome = look.outcome
            kinds.add((outcome, look.fault if outcome == FAULT else 0))


REGION_BITS = 23
"""Number of address bits in the random test: four pages of the largest size."""


def random_look(tb: L1Testbench) -> Look:
    numbers = tb.random
    va = numbers.choice((0, 1 << 16, 1 << 21)) + numbers.randrange(6) * 0x1008
    look = Look(
        numbers.randrange(3),
        va if numbers.random() < 0.8 else numbers.getrandbits(REGION_BITS),
        numbers.choice((READ, WRITE, ATOMIC)),
        numbers.random() < 0.5,
    )
    if numbers.random() < 0.05:
        look.physical, look.va = True, numbers.getrandbits(34)
    return look


async def random_change(tb: L1Testbench) -> None:
    """Map a page, or unmap a page with a sufficient invalidation."""
    numbers = tb.random
    size = numbers.choice((0, 0, 0, 1, 2))
    asid = numbers.randrange(3)
    va = (random_look(tb).va & (1 << REGION_BITS) - 1) >> SHIFTS[size] << SHIFTS[size]
    inside = range(va, va + (1 << SHIFTS[size]))
    live = [
        m
        for m in tb.mappings
        if m.gone == float("inf")
        and m.asid == asid
        and (m.va in inside or va in range(m.va, m.va + (1 << SHIFTS[m.size])))
    ]
    if not live:
        pa = numbers.getrandbits(32) >> SHIFTS[size] << SHIFTS[size]
        flags = [numbers.random() < 0.15 for _ in range(3)]
        tb.map(Mapping(asid, va, size, pa, *flags))
    elif len(live) == 1 and numbers.random() < 0.3:
        (page,) = live
        page.gone = tb.cycle
        offset = numbers.randrange(1 << SHIFTS[page.size])
        scope = numbers.choice((ALL, ASID, ONE, ONE))
        await tb.step({"scope": scope, "asid": asid, "vpn": (page.va + offset) >> 12})
