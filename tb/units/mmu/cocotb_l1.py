"""First-level TLB: every answer is a current translation, and hits are fast (ASID-3, -4, -8 … -11).

The next level and the page tables are modelled in Python: a dictionary per address space, with the
cycles from and to which a page may be used.
"""

import itertools
import os
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

import cocotb
from amaranth.lib import data
from cocotb.triggers import ReadOnly, RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.mmu.l1_tlb import L1Tlb
from signalbox.tb.models.replacement import PseudoLru
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.reset import reset
from signalbox.tb.units.mmu.patterns import patterns

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

CONFIG = Config(asids=8)
TAG = data.StructLayout({"number": 16})
ENTRIES, MISSES = int(os.environ.get("ENTRIES", "16")), int(os.environ.get("MISSES", "4"))

PAGE, FAULT, SPARSE, RETRY = range(4)
READ, WRITE, ATOMIC = range(3)
ALL, ASID, ONE = range(3)
SHIFTS = (12, 16, 21)
NOT_MAPPED, PRIV, RO, REGION, NO_ATOMICS = 2, 5, 6, 13, 15


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
    access: int = READ
    privileged: bool = False
    physical: bool = False
    issued: int = -1
    answered: int = -1
    answer: dict[str, int] = field(default_factory=dict)


class Bench:
    """Testbench that drives the unit cycle by cycle and models the next level.

    Members
    -------
    mappings : all pages so far.
    tables : current pages.
    latency : range of the cycles from a miss to its result.
    eager, keen : fractions of cycles in which answers, and misses, are accepted.
    retries : fraction of results that request a retry.
    asked : (cycle, asid, page number) of every miss.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut, self.numbers = dut, Random(seed)
        members = L1Tlb(CONFIG, TAG, entries=ENTRIES, misses=MISSES).signature.members
        self.shapes = {
            name: members[name].signature.members["payload"].shape
            for name in ("request", "answer", "miss", "result")
        }
        self.shapes |= {name: members[name].shape for name in ("invalidate", "hit", "missed")}
        self.now = 0
        self.mappings: list[Mapping] = []
        self.todo: list[Look] = []
        self.waiting: dict[int, Look] = {}
        self.done: list[Look] = []
        self.misses: list[tuple[int, int, int, int]] = []
        self.asked: list[tuple[int, int, int]] = []
        self.latency, self.eager, self.numbering = (1, 1), 1.0, itertools.count()
        self.keen, self.retries = 1.0, 0.0
        self.offered: tuple[int, Look] | None = None
        self.pace = 1.0
        self.fresh: deque[Look] = deque()
        """Look-ups that were taken, and neither answered nor reported as waiting."""
        self.waited: set[int] = set()
        """The waiting ones of `waiting`, by `id`."""

    @classmethod
    async def start(cls, dut: Any) -> "Bench":
        bench = cls(dut, int(os.environ["COCOTB_RANDOM_SEED"]))
        for name in ("request__valid", "answer__ready", "result__valid", "invalidate"):
            getattr(dut, name).value = 0
        dut.miss__ready.value = 1
        await reset(dut)
        return bench

    @staticmethod
    def sparse(va: int) -> bool:
        """Whether an unmapped page at `va` is a sparse one."""
        return bool(va >> 13 & 1)

    # Page tables

    def map(self, mapping: Mapping) -> Mapping:
        mapping.born = self.now
        self.mappings.append(mapping)
        return mapping

    def current(self, asid: int, va: int) -> Mapping | None:
        live = (m for m in self.mappings if m.gone == float("inf") and m.has(asid, va))
        return next(live, None)

    # Cycles

    async def step(self, invalidate: dict[str, int] | None = None) -> None:
        """One cycle."""
        dut = self.dut
        self._offer()
        self._result()
        dut.answer__ready.value = int(self.numbers.random() < self.eager)
        dut.miss__ready.value = int(self.numbers.random() < self.keen)
        word = self.shapes["invalidate"].const({"valid": 1, **invalidate}) if invalidate else None
        dut.invalidate.value = word.as_bits() if word is not None else 0
        await ReadOnly()
        self._sample()
        await RisingEdge(dut.clk)
        self.now += 1

    def _offer(self) -> None:
        if self.offered is None and self.todo and self.numbers.random() < self.pace:
            look = self.todo.pop(0)
            number = next(self.numbering) & 0xFFFF
            self.offered = number, look
            look.issued = self.now
        self.dut.request__valid.value = int(self.offered is not None)
        if self.offered is not None:
            number, look = self.offered
            self.dut.request__payload.value = (
                self
                .shapes["request"]
                .const({
                    "tag": {"number": number},
                    "asid": look.asid,
                    "va": look.va,
                    "access": look.access,
                    "privileged": look.privileged,
                    "physical": look.physical,
                })
                .as_bits()
            )

    def _result(self) -> None:
        """Return the oldest result that is due, from the tables of the current cycle."""
        due = next((miss for miss in self.misses if miss[0] <= self.now), None)
        self.due = due
        self.dut.result__valid.value = int(due is not None)
        if due is None:
            return
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
        word = self.shapes["result"].const({"miss": number, **values})
        self.dut.result__payload.value = word.as_bits()

    def _unpack(self, name: str) -> Any:
        value = getattr(self.dut, f"{name}__payload").value.to_unsigned()
        return self.shapes[name].from_bits(value)

    def _sample(self) -> None:
        dut = self.dut
        taken = self.offered if self.offered and dut.request__ready.value == 1 else None
        if taken:
            self.waiting[taken[0]] = taken[1]
            self.offered = None
        if self.due and dut.result__ready.value == 1:
            self.misses.remove(self.due)
        if dut.miss__valid.value == 1 and dut.miss__ready.value == 1:
            miss = self._unpack("miss")
            page = (miss.asid, miss.vpn)
            assert page not in [one[2:] for one in self.misses], "a page is requested twice"
            assert miss.miss not in [one[1] for one in self.misses]
            when = self.now + self.numbers.randint(*self.latency)
            self.misses.append((when, miss.miss, *page))
            self.asked.append((self.now, *page))
        answered = None
        if dut.answer__valid.value == 1 and dut.answer__ready.value == 1:
            answer = self._unpack("answer")
            look = self.waiting.pop(answer.tag.number)
            look.answered = self.now
            look.answer = {
                name: int(getattr(answer[name], "value", answer[name]))
                for name in ("outcome", "pa", "fault")
            }
            self.done.append(look)
            answered = look
        self._count(answered)
        if taken:
            self.fresh.append(taken[1])

    def _count(self, answered: Look | None) -> None:
        """Check the strobes for counters: each look-up that is not physical is reported once, as
        answered immediately or as waiting."""
        hit, missed = (
            self.shapes[name].from_bits(int(getattr(self.dut, name).value))
            for name in ("hit", "missed")
        )
        assert not (hit.valid and missed.valid)
        if hit.valid or missed.valid:
            look = self.fresh.popleft()
            assert not look.physical and look.asid == (hit if hit.valid else missed).asid
            assert (look is answered) == bool(hit.valid), "neither answered at once nor waiting"
            if missed.valid:
                self.waited.add(id(look))
        elif answered is not None and answered.physical:
            assert self.fresh.popleft() is answered
        elif answered is not None:
            assert id(answered) in self.waited, "answered at once, and not told"
            self.waited.remove(id(answered))

    async def rest(self, limit: int = 20_000) -> list[Look]:
        """Step until everything is answered. Returns the look-ups since the last call."""
        end = self.now + limit
        while self.todo or self.offered or self.waiting:
            assert self.now < end, f"no answer: {self.waiting}"
            await self.step()
        done, self.done = self.done, []
        return done

    # Checks

    def check(self, look: Look) -> None:
        """Check that the answer agrees with a mapping that was valid between request and answer."""
        outcome, fault = look.answer["outcome"], look.answer["fault"]
        if look.physical:
            right = look.va < CONFIG.memory_bytes
            assert (outcome, look.answer["pa"]) == (PAGE, look.va) if right else fault == REGION
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
            assert (PAGE, look.answer["pa"]) in usable, (look, candidates)
        elif outcome == SPARSE or fault == NOT_MAPPED:
            assert (outcome == SPARSE) == self.sparse(look.va)
            always = any(m.born <= look.issued and m.gone >= look.answered for m in candidates)
            assert not always, (look, candidates)
        else:
            assert (FAULT, fault) in expected, (look, candidates)

    @staticmethod
    def expected(mapping: Mapping, look: Look) -> tuple[int, int]:
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
    bench = await Bench.start(dut)
    pages = [bench.map(Mapping(n % 3, n << 22, n % 3, n << 21)) for n in range(ENTRIES)]
    for _ in range(2):
        bench.todo += [Look(page.asid, page.va + 8) for page in pages]
        for look in await bench.rest():
            bench.check(look)
    asked = len(bench.asked)
    assert asked == ENTRIES
    bench.todo += [
        Look(page.asid, page.va + bench.numbers.randrange(4096))
        for page in bench.numbers.choices(pages, k=200)
    ]
    looks = await bench.rest()
    assert [look.answered - look.issued for look in looks] == [1] * 200
    assert len(bench.asked) == asked
    for look in looks:
        bench.check(look)


@cocotb.test(**LIMIT)
async def as_good_as_pseudo_lru(dut):
    """With single look-ups in several patterns, some with invalidations of single pages, there are
    no more misses than in a tree pseudo-LRU of the same size (ASID-11)."""
    bench, model = await Bench.start(dut), PseudoLru(ENTRIES)
    for share in (0.0, 0.05):
        for name, numbers in patterns(bench.numbers, ENTRIES):
            before, expected = len(bench.asked), 0
            for number in numbers:
                asid, va = number % 3, number << 12
                page = bench.current(asid, va) or bench.map(Mapping(asid, va, 0, va))
                bench.todo.append(Look(asid, va))
                (look,) = await bench.rest()
                bench.check(look)
                expected += not model.access(number)
                if bench.numbers.random() < share:
                    model.remove(number)
                    await bench.step({"scope": ONE, "asid": asid, "vpn": page.va >> 12})
                    # A page that has just become invalid is not used immediately.
                    for _ in range(3):
                        await bench.step()
            missed = len(bench.asked) - before
            cocotb.log.info("%s: %d misses, pseudo-LRU %d", name, missed, expected)
            assert missed <= expected, (name, missed, expected)


@cocotb.test(**LIMIT)
async def hits_under_misses(dut):
    """While there is room for two more misses, hits are answered in the next cycle, one per cycle;
    with room for one, in every second cycle."""
    bench = await Bench.start(dut)
    page = bench.map(Mapping(1, 0, 0, 0x5000))
    bench.todo.append(Look(1, 0))
    await bench.rest()
    bench.latency = (300, 300)
    for room in (2, 1):
        missing = [Look(2, (n + 1) << 12) for n in range(MISSES - room)]
        for look in missing:
            if bench.current(2, look.va) is None:
                bench.map(Mapping(2, look.va, 0, 0x9000))
        await bench.step({"scope": ASID, "asid": 2, "vpn": 0})
        hits = [Look(1, page.va + 4 * n) for n in range(100)]
        bench.todo += [*missing, *hits]
        done = await bench.rest()
        assert done[:100] == hits
        gaps = [b.answered - a.answered for a, b in itertools.pairwise(hits)]
        assert max(gaps) == 3 - room
        assert all(look.answered - look.issued >= 300 for look in missing)
        for look in done:
            bench.check(look)


@cocotb.test(**LIMIT)
async def one_page_is_asked_for_once(dut):
    """Look-ups of a page that has been requested do not request it again; all get it (ASID-4)."""
    bench = await Bench.start(dut)
    bench.map(Mapping(3, 0, 0, 0x7000))
    bench.latency = (50, 50)
    bench.todo += [Look(3, 8 * n) for n in range(MISSES)]
    for look in await bench.rest():
        bench.check(look)
    assert len(bench.asked) == 1


@cocotb.test(**LIMIT, skip=MISSES < 4)
async def followers_are_not_forgotten(dut):
    """If a result is out of date when it arrives, and its requester then hits a smaller page, the
    followers are looked up again too."""
    bench = await Bench.start(dut)
    for early in range(8):
        bench.mappings.clear()
        await bench.step({"scope": ALL})
        bench.map(Mapping(1, 0, 1, 0x40_0000))
        bench.latency = (30, 30)
        bench.todo += [Look(1, 0x1000), Look(1, 0x1008)]
        while not bench.misses:
            await bench.step()
        ((due, *_),) = bench.misses
        bench.latency = (3, 3)
        bench.todo.append(Look(1, 0x2000))
        while not bench.done:
            await bench.step()
        # The tables now have a page of 2 MiB, whose parts are invalidated individually.
        bench.mappings.insert(0, Mapping(1, 0, 2, 0x80_0000, born=bench.now))
        while bench.now < due + 4 - early:
            await bench.step()
        await bench.step({"scope": ONE, "asid": 1, "vpn": 0x30})
        for look in await bench.rest(limit=200):
            bench.check(look)


@cocotb.test(**LIMIT)
async def takes_the_place_of_its_parts(dut):
    """A new page replaces a smaller one that it contains, and no other, even if all places are
    taken (ASID-11)."""
    bench = await Bench.start(dut)
    part = bench.map(Mapping(1, 0, 0, 0x40_0000))
    others = [bench.map(Mapping(1, n << 22, n % 3, n << 22)) for n in range(1, ENTRIES)]
    bench.todo += [Look(1, page.va) for page in (*others, part)]
    await bench.rest()
    assert len(bench.asked) == ENTRIES
    bench.mappings.remove(part)
    whole = bench.map(Mapping(1, 0, 1, 0x40_0000))
    bench.todo.append(Look(1, 0x1000))
    await bench.rest()
    assert len(bench.asked) == ENTRIES + 1
    bench.todo += [Look(1, page.va) for page in (whole, *others)]
    for look in await bench.rest():
        bench.check(look)
    assert len(bench.asked) == ENTRIES + 1, "other pages were evicted"


@cocotb.test(**LIMIT)
async def spaces_do_not_mix(dut):
    """The same page is translated differently in every address space (ASID-3; example 1)."""
    bench = await Bench.start(dut)
    for asid in range(CONFIG.asids):
        bench.map(Mapping(asid, 0, 0, asid << 12))
    for _ in range(3):
        bench.todo += [Look(asid, 0x10) for asid in range(CONFIG.asids)]
        for look in await bench.rest():
            bench.check(look)
    assert len(bench.asked) == CONFIG.asids or ENTRIES < CONFIG.asids


@cocotb.test(**LIMIT)
async def scopes(dut):
    """An invalidation removes exactly the entries in its scope (ASID-9)."""
    bench = await Bench.start(dut)
    pages = [bench.map(Mapping(1 + n % 2, n << 22, n // 2, n << 21)) for n in range(4)]
    pages = pages[: min(4, ENTRIES)]
    looks = [(page.asid, page.va) for page in pages]

    async def asked_again() -> list[int]:
        before = len(bench.asked)
        bench.todo += [Look(*look) for look in looks]
        await bench.rest()
        found = [one[1:] for one in bench.asked[before:]]
        return [n for n, (asid, va) in enumerate(looks) if (asid, va >> 12) in found]

    everything = list(range(len(pages)))
    assert await asked_again() == everything
    assert await asked_again() == []
    await bench.step({"scope": ASID, "asid": 1, "vpn": 0})
    assert await asked_again() == [n for n in everything if looks[n][0] == 1]
    for n, page in enumerate(pages):
        inside = page.va + (1 << SHIFTS[page.size]) - 1
        await bench.step({"scope": ONE, "asid": page.asid, "vpn": inside >> 12})
        assert await asked_again() == [n]
        await bench.step({"scope": ONE, "asid": page.asid, "vpn": (inside >> 12) + 1})
        await bench.step({"scope": ONE, "asid": page.asid ^ 3, "vpn": inside >> 12})
        assert await asked_again() == []
    await bench.step({"scope": ALL, "asid": 0, "vpn": 0})
    assert await asked_again() == everything


@cocotb.test(**LIMIT)
async def others_lose_nothing(dut):
    """If a page replaces one of another space, which is invalidated in any cycle around that, by
    scope of space or page, the new one remains (ASID-9)."""
    bench = await Bench.start(dut)
    bench.latency = (8, 8)
    old = [bench.map(Mapping(1, n << 12, 0, n << 12)) for n in range(ENTRIES)]
    new = bench.map(Mapping(2, 0x5000, 0, 0x7000))
    for scope, offset, emptied in itertools.product((ASID, ONE), range(14), (False, True)):
        await bench.step({"scope": ALL})
        bench.todo += [Look(1, page.va) for page in old]
        await bench.rest()
        if emptied:
            await bench.step({"scope": ASID, "asid": 1})
            for _ in range(4):
                await bench.step()
        asked = len(bench.asked)
        bench.todo.append(Look(2, new.va))
        for _ in range(offset):
            await bench.step()
        await bench.step({"scope": scope, "asid": 1, "vpn": 0})
        await bench.rest()
        bench.todo.append(Look(2, new.va))
        for look in await bench.rest():
            bench.check(look)
        assert len(bench.asked) == asked + 1, (scope, offset, emptied)


@cocotb.test(**LIMIT)
async def anything(dut):
    """Every answer is current, for look-ups of every kind while pages come, change and go."""
    bench = await Bench.start(dut)
    numbers, rounds = bench.numbers, Rounds(20)
    kinds: set[tuple[int, int]] = set()
    causes = NOT_MAPPED, PRIV, RO, REGION, NO_ATOMICS
    every = {(PAGE, 0), (SPARSE, 0), *((FAULT, cause) for cause in causes)}
    while rounds.more(kinds == every, every - kinds):
        bench.latency = numbers.choice(((1, 1), (1, 8), (5, 60)))
        bench.eager, bench.pace = numbers.choice((0.3, 1.0)), numbers.choice((0.3, 1.0))
        bench.keen, bench.retries = numbers.choice((0.2, 1.0)), numbers.choice((0.0, 0.3))
        for _ in range(60):
            await random_change(bench)
            for _ in range(numbers.randrange(6)):
                bench.todo.append(random_look(bench))
            for _ in range(numbers.randrange(10)):
                await bench.step()
        for look in await bench.rest():
            bench.check(look)
            outcome = look.answer["outcome"]
            kinds.add((outcome, look.answer["fault"] if outcome == FAULT else 0))


REGION_BITS = 23
"""Addresses of the random test have this many bits, which is four of the largest pages."""


def random_look(bench: Bench) -> Look:
    numbers = bench.numbers
    va = numbers.choice((0, 1 << 16, 1 << 21)) + numbers.randrange(6) * 0x1008
    look = Look(
        numbers.randrange(3),
        va if numbers.random() < 0.8 else numbers.getrandbits(REGION_BITS),
        numbers.randrange(3),
        numbers.random() < 0.5,
    )
    if numbers.random() < 0.05:
        look.physical, look.va = True, numbers.getrandbits(34)
    return look


async def random_change(bench: Bench) -> None:
    """Map a page, or unmap one with a sufficient invalidation."""
    numbers = bench.numbers
    size = numbers.choice((0, 0, 0, 1, 2))
    asid = numbers.randrange(3)
    va = (random_look(bench).va & (1 << REGION_BITS) - 1) >> SHIFTS[size] << SHIFTS[size]
    inside = range(va, va + (1 << SHIFTS[size]))
    live = [
        m
        for m in bench.mappings
        if m.gone == float("inf")
        and m.asid == asid
        and (m.va in inside or va in range(m.va, m.va + (1 << SHIFTS[m.size])))
    ]
    if not live:
        pa = numbers.getrandbits(32) >> SHIFTS[size] << SHIFTS[size]
        flags = [numbers.random() < 0.15 for _ in range(3)]
        bench.map(Mapping(asid, va, size, pa, *flags))
    elif len(live) == 1 and numbers.random() < 0.3:
        (page,) = live
        page.gone = bench.now
        offset = numbers.randrange(1 << SHIFTS[page.size])
        scope = numbers.choice((ALL, ASID, ONE, ONE))
        await bench.step({"scope": scope, "asid": asid, "vpn": (page.va + offset) >> 12})
