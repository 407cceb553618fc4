"""Address spaces: virtual addresses and mappings (ASID-6 … ASID-9)."""

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from operator import attrgetter

from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.page_tables import MapError, Page
from signalbox.driver.memory.physical import Buffer, Memory, MemoryUseError
from signalbox.driver.memory.ranges import Ranges
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.whole import whole
from signalbox.hw.config import VA_BITS, WINDOW_BASE, WINDOW_BYTES
from signalbox.hw.page_tables import PAGE_SIZES, AccessType, FaultType

__all__ = ["AddressSpace", "OutOfAddresses", "SpaceError"]

_LOWEST = 1 << 21
"""Lowest address allocated by default. Address 0 and its surroundings are used only on request."""

_RING_BITS = 40
"""Width of the address of a ring, of a segment in a ring entry, and of a host semaphore."""


class SpaceError(Exception):
    """An address space or a mapping is in the wrong state for the call."""


class OutOfAddresses(MapError):
    """No free range of virtual addresses is large enough; the message gives the sizes."""


class AddressSpace(ABC):
    """Virtual addresses 0 … `size` - 1, and their mappings. Created by `Spaces.create`. Subclasses
    change its page tables.

    Each change returns once the machine has acknowledged it, so unmapped memory and addresses can
    be reused at once. Changes are serialized. A change that is interrupted, by a machine error or
    because its coroutine is cancelled, remains in the page tables, but TLBs may still hold the old
    translations. Its addresses, buffers and tables stay reserved until `settle` or a later change
    is acknowledged. Changes raise `MmuError` if the machine does not acknowledge them.

    Members
    -------
    name : name for messages.
    size : bytes, a multiple of 4 KiB. The window of on-chip semaphores inside is never mapped.
    asid : ASID that the space is bound to, or being bound to; None while unbound. Set by
        `AddressSpaces`.
    closed : whether the page tables have been freed. Set by `end`.
    """

    def __init__(self, memory: Memory, name: str, size: int) -> None:
        size = whole(size, "size")
        if not 0 < size <= 1 << VA_BITS or size % PAGE_SIZES[0]:
            raise ValueError(
                f"size = {size:#x} is not a multiple of {PAGE_SIZES[0]} bytes up to 2^{VA_BITS}"
            )
        self._memory, self.name, self.size = memory, name, size
        self.asid: int | None = None
        self.closed = False
        self._lock = FairLock(memory.machine)
        self._addresses = Ranges(0, size)
        if size > WINDOW_BASE:
            self._addresses.take(WINDOW_BASE, min(WINDOW_BYTES, size - WINDOW_BASE))
        # Current mappings, by address; unmapped ones that TLBs may still hold.
        self._mappings: list[Mapping] = []
        self._by_buffer: dict[Buffer, list[Mapping]] = {}
        self._retiring: list[Mapping] = []
        self._unsettled = False
        # Mapped buffers of interrupted calls of `allocate`, which nobody owns.
        self._orphans: list[Buffer] = []

    def __str__(self) -> str:
        asid = "no ASID" if self.asid is None else f"ASID {self.asid}"
        return f"address space {self.name!r} ({asid})"

    def __iter__(self) -> Iterator[Mapping]:
        """All mappings, by address."""
        return iter(tuple(self._mappings))

    # -- page tables -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def base(self) -> int:
        """Number of the space, unique among open spaces: the page directory base, a physical byte
        address, where the driver knows it."""

    @abstractmethod
    async def _enter(
        self, va: int, pa: int, size: int, page_size: int, permissions: dict[str, bool]
    ) -> list[Page]:
        """Enter pages in the tables; returns the pages that replace other tables, which walks may
        still read. Raises `MapError`, `OutOfMemory`; nothing is entered then."""

    @abstractmethod
    async def _remove(self, mapping: Mapping) -> list[Page]:
        """Remove the pages of a mapping from the tables; returns these pages."""

    @abstractmethod
    async def _restrict(self, mapping: Mapping, *, read_only: bool) -> list[Page]:
        """Change the permission of a mapping's pages; returns those that changed."""

    @abstractmethod
    async def _invalidate(self, pages: list[Page], *, whole: bool = False) -> None:
        """Invalidate the translations of `pages`, or those of the `whole` space, then free
        everything that waited for it (`_release_retiring`)."""

    @abstractmethod
    async def _free(self) -> None:
        """Free the page tables, once nothing uses them. Called again after an interruption."""

    # -- addresses and mappings --------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """Last virtual address."""
        return self.size - 1

    @property
    def upper(self) -> int:
        """Lowest address for the driver's own mappings (rings, pushbuffers, fences).

        They go to the upper half of the addresses that ring entries and host semaphores can hold,
        out of the way of other mappings.
        """
        return min(self.size, 1 << _RING_BITS) // 2

    # -- changes -----------------------------------------------------------------------------------

    async def map(
        self,
        memory: Buffer | int,
        size: int | None = None,
        *,
        va: int | None = None,
        above: int = _LOWEST,
        page_size: int | None = None,
        read_only: bool = False,
        privileged: bool = False,
        atomics: bool = True,
        name: str = "",
    ) -> Mapping:
        """Map a buffer, or `size` bytes of physical memory.

        Parameters
        ----------
        memory : a buffer, or a physical byte address.
        size : bytes; defaults to all of the buffer's `room`.
        va : first virtual address; defaults to the lowest suitable free address from `above` up.
        page_size : 4 KiB, 64 KiB, 2 MiB or 512 MiB; defaults to the largest that divides both
            addresses and the size, and for which there are free addresses. If 512 MiB is requested,
            the last page may extend past the end of memory; accesses past the end fault.
        read_only : writes fault.
        privileged : accesses that are not privileged fault.
        atomics : whether atomics are allowed.
        name : name for messages; defaults to that of the buffer.

        Raises `MapError` if the range is not page-aligned, not free, or outside the address space
        or physical memory; `OutOfAddresses`; `OutOfMemory` if there is no room for a page table;
        `SpaceError` if the space is closed; `MemoryUseError` if the buffer is freed, too small, or
        of another machine; `TypeError` for numbers that are not whole. Nothing is mapped then.
        """
        buffer = memory if isinstance(memory, Buffer) else None
        memory = memory if isinstance(memory, Buffer) else whole(memory, "memory")
        if size is None:
            size = buffer.room if buffer else 0
        size, above = whole(size, "size"), whole(above, "above")
        va = None if va is None else whole(va, "va")
        page_size = None if page_size is None else whole(page_size, "page_size")
        permissions = {"read_only": read_only, "privileged": privileged, "atomics": atomics}
        async with self._lock:
            self._check_open()
            pa = self._physical(memory, size)
            choice = [page_size] if page_size else self._page_sizes(pa, size, va)
            with self._naming_errors():
                va, page_size = self._find(va, size, choice, above)
                replaced = await self._enter(va, pa, size, page_size, permissions)
            name = name or (buffer.name if buffer else "")
            mapping = Mapping(self, va, pa, size, page_size, buffer, name, **permissions)
            self._record(mapping)
            if replaced:
                # Walks of all their addresses may still read replaced directories.
                await self._invalidate(replaced, whole=page_size == PAGE_SIZES[-1])
        return mapping

    async def allocate(
        self, size: int, *, above: int = _LOWEST, read_only: bool = False, name: str = ""
    ) -> Buffer:
        """Allocate a buffer of whole pages and map it here. If the call is interrupted once the
        buffer is mapped, `settle` or `end` frees it. Raises as `map` and `Memory.allocate_pages`.
        """
        buffer = self._memory.allocate_pages(size, name=name)
        try:
            await self.map(buffer, above=above, read_only=read_only)
        except BaseException:  # cancelled, perhaps
            if buffer.mappings:
                self._orphans.append(buffer)
            else:
                buffer.free()
            raise
        return buffer

    async def share(
        self,
        mapping: Mapping,
        *,
        va: int | None = None,
        above: int = _LOWEST,
        read_only: bool = False,
    ) -> Mapping:
        """Map the memory of a mapping, from this or another space of the machine, here as well
        (ASID-6).

        Permissions are inherited; `read_only` removes write access. Otherwise as `map`; also raises
        `MemoryUseError` for a mapping that was unmapped, or belongs to another machine.
        """
        mapping.at(0)
        home = mapping.space
        assert isinstance(home, AddressSpace), "spaces alone make mappings"
        if home._memory.machine is not self._memory.machine:
            raise MemoryUseError(f"{mapping} belongs to another machine than {self}")
        return await self.map(
            mapping.pa if mapping.buffer is None else mapping.buffer,
            mapping.size,
            va=va,
            above=above,
            read_only=mapping.read_only or read_only,
            privileged=mapping.privileged,
            atomics=mapping.atomics,
            name=mapping.name,
        )

    async def unmap(self, mapping: Mapping) -> None:
        """Remove a mapping. Its memory may be freed afterwards.

        Raises `SpaceError` if the mapping is in another space, or already unmapped.
        """
        async with self._lock:
            self._check_mapping(mapping)
            await self._invalidate(await self._retire(mapping))

    async def protect(self, mapping: Mapping, *, read_only: bool) -> None:
        """Allow or forbid writes to a mapping. Raises as `unmap`."""
        async with self._lock:
            self._check_mapping(mapping)
            changed = await self._restrict(mapping, read_only=read_only)
            mapping.read_only = read_only
            await self._invalidate(changed)

    async def settle(self) -> None:
        """Complete the invalidation of an interrupted change, if there is one, and free the buffers
        of interrupted calls of `allocate`."""
        async with self._lock:
            for buffer in self._orphans:
                for mapping in tuple(self._by_buffer.get(buffer, ())):
                    await self._retire(mapping)
            if self._unsettled or self._orphans:
                await self._invalidate([], whole=True)
            self._free_orphans()

    async def end(self) -> None:
        """Unmap everything and free the page tables; an interrupted call can be repeated. Only for
        `Spaces.close`, once the machine has acknowledged the unbind."""
        async with self._lock:
            self._check_open()
            for mapping in self._mappings:
                mapping.unmapped = True
            self._retiring += self._mappings
            self._mappings.clear()
            self._by_buffer.clear()
            self._release_retiring()
            self._free_orphans()
            await self._free()
            self.closed = True

    async def unmap_all(self, buffer: Buffer) -> None:
        """Remove all mappings of a buffer, and complete an interrupted removal of one. Returns at
        once if there is none of either."""
        if not self.has(buffer) and all(one.buffer is not buffer for one in self._retiring):
            return
        for mapping in tuple(self._by_buffer.get(buffer, ())):
            await self.unmap(mapping)
        await self.settle()

    # -- queries -----------------------------------------------------------------------------------

    def at(self, buffer: Buffer, offset: int = 0, size: int = 0) -> int:
        """Virtual address of byte `offset` of a buffer, in its first mapping in this space.

        `size` bytes from there must lie inside buffer and mapping. Raises `MemoryUseError`, also if
        the buffer is not mapped here.
        """
        buffer.at(offset, size)
        return self.mapping(buffer).at(offset, size)

    def mapping(self, buffer: Buffer) -> Mapping:
        """First mapping of a buffer in this space. Raises `MemoryUseError` if there is none."""
        if buffer not in self._by_buffer:
            raise MemoryUseError(f"{buffer} is not mapped in {self}: map it there first")
        return self._by_buffer[buffer][0]

    def has(self, buffer: Buffer) -> bool:
        """Whether a buffer is mapped in this space."""
        return buffer in self._by_buffer

    def find(self, va: int) -> Mapping | None:
        """The mapping that contains a virtual address, or None."""
        before = self._before(va)
        return before if before is not None and va < before.end else None

    def translate(
        self, va: int, access: AccessType = AccessType.READ, *, privileged: bool = False
    ) -> int:
        """Translate a virtual address to a physical one.

        Raises `TranslationFault` if the machine would fault on such an access.
        """
        mapping = self.find(va)
        if mapping is None:
            cause = FaultType.PTE if 0 <= va < self.size else FaultType.VA_LIMIT
        else:
            pa = mapping.pa + va - mapping.va
            # The end of memory applies to each 2 MiB of a page of 512 MiB.
            piece = min(mapping.page_size, 1 << 21)
            past = pa - pa % piece + piece > self._memory.size
            cause = FaultType.REGION if past else _refusal(mapping, access, privileged)
            if cause is None:
                return pa
        raise TranslationFault(self.name, self.asid, va, access, cause, context=self.describe(va))

    def describe(self, va: int) -> str:
        """Description of a virtual address and of the mapping at or below it, for messages."""
        if self._in_window(va, 1):
            return f"{va:#x} lies in the window of on-chip semaphores, which is not memory"
        before = self._before(va)
        if before is None:
            return f"nothing is mapped up to {va:#x}"
        if va < before.end:
            return f"{va:#x} lies in {before.what}"
        return f"{va:#x} lies {va - before.end} bytes past the end of {before.what}"

    # -- addresses ---------------------------------------------------------------------------------

    def _page_sizes(self, pa: int, size: int, va: int | None) -> list[int]:
        """Page sizes that divide both addresses and the size, largest first. The smallest size is
        always included, the largest only if all of the memory exists."""
        bits = pa | size | (va or 0)
        sizes = [each for each in reversed(PAGE_SIZES[1:]) if bits % each == 0]
        return [
            *(each for each in sizes if each < PAGE_SIZES[-1] or pa + size <= self._memory.size),
            PAGE_SIZES[0],
        ]

    def _find(
        self, va: int | None, size: int, page_sizes: list[int], above: int
    ) -> tuple[int, int]:
        """Start of a free range, and the first of the page sizes for which there is one. The range
        begins at `va` if given; otherwise it is the lowest."""
        if size <= 0:
            raise MapError(f"size = {size}: a mapping has at least one page")
        if va is not None:
            self._check_free(va, size)
            return va, page_sizes[0]
        for page_size in page_sizes:
            found = self._addresses.find(size, page_size, lowest=above)
            if found is not None:
                return found, page_size
        raise OutOfAddresses(
            f"no free range of {size} bytes aligned to {page_sizes[-1]}: {self._addresses.total} "
            f"of {self.size} bytes of addresses are free, the largest range has "
            f"{self._addresses.largest}"
        )

    def _physical(self, memory: Buffer | int, size: int) -> int:
        """Physical address of the memory to map. Raises `MemoryUseError` if a buffer belongs to
        another machine, or has fewer than `size` bytes."""
        if isinstance(memory, int):
            return memory
        if memory.memory.machine is not self._memory.machine:
            raise MemoryUseError(f"{memory} belongs to another machine than {self}")
        start = memory.at(0)
        if size > memory.room:
            raise MemoryUseError(f"{size} bytes are more than the {memory.room} bytes of {memory}")
        return start

    def _check_free(self, va: int, size: int) -> None:
        if self._addresses.has(va, size):
            return
        if not 0 <= va <= va + size <= self.size:
            raise MapError(
                f"{size} bytes at {va:#x} are outside its addresses, 0x0 … {self.limit:#x}"
            )
        if self._in_window(va, size):
            raise MapError(f"{size} bytes at {va:#x} overlap the window of on-chip semaphores")
        before = self._before(va + size - 1)
        if before is not None and va < before.end:
            raise MapError(f"{size} bytes at {va:#x} overlap {before.what}")
        raise MapError(
            f"{size} bytes at {va:#x} were unmapped, but the machine has not acknowledged it"
        )

    def _in_window(self, va: int, size: int) -> bool:
        return va < WINDOW_BASE + WINDOW_BYTES and WINDOW_BASE < va + size

    def _before(self, va: int) -> Mapping | None:
        """The last mapping that starts at or below `va`."""
        number = bisect_right(self._mappings, va, key=attrgetter("va"))
        return self._mappings[number - 1] if number else None

    # -- mappings ----------------------------------------------------------------------------------

    def _record(self, mapping: Mapping) -> None:
        """Record a new mapping: its addresses are in use, its buffer cannot be freed."""
        self._addresses.take(mapping.va, mapping.size)
        insort(self._mappings, mapping, key=attrgetter("va"))
        if mapping.buffer is not None:
            self._by_buffer.setdefault(mapping.buffer, []).append(mapping)
            mapping.buffer.mappings.append(mapping)

    async def _retire(self, mapping: Mapping) -> list[Page]:
        """Remove a current mapping; returns its pages, which TLBs may still hold."""
        pages = await self._remove(mapping)
        mapping.unmapped = True
        self._mappings.remove(mapping)
        if mapping.buffer is not None:
            left = self._by_buffer[mapping.buffer]
            left.remove(mapping)
            if not left:
                del self._by_buffer[mapping.buffer]
        self._retiring.append(mapping)
        return pages

    def _release_retiring(self) -> None:
        """Free the addresses and buffers of unmapped mappings: no TLB holds them any more."""
        for mapping in self._retiring:
            self._addresses.give(mapping.va, mapping.size)
            if mapping.buffer is not None:
                mapping.buffer.mappings.remove(mapping)
        self._retiring.clear()

    def _free_orphans(self) -> None:
        """Free the buffers that nobody owns, once nothing maps them."""
        for buffer in self._orphans:
            buffer.free()
        self._orphans.clear()

    # -- checks ------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise SpaceError(f"{self} was closed")

    def _check_mapping(self, mapping: Mapping) -> None:
        if mapping.space is not self:
            raise SpaceError(f"{mapping} does not belong to {self}")
        if mapping.unmapped:
            raise SpaceError(f"{mapping} was unmapped")

    @contextmanager
    def _naming_errors(self) -> Generator[None, None, None]:
        """Prefix errors of the page tables with the name of this space."""
        try:
            yield
        except MapError as error:
            raise type(error)(f"{self}: {error}") from None


def _refusal(mapping: Mapping, access: AccessType, privileged: bool) -> FaultType | None:
    """Fault that the machine would raise for an access; None if it is allowed."""
    atomic = access in {AccessType.ATOMIC_STRONG, AccessType.ATOMIC_WEAK}
    if mapping.privileged and not privileged:
        return FaultType.PRIV
    if mapping.read_only and (atomic or access is AccessType.WRITE):
        return FaultType.RO
    if atomic and not mapping.atomics:
        return FaultType.ATOMIC
    return None
