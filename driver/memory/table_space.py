"""Address spaces of the driver that owns the machine: page tables in memory, TLB invalidation."""

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.mmu import Mmu
from signalbox.driver.memory.page_tables import Page, PageTables
from signalbox.driver.memory.physical import Memory
from signalbox.hw.config import VA_BITS

__all__ = ["PAGE_INVALIDATION_LIMIT", "TableSpace"]

PAGE_INVALIDATION_LIMIT = 16
"""Maximum number of pages that one change invalidates individually; a larger change invalidates the
whole ASID. It is the default size of a first-level TLB: beyond it, keeping the other entries gains
less than the extra invalidations cost."""


class TableSpace(AddressSpace):
    """An address space with page tables in the machine's memory.

    Parameters
    ----------
    memory : allocator of its page tables and buffers.
    """

    def __init__(
        self,
        mmu: Mmu,
        memory: Memory,
        name: str = "",
        *,
        size: int = 1 << VA_BITS,
    ) -> None:
        super().__init__(memory, name, size)
        self._mmu = mmu
        self._tables = PageTables(memory, name)

    @property
    def base(self) -> int:
        """Page directory base, a physical byte address."""
        return self._tables.root

    async def _enter(
        self, va: int, pa: int, size: int, page_size: int, permissions: dict[str, bool]
    ) -> list[Page]:
        return self._tables.map(va, pa, size, page_size=page_size, **permissions)

    async def _remove(self, mapping: Mapping) -> list[Page]:
        return self._tables.unmap(mapping.va, mapping.size)

    async def _restrict(self, mapping: Mapping, *, read_only: bool) -> list[Page]:
        return self._tables.protect(mapping.va, mapping.size, read_only=read_only)

    async def _invalidate(self, pages: list[Page], *, whole: bool = False) -> None:
        asid = self.asid
        if asid is not None:
            # After an invalidation that did not complete, any page of the ASID may be stale.
            whole = whole or self._unsettled or len(pages) > PAGE_INVALIDATION_LIMIT
            self._unsettled = True
            if whole:
                await self._mmu.invalidate_asid(asid)
            else:
                for page in pages:
                    await self._mmu.invalidate_page(asid, page.va)
        self._unsettled = False
        self._tables.release()
        self._release_retiring()

    async def _free(self) -> None:
        self._tables.free()
