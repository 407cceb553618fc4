"""The driver's page tables, checked by a walk written from the public tables (ASID-7)."""

import random

import pytest

from signalbox.driver.memory.page_tables import MapError, Page, PageTables
from signalbox.driver.memory.physical import Memory, OutOfMemory
from signalbox.hw.config import LIMITS, Config, ConfigError
from signalbox.hw.methods import pack
from signalbox.hw.page_tables import PAGE_SIZES, DualPde, FaultRecord, FaultType, Pde, Pte
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.models.pagetables import PDE, PTE, REGION, Fault, Sparse, Translation, walk
from signalbox.tb.simulation.runner import choose_seed

SMALL, BIG, HUGE, WHOLE = PAGE_SIZES


class Space:
    """Tables in a memory of their own, and walks over them."""

    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.memory = Memory(self.machine, len(self.machine.memory), base=4096)
        self.tables = PageTables(self.memory)

    def load(self, address: int) -> int:
        return int.from_bytes(self.machine.memory_read(address, 8), "little")

    def walk(self, va: int) -> Translation | Sparse | Fault:
        return walk(self.load, self.memory.size, self.tables.root, va)

    def expect(self, va: int, page: Page | None) -> None:
        """Check that the walk finds this page."""
        found = self.walk(va)
        if page is None:
            assert isinstance(found, Fault) and found.code in {PDE, PTE}, found
            return
        assert found == Translation(
            page.pa + va - page.va,
            page.size,
            page.read_only,
            page.privileged,
            not page.atomics,
        )


def test_bits():
    """Every field is at its position in the public tables (spec 6.1, 6.4)."""
    assert pack(Pde, aperture=1, address=0x123) == 0x12302
    assert pack(Pde, volatile=1) == 1 << 3
    assert pack(DualPde, big_aperture=1, big_address=5) == 1 << 1 | 5 << 4
    assert pack(DualPde, small_aperture=2, small_address=5) == 2 << 65 | 5 << 72
    assert pack(Pte, valid=1, aperture=2, address=7, kind=3) == 1 | 2 << 1 | 7 << 8 | 3 << 56
    flags = pack(Pte, volatile=1, encrypted=1, privileged=1, read_only=1, atomic_disable=1)
    assert flags == 0b1111_1000
    assert pack(FaultRecord, valid=1, client=5, access_type=1) == 1 << 255 | 5 << 232 | 1 << 240
    assert pack(FaultRecord, fault_type=FaultType.RO, engine=9) == 6 << 224 | 9 << 192
    assert pack(FaultRecord, instance=1, address=2, timestamp=3) == 1 << 12 | 2 << 76 | 3 << 128


@pytest.mark.parametrize("size", (SMALL, BIG, HUGE))
def test_pages(size: int):
    """Two pages of each size can be mapped at both ends of the address space."""
    space = Space()
    for va in (0, (1 << 49) - 2 * size):
        assert not space.tables.map(va, 2 * size, 2 * size, page_size=size)
        for offset in (0, 1, size - 1, size, 2 * size - 1):
            found = space.walk(va + offset)
            assert isinstance(found, Translation)
            assert (found.pa, found.page_bytes) == (2 * size + offset, size)
    space.expect(4 * size, None)
    assert space.tables.unmap(0, 2 * size)
    space.expect(0, None)


def test_largest_pages():
    """A page of 512 MiB is a PTE in PD1. It may extend past the end of memory, where accesses
    fault."""
    space = Space()
    tables, end = space.tables, space.memory.size
    for va in (0, (1 << 49) - WHOLE):
        assert not tables.map(va, 0, WHOLE, page_size=WHOLE, read_only=va == 0)
        page = Page(va, 0, WHOLE, read_only=va == 0)
        assert tables.find(va) == tables.find(va + WHOLE - 1) == page
        for offset in (0, 1, HUGE, end - 1):
            space.expect(va + offset, page)
        for offset in (end, end + HUGE, WHOLE - 1):
            assert space.walk(va + offset) == Fault(REGION, 3)
    space.expect(WHOLE, None)
    with pytest.raises(MapError, match=f"{SMALL} bytes at {WHOLE - SMALL:#x} cover only part"):
        tables.unmap(WHOLE - SMALL, SMALL)
    with pytest.raises(MapError, match="already mapped, by the page of 536870912 bytes at 0x0"):
        tables.map(HUGE, 0, SMALL)
    with pytest.raises(MapError, match="physical 0x20000000 are not whole pages"):
        tables.map(WHOLE, WHOLE, WHOLE, page_size=WHOLE)
    assert tables.protect(0, WHOLE, read_only=False) == [Page(0, 0, WHOLE, read_only=True)]
    space.expect(5, Page(0, 0, WHOLE))
    assert tables.unmap(0, WHOLE) == [Page(0, 0, WHOLE)]
    space.expect(0, None)
    space.expect((1 << 49) - WHOLE, page)


def test_largest_pages_replace_directories():
    """A page of 512 MiB replaces an empty PD0 with all its tables, but no mapped page; smaller
    pages can replace it in turn."""
    space = Space()
    tables = space.tables
    for va, size in ((SMALL, SMALL), (BIG, BIG), (HUGE, HUGE), (WHOLE - SMALL, SMALL)):
        tables.map(va, 0, size, page_size=size)
        with pytest.raises(MapError, match=f"{va:#x} is already mapped|0x0 is already mapped"):
            tables.map(0, 0, WHOLE, page_size=WHOLE)
        tables.unmap(va, size)
    free = space.memory.free_bytes
    assert tables.map(0, 0, WHOLE, page_size=WHOLE), "tables were replaced"
    assert space.memory.free_bytes == free, "walks may read them until the invalidation"
    tables.release()
    # PD0, a table of 64 KiB pages, two of 4 KiB pages.
    assert space.memory.free_bytes == free + 4096 + 256 + 2 * 4096
    space.expect(5 * HUGE // 2, Page(0, 0, WHOLE))
    tables.unmap(0, WHOLE)
    assert not tables.map(HUGE, 0, HUGE, page_size=HUGE)
    space.expect(HUGE, Page(HUGE, 0, HUGE))
    space.expect(2 * HUGE, None)


def test_sizes_side_by_side():
    """64 KiB and 4 KiB pages share a PD0 entry; a 2 MiB page replaces them, and they replace it."""
    space = Space()
    tables = space.tables
    tables.map(0, BIG, BIG, page_size=BIG)
    tables.map(BIG, 0, SMALL, read_only=True)
    space.expect(5, Page(0, BIG, BIG))
    space.expect(BIG + 5, Page(BIG, 0, SMALL, read_only=True))
    with pytest.raises(MapError, match="0x0 is already mapped"):
        tables.map(0, 0, HUGE, page_size=HUGE)
    tables.unmap(0, BIG + SMALL)
    free = space.memory.free_bytes
    assert tables.map(0, HUGE, HUGE, page_size=HUGE), "tables were replaced"
    assert space.memory.free_bytes == free, "walks may read them until the invalidation"
    tables.release()
    assert space.memory.free_bytes > free
    space.expect(HUGE - 1, Page(0, HUGE, HUGE))
    tables.unmap(0, HUGE)
    assert not tables.map(SMALL, 0, SMALL)
    space.expect(SMALL, Page(SMALL, 0, SMALL))


def test_protect():
    """Only pages with a changed permission need an invalidation."""
    space = Space()
    space.tables.map(0, 0, 2 * SMALL)
    assert space.tables.protect(0, SMALL, read_only=True)
    assert not space.tables.protect(0, SMALL, read_only=True)
    space.expect(0, Page(0, 0, SMALL, read_only=True))
    space.expect(SMALL, Page(SMALL, SMALL, SMALL))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda t: t.map(0, 0, 100), "100 bytes at 0x0 are not whole pages of 4096 bytes"),
        (lambda t: t.map(0, 0, 8192, page_size=8192), "no pages of 8192 bytes"),
        (lambda t: t.map(0, 1, SMALL), "physical 0x1 are not whole pages"),
        (lambda t: t.map(0, 1 << 40, SMALL), "inside the"),
        (lambda t: t.map(1 << 49, 0, SMALL), "outside the 49-bit address space"),
        (lambda t: t.map(BIG, 0, SMALL), "already mapped, by the page of 65536 bytes at 0x10000"),
        (lambda t: t.unmap(0, SMALL), "0x0 is not mapped"),
        (lambda t: t.unmap(BIG, SMALL), "cover only part of the page of 65536 bytes"),
        (lambda t: t.protect(BIG + SMALL, SMALL, read_only=True), "cover only part of the page"),
    ],
)
def test_refused(action, message: str):
    """A refused change leaves the tables as they were."""
    space = Space()
    space.tables.map(BIG, BIG, BIG, page_size=BIG)
    before = bytes(space.machine.memory)
    with pytest.raises(MapError, match=message):
        action(space.tables)
    assert bytes(space.machine.memory) == before


def test_overlaps():
    """A page inside a mapped one, or around it, is refused although it starts elsewhere."""
    space = Space()
    tables = space.tables
    tables.map(BIG, BIG, BIG, page_size=BIG)
    with pytest.raises(MapError, match=r"0x11000 is already mapped, by .* 65536 bytes at 0x10000"):
        tables.map(BIG + SMALL, 0, SMALL)
    with pytest.raises(MapError, match=r"0x0 is already mapped, by .* 65536 bytes at 0x10000"):
        tables.map(0, 0, HUGE, page_size=HUGE)
    space.expect(0, None)
    space.expect(BIG + SMALL, Page(BIG, BIG, BIG))


def test_out_of_memory():
    """Without memory for a table in the middle, nothing is mapped and the tables still work."""
    space = Space()
    keep = space.memory.allocate(space.memory.largest_free - 4 * 4096)
    with pytest.raises(OutOfMemory):
        space.tables.map(HUGE - SMALL, 0, 2 * SMALL)
    space.expect(HUGE - SMALL, None)
    keep.free()
    space.tables.map(HUGE - SMALL, 0, 2 * SMALL)
    space.expect(HUGE, Page(HUGE, SMALL, SMALL))


def test_table_at_address_0():
    """The half of an entry without a table holds address 0, where another table may lie."""
    machine = FakeMachine()
    tables = PageTables(Memory(machine, len(machine.memory)))
    assert tables.root == 0
    tables.map(0, 0, SMALL)
    tables.unmap(0, SMALL)
    assert tables.map(0, HUGE, HUGE, page_size=HUGE)
    tables.release()
    tables.map(HUGE, HUGE, HUGE, page_size=HUGE)
    found = walk(lambda at: int.from_bytes(machine.memory_read(at, 8), "little"), 1 << 23, 0, HUGE)
    assert isinstance(found, Translation) and found.pa == HUGE


def test_random_changes():
    """After each of many changes the walk finds the expected pages; finally all memory is free
    again."""
    seed = choose_seed()
    print(f"SIGNALBOX_SEED={seed}")
    numbers = random.Random(seed)
    space = Space()
    empty = space.memory.free_bytes
    live: list[Page] = []
    for _ in range(300):
        size = numbers.choice((SMALL, SMALL, BIG, HUGE, WHOLE))
        va = numbers.choice((0, 1 << 29, 1 << 38)) + size * numbers.randrange(4 * HUGE // size or 1)
        if size == WHOLE:
            va = numbers.choice((0, 1 << 29, 1 << 38, 3 << 40))
        page = Page(va, size * numbers.randrange(len(space.machine.memory) // size or 1), size)
        if live and numbers.random() < 0.4:
            gone = live.pop(numbers.randrange(len(live)))
            space.tables.unmap(gone.va, gone.size)
            space.expect(gone.va + numbers.randrange(gone.size), None)
        elif not any(va < p.va + p.size and p.va < va + size for p in live):
            space.tables.map(va, page.pa, size, page_size=size)
            live.append(page)
        for page in numbers.sample(live, min(3, len(live))):
            inside = min(page.size, len(space.machine.memory))
            space.expect(page.va + numbers.randrange(inside), page)
    assert sorted(space.tables.pages(), key=lambda p: p.va) == sorted(live, key=lambda p: p.va)
    space.tables.free()
    assert space.memory.free_bytes > empty


def test_all_memory_can_be_mapped():
    """In video memory, entries have 25 address bits, >> 12 (spec page 60, 6.1): a memory must not
    be larger, as the machine ignores the further bits of a directory entry."""
    largest = LIMITS["memory_bytes"].high
    assert largest >> 12 <= 1 << 25
    with pytest.raises(ConfigError, match="memory_bytes"):
        Config(memory_bytes=(1 << 37) + 4096)
    Config(memory_bytes=1 << 37)
