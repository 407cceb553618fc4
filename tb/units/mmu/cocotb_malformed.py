"""Malformed page tables: nothing hangs, and accesses on the bus agree with the tables' bits
(ASID-5, ASID-7)."""

from collections import Counter
from random import Random
from typing import Any

import cocotb
import numpy as np

from signalbox.tb.models.pagetables import Fault, Sparse, Translation, walk
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.sample import fewer
from signalbox.tb.units.mmu.clients import FAULT, Burst
from signalbox.tb.units.mmu.history import NO_PAGE, POISONED, READ, REGION, Event, refusal
from signalbox.tb.units.mmu.testbench import (
    ASIDS,
    BAD,
    BEAT,
    LAST,
    MEMORY,
    TABLES,
    MemorySystemTestbench,
)

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

GARBAGE = range(0, 0xA0_0000)
"""Region with malformed tables; part of it cannot be read."""

SOUND = 2
"""The space with valid tables."""


class Words:
    """The data that a walk reads: memory at the current time."""

    def __init__(self, tb: MemorySystemTestbench) -> None:
        self.tb = tb

    def load(self, address: int) -> int | None:
        """Read 8 bytes; the bus returns whole beats."""
        if address // BEAT * BEAT in self.tb.broken:
            return None
        return int.from_bytes(self.tb.memory_read(address, 8), "little")


class Walks:
    """Replaces a `History`: tables do not change during traffic, so a walk gives the expected
    result of each burst."""

    def __init__(self, tb: MemorySystemTestbench) -> None:
        self.words, self.roots = Words(tb), dict[int, int]()

    def walk(self, burst: Burst) -> Translation | Sparse | Fault:
        return walk(self.words.load, MEMORY, self.roots[burst.asid], burst.va)

    def reads(self, burst: Burst, places: list[range]) -> bool:
        """Whether the walk reads any of these tables."""
        read = list[int]()

        def load(address: int) -> int | None:
            read.append(address)
            return self.words.load(address)

        walk(load, MEMORY, self.roots[burst.asid], burst.va)
        return any(address in place for address in read for place in places)

    def check_access(self, burst: Burst, kind: int, address: int | None) -> None:
        wanted = self.walk(burst)
        if address is None:
            assert isinstance(wanted, Sparse), (burst, wanted)
            return
        assert isinstance(wanted, Translation), (burst, hex(address), wanted)
        assert address == wanted.pa // BEAT * BEAT, (burst, hex(address), wanted)
        assert permission(wanted, kind) is None, (burst, wanted)

    def check_fault(self, burst: Burst, kind: int, event: Event) -> None:
        wanted = self.walk(burst)
        code = wanted.code if isinstance(wanted, Fault) else permission(wanted, kind)
        assert event.cause == code, (burst, event, wanted)

    def check_record(self, burst: Burst, event: Event) -> None:
        """No record to check: records are disabled, as they would change tables."""
        raise AssertionError(event)


def permission(found: Translation | Sparse, kind: int) -> int | None:
    if isinstance(found, Sparse):
        return None
    return refusal(
        kind,
        privileged=found.privileged,
        read_only=found.read_only,
        atomics=not found.atomic_disable,
    )


def garbage(rng: Random, count: int, style: str) -> bytes:
    """Words of tables: random, or chosen so that many point into memory."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    words = numbers.integers(0, 1 << 64, count, dtype=np.uint64)
    if style == "random":
        return words.tobytes()
    near = words & np.uint64(0xF_FFFF)
    tables = near & ~np.uint64(7) | np.uint64(2)
    pages = near & ~np.uint64(7) | np.uint64(1)
    share = {"tables": (0.85, 0.05), "mixed": (0.5, 0.2), "pages": (0.3, 0.5)}[style]
    dice = numbers.random(count)
    words = np.where(dice < share[0], tables, words)
    words = np.where((dice >= share[0]) & (dice < sum(share)), pages, words)
    return np.where((dice >= sum(share)) & (dice < sum(share) + 0.1), near, words).tobytes()


async def begin(dut: Any, share: float = 1.0) -> MemorySystemTestbench:
    """A testbench with one valid space and without records of faults."""
    tb = MemorySystemTestbench(dut, share=share)
    tb.drive(faults__enable=0)
    await tb.start()
    sound = tb.tables()
    for page in range(8):
        tb.map(sound, page << 12, 0xA0_0000 + (page << 12))
    await tb.bind(SOUND, sound)
    tb.history = walks = Walks(tb)  # type: ignore[assignment]
    walks.roots[SOUND] = sound.root
    return tb


async def point(tb: MemorySystemTestbench, asid: int, root: int) -> None:
    """Bind a space to an address that may contain a table."""
    assert await tb.requesters[0].ask(3, asid=asid, base=root)
    tb.history.roots[asid] = root  # type: ignore[attr-defined]


def candidates(tb: MemorySystemTestbench, asid: int, wanted: int) -> list[int]:
    """Random addresses, half of which reach deep levels."""
    walks, rng = tb.history, tb.random
    chosen, far = [], []
    for _ in range(60 * wanted):
        va = rng.randrange(LAST)
        found = walks.walk(Burst(va, 1, asid=asid))  # type: ignore[attr-defined]
        deep = not isinstance(found, Fault) or found.reads >= 4
        (far if deep else chosen).append(va)
        if len(far) == wanted:
            break
    return [*far[:wanted], *chosen[:wanted]]


async def traffic(
    tb: MemorySystemTestbench, places: list[tuple[int, int]], count: int
) -> list[tuple[str, Burst]]:
    """Bursts at some of these spaces and addresses, including those of the valid space. No byte is
    written, so that tables do not change. Returns the bursts in other spaces, with outcomes."""
    rng = tb.random
    for ports, writes in ((tb.readers, False), (tb.writers, True)):
        for port in ports:
            for _ in range(count):
                asid, va = rng.choice(places)
                if rng.random() < 0.25:
                    asid, va = SOUND, rng.randrange(0x8000)
                va = va & ~0xFF | rng.randrange(256)
                atomic = rng.random() < 0.1
                # Distinguishes reports of a client's two ports.
                va = va & ~0x800 | writes << 11 if atomic else va
                options = {"asid": asid, "atomic": atomic}
                options |= {"strobe": 0} if writes else {}
                port.todo.append(tb.burst_at(va, 4, writes=writes, **options))
    outcomes = []
    for _, burst, event in await tb.finish():
        assert burst.asid != SOUND or (event is None and burst.answer[-1][1] != FAULT), burst
        if burst.asid != SOUND:
            outcomes.append((f"fault {event.cause}" if event else "access", burst))
    return outcomes


@cocotb.test(**LIMIT)
@cocotb.parametrize(style=["random", "tables", "mixed", "pages"], share=[0.6, 1.0])
async def random_words(dut, style, share):
    """With tables of random words everywhere, nothing hangs and accesses agree with the tables:
    several faults, and accesses too unless all words are random."""
    tb = await begin(dut, share)
    met, pages, rounds = Counter[str](), style != "random", Rounds(fewer(3, 3))
    while rounds.more(len(met) >= (5 if pages else 3) and met["access"] >= 10 * pages, met):
        words = len(GARBAGE) // 8
        tb.memory_write(GARBAGE.start, garbage(tb.random, words, style))
        places = []
        for asid in (0, 1):
            root = tb.random.randrange(GARBAGE.start, GARBAGE.stop, 4096)
            await point(tb, asid, root)
            places += [(asid, va) for va in candidates(tb, asid, 12)]
        met += Counter(what for what, _ in await traffic(tb, places, 20))
    cocotb.log.info(f"{style}: {dict(sorted(met.items()))}")


@cocotb.test(**LIMIT)
@cocotb.parametrize(
    level=["PD3", "PD2", "PD1", "PD0", "PT 64K", "PT 4K"], style=["random", "mixed"]
)
async def one_level(dut, level, style):
    """With valid tables except for one level, which has random words, nothing hangs and accesses
    agree with the tables; walks that read this level have several outcomes, and some that no valid
    table has."""
    tb = await begin(dut)
    tb.memory_write(GARBAGE.start, garbage(tb.random, len(GARBAGE) // 8, "pages"))
    pages = [(0, 12), (0x1000, 12), (0x10_0000, 16), (0x20_0000, 21), (1 << 40, 12), (1 << 48, 16)]
    pages += [(3 << 29, 29), (5 << 45, 29)]
    usual = {"access", *(f"fault {code}" for code in (*NO_PAGE, REGION))}
    met, rounds = Counter[str](), Rounds(fewer(3, 3))
    while rounds.more(len(met) >= 3 and not {*met} <= usual, met):
        tables = tb.tables()
        for va, size in pages:
            pa = 0 if size == 29 else 0x80_0000
            tables.map(va, pa, 1 << size, page_size=1 << size)
        garbled = tables.named(level)
        for place in garbled:
            tb.memory_write(place.start, garbage(tb.random, len(place) // 8, style))
        await point(tb, 0, tables.root)
        near = [va + tb.random.randrange(1 << 23) for va, _ in pages]
        inside = [va + tb.random.randrange(min(1 << size, 2 * MEMORY)) for va, size in pages]
        places = [*near, *inside, *candidates(tb, 0, 6)]
        outcomes = await traffic(tb, [(0, va) for va in places], 12)
        walks: Walks = tb.history  # type: ignore[assignment]
        met += Counter(what for what, burst in outcomes if walks.reads(burst, garbled))
    cocotb.log.info(f"{level}: {dict(sorted(met.items()))}")


@cocotb.test(**LIMIT)
async def cannot_be_read(dut):
    """If the tables of any one level cannot be read, the access is reported as poisoned."""
    tb = await begin(dut)
    tables = tb.tables()
    tables.map(0, 0x80_0000, 1 << 12)
    tables.map(0x10_0000, 0x80_0000, 1 << 16, page_size=1 << 16)
    await point(tb, 0, tables.root)
    for level in ("PD3", "PD2", "PD1", "PD0", "PT 64K", "PT 4K"):
        (place,) = tables.named(level)
        tb.broken.ranges.append(place)
        await point(tb, 0, tables.root)
        va = 0x10_0000 if level == "PT 64K" else 0
        tb.readers[0].todo.append(Burst(va, 1, asid=0))
        ((_, _, event),) = await tb.finish()
        assert event is not None and event.cause == POISONED, level
        await traffic(tb, [(0, va)], 4)
        tb.broken.ranges.remove(place)


@cocotb.test(**LIMIT)
async def itself(dut):
    """A directory that refers to itself, and a table that is also a page, are walked as usual, in
    each of two spaces."""
    tb = await begin(dut)
    root, last = 0x1_0000, 511
    assert root not in BAD and root < TABLES and READ == 0
    table, page = ((root >> 4 | bit).to_bytes(8, "little") for bit in (2, 1))
    tb.memory_write(root, table * last + page)
    spaces = (0, ASIDS - 1 if ASIDS > 3 else 1)
    for asid in spaces:
        await point(tb, asid, root)
        # The entry of a page, and of a directory.
        for number, outcome in ((last, "page"), (0, f"fault {NO_PAGE[1]}")):
            before = tb.counts.get(outcome, 0)
            tb.readers[0].todo.append(Burst(number << 12, 1, asid=asid))
            await tb.finish()
            assert tb.counts.get(outcome, 0) == before + 1
    places = [(asid, tb.random.randrange(LAST)) for asid in spaces for _ in range(8)]
    places += [(asid, tb.random.randrange(last) << 29 | last << 12) for asid in spaces]
    await traffic(tb, places, 20)
