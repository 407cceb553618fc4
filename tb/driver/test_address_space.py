"""One address space: mappings, invalidations and refused calls."""

import asyncio
from typing import Any

import numpy as np
import pytest

from signalbox.driver.memory.address_space import (
    AddressSpace,
    OutOfAddresses,
    SpaceError,
)
from signalbox.driver.memory.asids import AddressSpaces
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.page_tables import MapError
from signalbox.driver.memory.physical import Memory, MemoryUseError, OutOfMemory
from signalbox.driver.memory.table_space import PAGE_INVALIDATION_LIMIT, TableSpace
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.hw.config import VA_BITS, WINDOW_BASE, WINDOW_BYTES
from signalbox.hw.page_tables import PAGE_SIZES, AccessType, FaultType
from signalbox.tb.driver.fakes.mmu import FakeMmu, WatchedMemory, machine_with_mmu
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.models.pagetables import PDE, PTE, Fault, Translation

SMALL, BIG, HUGE, WHOLE = PAGE_SIZES


class SpaceOnMachine:
    """One space, in use, on a machine with 4 ASIDs."""

    def __init__(self) -> None:
        self.mmu: FakeMmu
        self.memory: WatchedMemory
        self.mmu, self.memory = machine_with_mmu()
        self.whole = self.memory.free_bytes
        self.spaces = AddressSpaces(self.mmu, self.memory, 4)
        self.space = self.spaces.create("a")

    def access(self, va: int, space: AddressSpace | None = None) -> int | None:
        """Returns the physical address of an access, or None if it faults."""
        asid = (space or self.space).asid
        assert asid is not None
        found = self.mmu.access(asid, va)
        if isinstance(found, Translation):
            return found.pa
        assert isinstance(found, Fault) and found.code in {PDE, PTE}
        return None


def run(body, *, acquired: bool = True) -> None:
    """Run `body(tb)`, then close all spaces. All memory except live buffers must be free
    again."""

    async def main():
        tb = SpaceOnMachine()
        if acquired:
            await tb.spaces.acquire(tb.space)
            tb.mmu.taken()
        await asyncio.wait_for(body(tb), HANGS)
        for space in tb.spaces:
            while tb.spaces.users(space):
                tb.spaces.release(space)
            await tb.spaces.close(space)
        assert tb.memory.free_bytes == tb.whole, "memory leaked"

    asyncio.run(main())


def test_map_and_unmap():
    """A buffer is mapped at an allocated address without a command; unmapping invalidates it."""

    async def body(tb: SpaceOnMachine):
        buffer = tb.memory.allocate(2 * SMALL, align=SMALL, name="frame")
        mapping = await tb.space.map(buffer)
        assert mapping.va >= HUGE and mapping.page_size == SMALL
        assert tb.access(mapping.at(SMALL + 5)) == buffer.at(SMALL + 5)
        assert tb.space.find(mapping.end - 1) is mapping and int(mapping) == mapping.va
        assert tb.mmu.taken() == []
        await tb.space.unmap(mapping)
        assert tb.mmu.taken() == [("page", 0, mapping.va), ("page", 0, mapping.va + SMALL)]
        assert tb.access(mapping.va) is None and tb.access(mapping.va + SMALL) is None
        buffer.free()
        assert tb.space.find(mapping.va) is None and list(tb.space) == []

    run(body)


def test_two_spaces():
    """Example 1: the same addresses in two spaces reach different pages."""

    async def body(tb: SpaceOnMachine):
        other = tb.spaces.create("b")
        await tb.spaces.acquire(other)
        await tb.space.map(HUGE, 2 * SMALL, va=0)
        await other.map(HUGE + 2 * SMALL, 2 * SMALL, va=0)
        for va in (0, 5, SMALL, 2 * SMALL - 1):
            for _ in range(2):
                assert tb.access(va) == HUGE + va
                assert tb.access(va, other) == HUGE + 2 * SMALL + va

    run(body)


def test_shared_page():
    """Example 2 (ASID-6): one page is mapped in two spaces, and twice in one, and each mapping is
    removed on its own."""

    async def body(tb: SpaceOnMachine):
        other = tb.spaces.create("b")
        await tb.spaces.acquire(other)
        buffer = tb.memory.allocate(SMALL, align=SMALL, name="shared")
        first = await tb.space.map(buffer, atomics=False)
        second = await tb.space.share(first, va=BIG)
        third = await other.share(first, va=2 * BIG, read_only=True)
        assert (second.name, third.name) == ("shared", "shared")
        assert not third.atomics and third.read_only and not second.read_only
        for va, space in ((first.va, None), (BIG, None), (2 * BIG, other)):
            assert tb.access(va + 7, space) == buffer.at(7)
        await tb.space.unmap(first)
        with pytest.raises(MemoryUseError, match=r"'shared' .* is still mapped: mapping 'shared' "):
            buffer.free()
        await tb.space.unmap(second)
        assert tb.access(2 * BIG, other) == buffer.at(0)
        fourth = await tb.space.share(third)
        assert fourth.read_only, "permissions are inherited"
        await other.unmap(third)
        await tb.space.unmap(fourth)
        buffer.free()

    run(body)


def test_page_sizes():
    """The page size is the largest that fits, or the requested one."""

    async def body(tb: SpaceOnMachine):
        space = tb.space

        async def size(pa: int, size: int, va: int | None = None) -> int:
            mapping = await space.map(pa, size, va=va)
            assert mapping.va % mapping.page_size == 0
            assert tb.access(mapping.va) == pa
            await space.unmap(mapping)
            return mapping.page_size

        assert await size(HUGE, HUGE) == HUGE
        assert await size(HUGE, HUGE, BIG) == BIG
        assert await size(HUGE, HUGE, SMALL) == SMALL
        assert await size(BIG, HUGE) == BIG
        assert await size(0, 3 * BIG) == BIG
        assert await size(0, BIG + SMALL) == SMALL
        assert (await space.map(0, WHOLE, page_size=WHOLE)).page_size == WHOLE
        assert (await space.map(0, HUGE, page_size=BIG)).page_size == BIG

    run(body)


def test_largest_pages():
    """Pages of 512 MiB are chosen where all of their memory and addresses exist. A requested one
    may extend past the end of memory, where accesses fault. A page that replaces smaller ones, or
    the reverse, takes effect by the acknowledgement."""

    async def body(tb: SpaceOnMachine):
        space, mmu, end = tb.space, tb.mmu, tb.memory.size
        with pytest.raises(
            MapError, match="536870912 bytes at physical 0x0 are not whole pages of"
        ):
            await space.map(0, WHOLE)
        small = await space.map(0, SMALL, va=WHOLE + 3 * HUGE)
        assert tb.access(small.va) == 0 and tb.access(WHOLE) is None
        await space.unmap(small)
        mmu.taken()
        room = tb.memory.free_bytes
        whole = await space.map(0, WHOLE, va=WHOLE, page_size=WHOLE, read_only=True)
        assert mmu.taken() == [("asid", 0)], "directories were replaced"
        assert tb.memory.free_bytes > room
        for offset in (0, 3 * HUGE + 5, end - 1):
            assert tb.access(WHOLE + offset) == space.translate(WHOLE + offset) == offset
        assert mmu.access(0, WHOLE + end) == Fault(FaultType.REGION, 3)
        with pytest.raises(TranslationFault, match="REGION"):
            space.translate(WHOLE + end)
        await space.protect(whole, read_only=False)
        assert mmu.taken() == [("page", 0, WHOLE)]
        await space.unmap(whole)
        assert mmu.taken() == [("page", 0, WHOLE)]
        assert tb.access(WHOLE) is None and tb.access(WHOLE + 2 * HUGE) is None
        await space.map(HUGE, SMALL, va=WHOLE + 2 * HUGE)
        assert tb.access(WHOLE + 2 * HUGE) == HUGE

    run(body)


def test_large_memory():
    """With enough memory, buffers of whole 512 MiB are aligned for such pages and mapped by them,
    unless memory or the space's addresses are too fragmented."""
    mmu, small = machine_with_mmu()
    memory = Memory(small.machine, 11 * WHOLE // 2)
    memory.reserve(BIG * 64, WHOLE // 2 - BIG * 64)  # page tables lie below, where memory is
    one = memory.allocate_pages(2 * WHOLE)
    assert one.address == WHOLE and one.room == 2 * WHOLE
    other = memory.allocate_pages(WHOLE + HUGE)
    assert other.address == 3 * WHOLE and other.room == WHOLE + HUGE
    last = memory.allocate_pages(WHOLE)
    assert last.address == 4 * WHOLE + HUGE, "not aligned"

    async def main():
        spaces = AddressSpaces(mmu, memory, 4)
        wide, narrow = spaces.create("wide"), spaces.create("narrow", size=2 * WHOLE)
        assert isinstance(wide, TableSpace)
        for buffer, page_size in ((one, WHOLE), (other, HUGE), (last, HUGE)):
            mapping = await wide.map(buffer)
            assert mapping.page_size == page_size and mapping.va % page_size == 0
            for offset in range(0, buffer.room, page_size):
                page = wide._tables.find(mapping.at(offset))
                assert page is not None and page.pa == buffer.at(offset)
                assert page.size == page_size
        await narrow.map(0, SMALL, va=WHOLE + HUGE)
        mapping = await narrow.map(WHOLE, WHOLE)
        assert (mapping.va, mapping.page_size) == (HUGE, HUGE)

    asyncio.run(main())


def test_invalidation_scope():
    """A few pages are invalidated one by one, more of them by ASID; nothing is invalidated if the
    machine cannot remember any of them."""

    async def body(tb: SpaceOnMachine):
        space, mmu = tb.space, tb.mmu
        few = await space.map(0, PAGE_INVALIDATION_LIMIT * SMALL, page_size=SMALL)
        many = await space.map(0, (PAGE_INVALIDATION_LIMIT + 1) * SMALL)
        large = await space.map(0, 2 * BIG)
        await space.protect(few, read_only=True)
        assert mmu.taken() == [
            ("page", 0, few.va + SMALL * n) for n in range(PAGE_INVALIDATION_LIMIT)
        ]
        await space.protect(few, read_only=True)
        assert mmu.taken() == []
        await space.protect(many, read_only=True)
        assert mmu.taken() == [("asid", 0)]
        await space.unmap(large)
        assert mmu.taken() == [("page", 0, large.va), ("page", 0, large.va + BIG)]
        await space.settle()
        assert mmu.taken() == []

    run(body)


def test_numbers_of_numpy():
    """They become ints; fractions are refused."""

    async def body(tb: SpaceOnMachine):
        memory: Any = np.uint32(HUGE)
        size: Any = np.uint16(2 * SMALL)
        va: Any = np.uint32((1 << 32) - SMALL)
        mapping = await tb.space.map(memory, size, va=va)
        assert (mapping.va, mapping.end) == ((1 << 32) - SMALL, (1 << 32) + SMALL)
        assert tb.access(mapping.va + SMALL) == HUGE + SMALL
        options: dict[str, Any] = {"va": 0.5, "size": 4096.0, "above": 0.5, "page_size": 4096.0}
        for name, value in options.items():
            with pytest.raises(TypeError, match=f"^{name} = {value} is not a whole number"):
                await tb.space.map(0, **{"size": SMALL, name: value})

    run(body)


def test_unbound():
    """Changes of a space that is not bound send no commands."""

    async def body(tb: SpaceOnMachine):
        space = tb.space
        mapping = await space.map(0, SMALL)
        await space.protect(mapping, read_only=True)
        await space.unmap(mapping)
        assert tb.mmu.taken() == []

    run(body, acquired=False)


def test_protect():
    """A change of protection invalidates the old permission in both directions."""

    async def body(tb: SpaceOnMachine):
        mapping = await tb.space.map(0, SMALL)
        for read_only in (True, False, True):
            await tb.space.protect(mapping, read_only=read_only)
            found = tb.mmu.access(0, mapping.va)
            assert isinstance(found, Translation) and found.read_only is read_only
            assert mapping.read_only is read_only

    run(body)


def test_replaced_tables():
    """Tables replaced by a 2 MiB page stay allocated until the machine has forgotten them."""

    async def body(tb: SpaceOnMachine):
        space, mmu = tb.space, tb.mmu
        small = await space.map(0, BIG, va=0)
        neighbour = await space.map(0, BIG, va=HUGE - BIG)
        assert tb.access(0) == 0 and tb.access(HUGE - BIG) == 0
        await space.unmap(neighbour)
        await space.unmap(small)
        assert tb.access(SMALL) is None
        mmu.taken()
        room = tb.memory.free_bytes
        await space.map(HUGE, 2 * HUGE, va=0)
        assert mmu.taken() == [("page", 0, 0)], "the second region had no tables"
        assert tb.memory.free_bytes > room
        assert tb.access(HUGE - BIG) == 2 * HUGE - BIG

    run(body)


# -- addresses -------------------------------------------------------------------------------------


def test_addresses_are_reused():
    """Allocation is first fit and never returns the window of on-chip semaphores."""

    async def body(tb: SpaceOnMachine):
        space = tb.space
        first = await space.map(0, SMALL)
        await space.map(0, SMALL)
        await space.unmap(first)
        assert (await space.map(0, SMALL)).va == first.va
        await space.map(0, SMALL, va=WINDOW_BASE - SMALL)
        await space.map(0, SMALL, va=WINDOW_BASE + WINDOW_BYTES)
        await space.map(0, SMALL, va=(1 << VA_BITS) - SMALL)

    run(body)


def test_out_of_addresses():
    async def body(tb: SpaceOnMachine):
        space = tb.spaces.create("small", size=HUGE + 2 * SMALL)
        await tb.spaces.acquire(space)
        await space.map(0, SMALL, va=HUGE)
        message = (
            r"^address space 'small' \(ASID 1\): no free range of 8192 bytes aligned to 4096: "
            "2101248 of 2105344 bytes of addresses are free, the largest range has 2097152$"
        )
        with pytest.raises(OutOfAddresses, match=message):
            await space.map(0, 2 * SMALL)
        last = await space.map(0, SMALL)
        assert last.va == HUGE + SMALL
        assert tb.mmu.access(1, last.end) == Fault(FaultType.VA_LIMIT, 0)
        with pytest.raises(OutOfAddresses):
            await space.map(0, SMALL)
        await space.unmap(last)
        assert (await space.map(0, SMALL)).va == last.va

    run(body)


def test_out_of_memory():
    """Without memory for a table, nothing is mapped and the addresses stay free."""

    async def body(tb: SpaceOnMachine):
        keep = tb.memory.allocate(tb.memory.largest_free, align=1)
        with pytest.raises(OutOfMemory, match="for 'a PD2'"):
            await tb.space.map(0, SMALL, va=0)
        keep.free()
        assert list(tb.space) == [] and tb.access(0) is None
        await tb.space.map(0, SMALL, va=0)

    run(body)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 100}, "100 bytes at 0x200000 are not whole pages of 4096 bytes"),
        ({"size": 0}, "size = 0: a mapping has at least one page"),
        ({"size": None}, "size = 0: a mapping has at least one page"),
        ({"va": 100}, "4096 bytes at 0x64 are not whole pages of 4096 bytes"),
        ({"memory": 100}, "4096 bytes at physical 0x64 are not whole pages of 4096 bytes"),
        ({"memory": 1 << 40}, "4096 bytes at physical 0x10000000000 are not .* inside the 8388608"),
        ({"page_size": BIG}, "4096 bytes at 0x200000 are not whole pages of 65536 bytes"),
        ({"page_size": 8192}, "no pages of 8192 bytes"),
        ({"va": 1 << 49}, "4096 bytes at 0x2000000000000 are outside its addresses, 0x0 … 0x1fff"),
        ({"va": -SMALL}, "4096 bytes at -0x1000 are outside its addresses"),
        ({"va": WINDOW_BASE}, "4096 bytes at 0xffffff0000 overlap the window of on-chip semaphor"),
        ({"va": BIG + SMALL}, r"at 0x11000 overlap mapping 'old' \(65536 bytes at 0x10000\)$"),
        ({"va": 0, "size": HUGE}, r"2097152 bytes at 0x0 overlap mapping 'old' \(65536 bytes"),
    ],
)
def test_map_refused(arguments: dict, message: str):
    """A refused mapping changes nothing, and its message names the space."""

    async def body(tb: SpaceOnMachine):
        await tb.space.map(0, BIG, va=BIG, name="old")
        tables = bytes(tb.memory.machine.memory_read(0, tb.memory.size))
        wanted = {"memory": 0, "size": SMALL, **arguments}
        with pytest.raises(MapError, match=rf"^address space 'a' \(ASID 0\): .*{message}"):
            await tb.space.map(**wanted)
        assert bytes(tb.memory.machine.memory_read(0, tb.memory.size)) == tables
        assert [mapping.name for mapping in tb.space] == ["old"]
        assert tb.mmu.taken() == []

    run(body)


def test_buffers():
    """Mappings of a buffer are whole pages inside it, and end with it."""

    async def body(tb: SpaceOnMachine):
        odd = tb.memory.allocate(SMALL + 100, align=SMALL, name="odd")
        with pytest.raises(MapError, match="4196 bytes at 0x200000 are not whole pages"):
            await tb.space.map(odd)
        with pytest.raises(
            MemoryUseError, match="8192 bytes are more than the 4196 bytes of buffer"
        ):
            await tb.space.map(odd, 2 * SMALL)
        part = await tb.space.map(odd, SMALL, name="part")
        assert str(part) == "mapping 'part' (4096 bytes at 0x200000) of address space 'a' (ASID 0)"
        with pytest.raises(MemoryUseError, match="bytes 4000 … 4100 are not inside mapping 'part'"):
            part.at(4000, 100)
        await tb.space.unmap(part)
        odd.free()
        with pytest.raises(MemoryUseError, match=r"'odd' .* was freed"):
            await tb.space.map(odd, SMALL)

    run(body)


def test_misuse():
    async def body(tb: SpaceOnMachine):
        space, other = tb.space, tb.spaces.create("b")
        mapping = await space.map(0, SMALL, name="m")
        for action in (other.unmap, lambda m: other.protect(m, read_only=True)):
            with pytest.raises(SpaceError, match=r"mapping 'm' .* of address space 'a' .* 'b'"):
                await action(mapping)
        await space.unmap(mapping)
        for action in (space.unmap, lambda m: space.protect(m, read_only=True)):
            with pytest.raises(SpaceError, match=r"^mapping 'm' .* was unmapped$"):
                await action(mapping)
        with pytest.raises(MemoryUseError, match=r"^mapping 'm' .* was unmapped$"):
            await other.share(mapping)
        gone = await other.map(0, SMALL)
        await tb.spaces.close(other)
        for action in (other.map(0, SMALL), other.unmap(gone), other.end()):
            with pytest.raises(SpaceError, match=r"'b' \(no ASID\).* was (closed|unmapped)"):
                await action
        for size in (0, 100, 1 << 50):
            with pytest.raises(ValueError, match="is not a multiple of 4096 bytes up to 2"):
                tb.spaces.create(size=size)

    run(body)


# -- translation -----------------------------------------------------------------------------------


def test_translate():
    """The driver's translation matches the machine's, with the cause of each fault (ASID-5)."""

    async def body(tb: SpaceOnMachine):
        space = tb.space
        plain = await space.map(BIG, SMALL, va=BIG, name="plain")
        await space.map(0, SMALL, va=2 * BIG, name="table", read_only=True)
        await space.map(0, SMALL, va=3 * BIG, privileged=True, atomics=False)
        assert space.translate(plain.at(5), AccessType.WRITE) == BIG + 5
        assert space.translate(2 * BIG) == 0
        assert space.translate(3 * BIG, AccessType.WRITE, privileged=True) == 0

        def refused(va: int, access: AccessType = AccessType.READ, **more: bool) -> FaultType | int:
            with pytest.raises(TranslationFault) as caught:
                space.translate(va, access, **more)
            assert (caught.value.space, caught.value.asid) == ("a", 0)
            assert (caught.value.va, caught.value.access) == (va, access)
            return caught.value.cause

        assert refused(0) is refused(BIG + SMALL) is FaultType.PTE
        assert refused(2 * BIG, AccessType.WRITE) is FaultType.RO
        assert refused(2 * BIG, AccessType.ATOMIC_STRONG) is FaultType.RO
        assert refused(3 * BIG) is FaultType.PRIV
        assert refused(3 * BIG, AccessType.ATOMIC_WEAK, privileged=True) is FaultType.ATOMIC
        assert refused(1 << 49) is FaultType.VA_LIMIT
        assert refused(WINDOW_BASE) is FaultType.PTE

    run(body)


_TABLE = "mapping 'table' (4096 bytes at 0x10000)"


@pytest.mark.parametrize(
    ("va", "access", "cause", "context"),
    [
        (BIG, AccessType.WRITE, "RO: the page is read-only", f"0x10000 lies in {_TABLE}"),
        (0x11008, AccessType.READ, None, f"0x11008 lies 8 bytes past the end of {_TABLE}"),
        (16, AccessType.PREFETCH, None, "nothing is mapped up to 0x10"),
        (WINDOW_BASE, AccessType.READ, None, "0xffffff0000 lies in the window of on-chip semaphor"),
    ],
)
def test_fault_messages(va: int, access: AccessType, cause: str | None, context: str):
    async def body(tb: SpaceOnMachine):
        await tb.space.map(0, SMALL, va=BIG, name="table", read_only=True)
        with pytest.raises(TranslationFault) as caught:
            tb.space.translate(va, access)
        why = cause or "PTE: the page is not mapped"
        assert str(caught.value).startswith(
            f"{access.name.lower()} of {va:#x} in address space 'a' (ASID 0) faulted with {why}; "
            f"{context}"
        )

    run(body)


# -- interrupted changes ------------------------------------------------------------------------


async def broken_off(tb: SpaceOnMachine, how: str, mapping: Mapping) -> None:
    """Start an unmap without an acknowledgement: it fails, or its task is cancelled."""
    if how == "fails":
        tb.mmu.failing = True
        with pytest.raises(TimeoutError):
            await tb.space.unmap(mapping)
        tb.mmu.failing = False
    else:
        tb.mmu.latency = lambda: 3
        task = asyncio.create_task(tb.space.unmap(mapping))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        tb.mmu.latency = lambda: 0


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
@pytest.mark.parametrize("next_", ["settle", "map", "protect", "evict"])
def test_broken_off(how: str, next_: str):
    """Nothing that the machine may remember is reused until the whole ASID is invalidated."""

    async def body(tb: SpaceOnMachine):
        space, buffer = tb.space, tb.memory.allocate(SMALL, align=SMALL)
        mapping = await space.map(buffer)
        other = await space.map(0, SMALL)
        assert tb.access(mapping.va) == buffer.at(0)
        await broken_off(tb, how, mapping)
        with pytest.raises(MemoryUseError, match="is still mapped"):
            buffer.free()
        with pytest.raises(
            MapError, match="were unmapped, but the machine has not acknowledged it"
        ):
            await space.map(0, SMALL, va=mapping.va)
        tb.mmu.taken()
        if next_ == "settle":
            await space.settle()
        elif next_ == "protect":
            await space.protect(other, read_only=True)
        elif next_ == "map":
            await space.map(0, SMALL)
            assert tb.mmu.taken() == [], "a map alone needs no command"
            await space.settle()
        else:
            tb.spaces.release(space)
            for number in range(4):
                await tb.spaces.acquire(tb.spaces.create(f"evictor {number}"))
            assert space.asid is None
            tb.mmu.taken()
            await space.settle()
        assert tb.mmu.taken() == ([] if next_ == "evict" else [("asid", 0)])
        buffer.free()
        await space.map(0, SMALL, va=mapping.va)

    run(body)


def test_protection_broken_off():
    """`settle` completes an interrupted change of protection, too; then nothing is pending."""

    async def body(tb: SpaceOnMachine):
        mapping = await tb.space.map(0, SMALL)
        assert tb.access(mapping.va) == 0
        tb.mmu.failing = True
        with pytest.raises(TimeoutError):
            await tb.space.protect(mapping, read_only=True)
        tb.mmu.failing = False
        tb.mmu.taken()
        await tb.space.settle()
        assert tb.mmu.taken() == [("asid", 0)]
        found = tb.mmu.access(0, mapping.va)
        assert isinstance(found, Translation) and found.read_only
        await tb.space.settle()
        assert tb.mmu.taken() == []

    run(body)


def test_changes_take_turns():
    """A range can be mapped while its unmap is in progress; the map waits for the machine."""

    async def body(tb: SpaceOnMachine):
        space = tb.space
        mapping = await space.map(0, SMALL)
        assert tb.access(mapping.va) == 0
        tb.mmu.latency = lambda: 5
        _, again = await asyncio.gather(space.unmap(mapping), space.map(BIG, SMALL, va=mapping.va))
        assert again.va == mapping.va and tb.access(again.va) == BIG

    run(body)


@pytest.mark.parametrize("how", ["waits", "is mapped, settle", "is mapped, end"])
def test_allocation_broken_off(how: str):
    """The buffer of a cancelled allocation is free again: at once if it was not mapped, otherwise
    once the machine has forgotten it."""

    async def body(tb: SpaceOnMachine):
        space = tb.space
        mapping = await space.map(0, SMALL)
        if how != "waits":  # the buffer replaces a table, whose invalidation is waited for
            await space.unmap(mapping)
        room, tb.mmu.latency = tb.memory.free_bytes, lambda: 3
        before = asyncio.create_task(space.unmap(mapping)) if how == "waits" else None
        allocation = asyncio.create_task(space.allocate(HUGE))
        await asyncio.sleep(0)
        assert tb.memory.free_bytes < room
        allocation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await allocation
        if before is not None:
            assert tb.memory.free_bytes == room
            await before
        elif how == "is mapped, settle":
            assert tb.memory.free_bytes < room
            await space.settle()
            assert tb.memory.free_bytes > room and not list(space)

    run(body)


def test_freeing_beside_a_space_that_fails():
    """A buffer can be freed while a space that has never mapped it has a change that fails."""

    async def body(tb: SpaceOnMachine):
        buffer = tb.memory.allocate(SMALL, align=SMALL)
        await broken_off(tb, "fails", await tb.space.map(0, SMALL))
        tb.mmu.failing = True
        for space in (tb.space, tb.spaces.create("b")):
            await space.unmap_all(buffer)
        buffer.free()
        tb.mmu.failing = False

    run(body)


def test_unmapping_of_a_buffer_broken_off():
    """A buffer whose unmapping was interrupted can be freed after another call."""

    async def body(tb: SpaceOnMachine):
        buffer = await tb.space.allocate(SMALL)
        await broken_off(tb, "is cancelled", tb.space.mapping(buffer))
        await tb.space.unmap_all(buffer)
        buffer.free()

    run(body)
