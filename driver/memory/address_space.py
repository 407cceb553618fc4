"""An address space: what is mapped where, and what the machine must forget (ASID-6 … ASID-9)."""

from bisect import bisect_right, insort
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from operator import attrgetter

from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.mmu import Mmu
from signalbox.driver.memory.page_tables import MapError, Page, PageTables
from signalbox.driver.memory.physical import Buffer, Memory, MemoryUseError
from signalbox.driver.memory.ranges import Ranges
from signalbox.driver.memory.translation_fault import TranslationFault
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.config import VA_BITS, WINDOW_BASE, WINDOW_BYTES
from signalbox.hw.page_tables import PAGE_SIZES, AccessType, FaultType

__all__ = ["PAGEWISE", "AddressSpace", "OutOfAddresses", "SpaceError"]

PAGEWISE = 16
"""Up to so many changed pages are invalidated one by one; more, with their whole ASID. As many as
a first-level TLB holds: what a change of more pages spares is little beside what it takes."""

_LOWEST = PAGE_SIZES[-1]
"""Where addresses are allocated from: below, address 0 is nobody's unless it is chosen."""


_RING_BITS = 40
"""Bits of an address in a ring, in a ring entry, and of a host semaphore."""


class SpaceError(Exception):
    """An address space, or a mapping, is not in the state that the call needs."""


class OutOfAddresses(MapError):
    """No free range of virtual addresses is large enough; the message names the sizes."""


class AddressSpace:
    """Virtual addresses 0 … `size` - 1 and their page tables. Made by `AddressSpaces.create`.

    Each change returns when the machine has acknowledged it, so what was unmapped may be freed or
    mapped anew at once. Changes of several tasks take turns. One that was broken off, by an error
    of the machine or because its task was cancelled, stands in the tables, but the machine may not
    know: addresses, buffers and tables are kept from use until `settle`, or until a later change
    was acknowledged.

    Members
    -------
    name : for messages.
    size : bytes, whole pages of 4 KiB. The window of on-chip semaphores inside is never mapped.
    asid : ASID that it is bound to, or being bound; None while the machine knows nothing of it.
        Set by `AddressSpaces`.
    closed : its tables are gone. Set by `end`.
    """

    def __init__(
        self, mmu: Mmu, memory: Memory, name: str = "", *, size: int = 1 << VA_BITS
    ) -> None:
        if not 0 < size <= 1 << VA_BITS or size % PAGE_SIZES[0]:
            raise ValueError(
                f"size = {size:#x} is not whole pages of {PAGE_SIZES[0]} bytes up to 2^{VA_BITS}"
            )
        self._mmu, self._memory, self.name, self.size = mmu, memory, name, size
        self.asid: int | None = None
        self.closed = False
        self._tables = PageTables(memory, name)
        self._lock = FairLock(memory.machine)
        self._addresses = Ranges(0, size)
        if size > WINDOW_BASE:
            self._addresses.take(WINDOW_BASE, min(WINDOW_BYTES, size - WINDOW_BASE))
        # By address; and those that the machine may still remember.
        self._mappings: list[Mapping] = []
        self._of_buffer: dict[Buffer, list[Mapping]] = {}
        self._leaving: list[Mapping] = []
        self._unsettled = False

    def __str__(self) -> str:
        asid = "no ASID" if self.asid is None else f"ASID {self.asid}"
        return f"address space {self.name!r} ({asid})"

    def __iter__(self) -> Iterator[Mapping]:
        """All mappings, by address."""
        return iter(tuple(self._mappings))

    @property
    def base(self) -> int:
        """Its page directory base, a physical byte address."""
        return self._tables.root

    @property
    def limit(self) -> int:
        """Its last virtual address."""
        return self.size - 1

    @property
    def upper(self) -> int:
        """Where the driver puts what channels need for themselves, out of the way of other
        addresses: the upper half of what ring entries and semaphores can reach."""
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
        """Map a buffer, or `size` bytes from a physical address on.

        Parameters
        ----------
        va : first virtual address; else the lowest free one that suits, at `above` or higher.
        page_size : 4 KiB, 64 KiB or 2 MiB; else the largest of which addresses and size are
            multiples.

        Raises `MapError` for a range that is not whole pages, not free, or outside address space or
        memory; `OutOfAddresses`; `OutOfMemory` when there is no room for a table. Then nothing has
        been mapped. `SpaceError` for a space that was closed.
        """
        buffer = memory if isinstance(memory, Buffer) else None
        permissions = {"read_only": read_only, "privileged": privileged, "atomics": atomics}
        async with self._lock:
            self._check_open()
            if size is None:
                size = buffer.room if buffer else 0
            pa = _physical(memory, size)
            page_size = page_size or _largest_page(pa, size, va)
            with self._named():
                va = self._find(va, size, page_size, above)
                replaced = self._tables.map(va, pa, size, page_size=page_size, **permissions)
            name = name or (buffer.name if buffer else "")
            mapping = Mapping(self, va, pa, size, page_size, buffer, name, **permissions)
            self._enter(mapping)
            if replaced:
                await self._forget(replaced)
        return mapping

    async def allocate(
        self, size: int, *, above: int = _LOWEST, read_only: bool = False, name: str = ""
    ) -> Buffer:
        """A new buffer, whole pages, mapped here; raises as `map` and `Memory.allocate`."""
        buffer = self._memory.allocate_pages(size, name=name)
        try:
            await self.map(buffer, above=above, read_only=read_only)
        except Exception:
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
        """Map the memory behind a mapping of another space, or of this one at a second address
        (ASID-6), with its permissions; `read_only` takes writes away. Otherwise as `map`."""
        mapping.at(0)
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
        """Unmap; afterwards the memory behind may be freed.

        Raises `SpaceError` for a mapping that is not of this space, or was unmapped.
        """
        async with self._lock:
            self._check_mine(mapping)
            pages = self._tables.unmap(mapping.va, mapping.size)
            mapping.unmapped = True
            self._remove(mapping)
            self._leaving.append(mapping)
            await self._forget(pages)

    async def protect(self, mapping: Mapping, *, read_only: bool) -> None:
        """Allow or forbid writes. Raises `SpaceError` as `unmap`."""
        async with self._lock:
            self._check_mine(mapping)
            changed = self._tables.protect(mapping.va, mapping.size, read_only=read_only)
            mapping.read_only = read_only
            if changed:
                await self._forget(changed)

    async def settle(self) -> None:
        """Make good what a change that was broken off has left to do; nothing when there is
        none."""
        async with self._lock:
            if self._unsettled:
                await self._forget([])

    async def end(self) -> None:
        """Unmap everything and give the tables back. Only for `AddressSpaces.close`, once the
        machine has acknowledged that nothing is bound."""
        async with self._lock:
            self._check_open()
            self.closed = True
            for mapping in self._mappings:
                mapping.unmapped = True
            self._leaving += self._mappings
            self._mappings.clear()
            self._of_buffer.clear()
            self._let_go()
            self._tables.free()

    async def unmap_all(self, buffer: Buffer) -> None:
        """Unmap every mapping of a buffer."""
        for mapping in tuple(self._of_buffer.get(buffer, ())):
            await self.unmap(mapping)

    # -- questions ---------------------------------------------------------------------------------

    def at(self, buffer: Buffer, offset: int = 0, size: int = 0) -> int:
        """Virtual address of byte `offset` of a buffer, in its first mapping here; `size` bytes
        from there must lie inside.

        Raises `MemoryUseError`, also when the buffer is not mapped here.
        """
        buffer.at(offset, size)
        return self.mapping(buffer).at(offset, size)

    def mapping(self, buffer: Buffer) -> Mapping:
        """First mapping of a buffer in this space. Raises `MemoryUseError` when there is none."""
        if buffer not in self._of_buffer:
            raise MemoryUseError(f"{buffer} is not mapped in {self}: map it there first")
        return self._of_buffer[buffer][0]

    def has(self, buffer: Buffer) -> bool:
        """Whether a buffer is mapped in this space."""
        return buffer in self._of_buffer

    def find(self, va: int) -> Mapping | None:
        """The mapping in which a virtual address lies."""
        before = self._before(va)
        return before if before is not None and va < before.end else None

    def translate(
        self, va: int, access: AccessType = AccessType.READ, *, privileged: bool = False
    ) -> int:
        """Physical address of a virtual one, if such an access to it is allowed.

        Raises `TranslationFault` where the machine would fault.
        """
        mapping = self.find(va)
        if mapping is None:
            cause = FaultType.PTE if 0 <= va < self.size else FaultType.VA_LIMIT
        else:
            cause = _refusal(mapping, access, privileged)
            if cause is None:
                return mapping.pa + va - mapping.va
        raise TranslationFault(self.name, self.asid, va, access, cause, context=self.describe(va))

    def describe(self, va: int) -> str:
        """What lies at a virtual address, in words, for messages."""
        if self._in_window(va, 1):
            return f"{va:#x} lies in the window of on-chip semaphores, which is no memory"
        before = self._before(va)
        if before is None:
            return f"nothing is mapped up to {va:#x}"
        if va < before.end:
            return f"{va:#x} lies in {before.what}"
        return f"{va:#x} lies {va - before.end} bytes behind {before.what}"

    # -- addresses ---------------------------------------------------------------------------------

    def _find(self, va: int | None, size: int, page_size: int, above: int) -> int:
        """A free range: that at `va`, or any."""
        if size <= 0:
            raise MapError(f"size = {size}: a mapping has at least one page")
        if va is not None:
            self._check_free(va, size)
            return va
        found = self._addresses.find(size, page_size, lowest=above)
        if found is None:
            raise OutOfAddresses(
                f"no {size} bytes on a multiple of {page_size}: {self._addresses.total} of "
                f"{self.size} bytes of addresses are free, {self._addresses.largest} in one piece"
            )
        return found

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
            f"{size} bytes at {va:#x} were unmapped, which the machine has not acknowledged"
        )

    def _in_window(self, va: int, size: int) -> bool:
        return va < WINDOW_BASE + WINDOW_BYTES and WINDOW_BASE < va + size

    def _before(self, va: int) -> Mapping | None:
        """The last mapping that begins at or below `va`."""
        number = bisect_right(self._mappings, va, key=attrgetter("va"))
        return self._mappings[number - 1] if number else None

    # -- invalidation ------------------------------------------------------------------------------

    async def _forget(self, pages: list[Page]) -> None:
        """Make the machine forget what it remembers of `pages`. What left before is then free."""
        asid = self.asid
        if asid is not None:
            # With an earlier invalidation that did not end, nobody knows what is remembered.
            whole = self._unsettled or len(pages) > PAGEWISE
            self._unsettled = True
            if whole:
                await self._mmu.invalidate_asid(asid)
            else:
                for page in pages:
                    await self._mmu.invalidate_page(asid, page.va)
        self._unsettled = False
        self._tables.release()
        self._let_go()

    def _enter(self, mapping: Mapping) -> None:
        """It is mapped: its addresses are taken, its buffer cannot be freed."""
        self._addresses.take(mapping.va, mapping.size)
        insort(self._mappings, mapping, key=attrgetter("va"))
        if mapping.buffer is not None:
            self._of_buffer.setdefault(mapping.buffer, []).append(mapping)
            mapping.buffer.mappings.append(mapping)

    def _remove(self, mapping: Mapping) -> None:
        """It is no longer mapped; the machine may remember it still."""
        self._mappings.remove(mapping)
        if mapping.buffer is not None:
            left = self._of_buffer[mapping.buffer]
            left.remove(mapping)
            if not left:
                del self._of_buffer[mapping.buffer]

    def _let_go(self) -> None:
        """The machine remembers nothing of what left."""
        for mapping in self._leaving:
            self._addresses.give(mapping.va, mapping.size)
            if mapping.buffer is not None:
                mapping.buffer.mappings.remove(mapping)
        self._leaving.clear()

    # -- checks ------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise SpaceError(f"{self} was closed")

    def _check_mine(self, mapping: Mapping) -> None:
        if mapping.space is not self:
            raise SpaceError(f"{mapping} is none of {self}")
        if mapping.unmapped:
            raise SpaceError(f"{mapping} was unmapped")

    @contextmanager
    def _named(self) -> Generator[None, None, None]:
        """Errors of the tables say of which space they are."""
        try:
            yield
        except MapError as error:
            raise type(error)(f"{self}: {error}") from None


def _physical(memory: Buffer | int, size: int) -> int:
    """Physical address of what is to be mapped, whose first `size` bytes a buffer must have."""
    if isinstance(memory, int):
        return memory
    start = memory.at(0)
    if size > memory.room:
        raise MemoryUseError(f"{size} bytes are more than the {memory.room} of {memory}")
    return start


def _refusal(mapping: Mapping, access: AccessType, privileged: bool) -> FaultType | None:
    """Why the machine would refuse an access, None when it would not."""
    atomic = access in {AccessType.ATOMIC_STRONG, AccessType.ATOMIC_WEAK}
    if mapping.privileged and not privileged:
        return FaultType.PRIV
    if mapping.read_only and (atomic or access is AccessType.WRITE):
        return FaultType.RO
    if atomic and not mapping.atomics:
        return FaultType.ATOMIC
    return None


def _largest_page(pa: int, size: int, va: int | None) -> int:
    """The largest page size of which addresses and size are multiples, or the smallest."""
    bits = pa | size | (va or 0)
    return next((each for each in reversed(PAGE_SIZES) if bits % each == 0), PAGE_SIZES[0])
