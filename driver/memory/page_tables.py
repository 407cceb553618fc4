"""Page tables of one address space, in the machine's memory (ASID-7, HOST-11)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.hw.config import VA_BITS
from signalbox.hw.methods import pack, unpack
from signalbox.hw.page_tables import (
    DIRECTORIES,
    PAGE_SIZES,
    TABLES,
    DualPde,
    Level,
    Pde,
    PdeAperture,
    Pte,
)

__all__ = ["MapError", "Page", "PageTables"]

_TABLE_ALIGN = 4096
"""Alignment of every table, in bytes: entries hold addresses of small tables and directories
>> 12."""

_GROUP = PAGE_SIZES[2]
"""Bytes mapped by one entry of PD0."""

_WHOLE = PAGE_SIZES[3]
"""Bytes mapped by one entry of PD1: the largest page."""


class MapError(Exception):
    """A range cannot be mapped, unmapped or protected as requested; the message says why."""


@dataclass(frozen=True)
class Page:
    """One mapped page: `size` bytes at virtual address `va`, at physical address `pa`."""

    va: int
    pa: int
    size: int
    read_only: bool = False
    privileged: bool = False
    atomics: bool = True

    def entry(self) -> int:
        """The page table entry (PTE) of the page."""
        return pack(
            Pte,
            valid=1,
            privileged=self.privileged,
            read_only=self.read_only,
            atomic_disable=not self.atomics,
            address=self.pa >> 12,
        )


class PageTables:
    """Page tables of one address space. `root` : page directory base, a physical byte address.

    Tables are created on first use and kept until `free`, except those that a larger page replaces.
    `map`, `unmap` and `protect` return the pages whose old translations may be cached. The caller
    must invalidate these pages; if `map` returns pages of 512 MiB, the whole space. Until this is
    acknowledged, walks may still read replaced tables, so their memory is kept until `release`.
    Raises `OutOfMemory` if there is no room for the root.
    """

    def __init__(self, memory: Memory, name: str = "") -> None:
        self._memory, self._name = memory, name
        self._buffers: dict[int, Buffer] = {}
        self._replaced: list[Buffer] = []
        # Pages by address, grouped by the 2 MiB of their address.
        self._groups: dict[int, dict[int, Page]] = {}
        self.root = self._table(DIRECTORIES[0])

    def free(self) -> None:
        """Free all tables, once no walk can read them."""
        self.release()
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()
        self._groups.clear()

    def release(self) -> None:
        """Free replaced tables, once their invalidation is acknowledged."""
        for buffer in self._replaced:
            buffer.free()
        self._replaced.clear()

    def pages(self) -> Iterator[Page]:
        """All mapped pages."""
        for group in self._groups.values():
            yield from group.values()

    def find(self, va: int) -> Page | None:
        """The page that contains `va`, or None."""
        starts = (va // size * size for size in PAGE_SIZES)
        candidates = (self._groups.get(start // _GROUP, {}).get(start) for start in starts)
        return next((page for page in candidates if page and va < page.va + page.size), None)

    def map(
        self,
        va: int,
        pa: int,
        size: int,
        *,
        page_size: int = PAGE_SIZES[0],
        read_only: bool = False,
        privileged: bool = False,
        atomics: bool = True,
    ) -> list[Page]:
        """Map `size` bytes at virtual address `va` to physical memory at `pa`, in pages of one
        size.

        With pages of 512 MiB, the last one may extend past the end of memory: an access there
        faults.

        Raises `MapError` for an unknown page size, addresses or a size that are not multiples of
        it, addresses outside the address space or physical memory, and pages already mapped;
        `OutOfMemory` if there is no room for a table. Nothing is mapped then.
        """
        if page_size not in PAGE_SIZES:
            raise MapError(f"no pages of {page_size} bytes: sizes are {PAGE_SIZES}")
        self._check(va, size, page_size)
        end = self._memory.size
        if page_size == _WHOLE:
            end = -(-end // _WHOLE) * _WHOLE
        if pa % page_size or not 0 <= pa <= pa + size <= end:
            raise MapError(
                f"{size} bytes at physical {pa:#x} are not whole pages of {page_size} bytes "
                f"inside the {self._memory.size} bytes of memory"
            )
        pages = [
            Page(va + offset, pa + offset, page_size, read_only, privileged, atomics)
            for offset in range(0, size, page_size)
        ]
        for page in pages:
            self._check_free(page)
        # Allocate all tables before writing the first entry, so that a failure maps nothing.
        places = [self._place(page) for page in pages]
        replaced: list[Page] = []
        for page, place in zip(pages, places, strict=True):
            if self._replace_tables(page, place):
                replaced.append(page)
            self._store_page(page, place, page.entry())
            self._groups.setdefault(page.va // _GROUP, {})[page.va] = page
        return replaced

    def unmap(self, va: int, size: int) -> list[Page]:
        """Unmap `size` bytes at `va`. Raises `MapError` unless the range is mapped throughout and
        starts and ends at page boundaries."""
        pages = self._mapped(va, size)
        for page in pages:
            self._store_page(page, self._place(page), 0)
            del self._groups[page.va // _GROUP][page.va]
        return pages

    def protect(self, va: int, size: int, *, read_only: bool) -> list[Page]:
        """Allow or forbid writes to a range. Raises as `unmap`.

        Both directions need an invalidation: a cached read-only entry would still fault on writes
        that are now allowed.
        """
        changed = [page for page in self._mapped(va, size) if page.read_only != read_only]
        for page in changed:
            new = replace(page, read_only=read_only)
            self._store_page(new, self._place(new), new.entry())
            self._groups[page.va // _GROUP][page.va] = new
        return changed

    # -- checks ------------------------------------------------------------------------------------

    def _check(self, va: int, size: int, page_size: int) -> None:
        if size <= 0 or va % page_size or size % page_size:
            raise MapError(f"{size} bytes at {va:#x} are not whole pages of {page_size} bytes")
        if not 0 <= va <= va + size <= 1 << VA_BITS:
            raise MapError(f"{size} bytes at {va:#x} are outside the {VA_BITS}-bit address space")

    def _check_free(self, page: Page) -> None:
        last = page.va + page.size - 1
        numbers = range(page.va // _GROUP, last // _GROUP + 1)
        others = (other for number in numbers for other in self._groups.get(number, {}).values())
        inside = (other for other in others if page.va <= other.va <= last)
        found = self.find(page.va) or next(inside, None)
        if found:
            raise MapError(
                f"{page.va:#x} is already mapped, by the page of {found.size} bytes at "
                f"{found.va:#x}"
            )

    def _mapped(self, va: int, size: int) -> list[Page]:
        """The pages of a range. Raises `MapError` if it has gaps, or covers part of a page."""
        self._check(va, size, PAGE_SIZES[0])
        pages, at = [], va
        while at < va + size:
            page = self.find(at)
            if page is None:
                raise MapError(f"{at:#x} is not mapped")
            if page.va != at or page.va + page.size > va + size:
                raise MapError(
                    f"{size} bytes at {va:#x} cover only part of the page of {page.size} bytes at "
                    f"{page.va:#x}"
                )
            pages.append(page)
            at += page.size
        return pages

    # -- tables ------------------------------------------------------------------------------------

    def _place(self, page: Page) -> int:
        """Physical address of the entry of `page`. Missing tables on the way are created."""
        table = self.root
        *upper, last = DIRECTORIES
        for level, below in zip(upper, DIRECTORIES[1:], strict=True):
            place = table + level.entry_bytes * level.index(page.va)
            if page.size == 1 << level.shift:
                return place
            table = self._follow(place, below)
        place = table + last.entry_bytes * last.index(page.va)
        if page.size == 1 << last.shift:
            return place
        level = TABLES[page.size]
        return self._follow_dual(place, level) + level.entry_bytes * level.index(page.va)

    def _store_page(self, page: Page, place: int, pte: int) -> None:
        """Write the PTE of `page`. In PD0 it fills the whole dual entry."""
        self._store(place, pte, DIRECTORIES[-1].entry_bytes if page.size == _GROUP else 8)

    def _replace_tables(self, page: Page, place: int) -> bool:
        """Retire the tables that `page` replaces, to be freed by `release`. Returns whether there
        are any."""
        if page.size == _GROUP:
            tables = _halves(self._load(place, DIRECTORIES[-1].entry_bytes))
        elif page.size == _WHOLE:
            tables = self._below(place)
        else:
            return False
        self._replaced += [self._buffers.pop(address) for address in tables]
        return bool(tables)

    def _follow(self, place: int, below: Level) -> int:
        """Address of the table that a PDE points to, created if missing."""
        found = unpack(Pde, self._load(place))
        if found["aperture"] != PdeAperture.INVALID:
            return found["address"] << 12
        table = self._table(below)
        self._store(place, pack(Pde, aperture=PdeAperture.VIDEO, address=table >> 12))
        return table

    def _follow_dual(self, place: int, below: Level) -> int:
        """As `_follow`, for one half of a dual PDE."""
        size = DIRECTORIES[-1].entry_bytes
        entry = self._load(place, size)
        found = unpack(DualPde, entry)
        half = "big" if below is TABLES[1 << 16] else "small"
        shift = {"big": 8, "small": 12}[half]
        if not found["is_pte"] and found[f"{half}_aperture"] != PdeAperture.INVALID:
            return found[f"{half}_address"] << shift
        table = self._table(below)
        kept = 0 if found["is_pte"] else entry
        fields = {f"{half}_aperture": PdeAperture.VIDEO, f"{half}_address": table >> shift}
        self._store(place, kept | pack(DualPde, **fields), size)
        return table

    def _below(self, place: int) -> list[int]:
        """Address of the PD0, if any, that an entry of PD1 points to, and of all its tables."""
        found, level = unpack(Pde, self._load(place)), DIRECTORIES[-1]
        if found["aperture"] == PdeAperture.INVALID:
            return []
        table = found["address"] << 12
        content = self._memory.machine.memory_read(table, level.table_bytes)
        starts = range(0, level.table_bytes, level.entry_bytes)
        entries = (content[start : start + level.entry_bytes] for start in starts)
        halves = (_halves(int.from_bytes(entry, "little")) for entry in entries)
        return [table, *chain.from_iterable(halves)]

    def _table(self, level: Level) -> int:
        """Allocate a table without valid entries; returns its physical address."""
        name = " ".join(filter(None, (self._name, level.name)))
        buffer = self._memory.allocate(level.table_bytes, align=_TABLE_ALIGN, name=name)
        buffer.fill()
        self._buffers[buffer.address] = buffer
        return buffer.address

    def _load(self, place: int, size: int = 8) -> int:
        return int.from_bytes(self._memory.machine.memory_read(place, size), "little")

    def _store(self, place: int, entry: int, size: int = 8) -> None:
        self._memory.machine.memory_write(place, entry.to_bytes(size, "little"))


def _halves(entry: int) -> list[int]:
    """Addresses of the tables that a dual PDE points to."""
    found = unpack(DualPde, entry)
    big, small = found["big_address"] << 8, found["small_address"] << 12
    halves = (found["big_aperture"], big), (found["small_aperture"], small)
    return [table for aperture, table in halves if aperture != PdeAperture.INVALID]
