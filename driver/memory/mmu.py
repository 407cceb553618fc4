"""What the driver needs of a machine's address translation: bind and invalidate."""

from typing import Protocol, runtime_checkable

__all__ = ["Mmu"]


@runtime_checkable
class Mmu(Protocol):
    """The ASID table and the invalidations of one machine (ASID-2, ASID-8, ASID-9).

    Each method returns when the machine has acknowledged: from then on no translation made before
    is used for what it names, not even one whose walk was in flight. Other ASIDs keep translating.
    All may be called from several tasks, and take effect in call order. What a machine does not
    acknowledge raises, and may have taken effect or not.
    """

    async def bind(self, asid: int, base: int, limit: int) -> None:
        """Requests of `asid` are translated by the tables whose page directory lies at physical
        byte address `base`, a multiple of 4096. `limit` is the last virtual address that they may
        use, the last byte of a 4 KiB page (as ADR_LIMIT of an instance block); all of a larger page
        that reaches past it is past the limit. Everything remembered of the ASID is
        forgotten (ASID-8)."""
        ...

    async def unbind(self, asid: int) -> None:
        """Requests of `asid` fault: UNBOUND_INST_BLOCK. Everything remembered of it is
        forgotten."""
        ...

    async def invalidate_all(self) -> None:
        """Forget the translations of every ASID."""
        ...

    async def invalidate_asid(self, asid: int) -> None:
        """Forget the translations of one ASID."""
        ...

    async def invalidate_page(self, asid: int, va: int) -> None:
        """Forget the page of one ASID, of whatever size, in which `va` lies, and walks that may
        have come to one."""
        ...
