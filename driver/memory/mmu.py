"""Interface to a machine's address translation: bind and invalidate."""

from typing import Protocol, runtime_checkable

__all__ = ["Mmu"]


@runtime_checkable
class Mmu(Protocol):
    """ASID table and TLB invalidation of one machine (ASID-2, ASID-8, ASID-9).

    Each method returns once the machine has acknowledged the command. From then on no earlier
    translation of the named ASID or page is used, not even one whose walk was in flight. Other
    ASIDs keep translating. Methods may be called from several tasks and take effect in call order.
    A command that is not acknowledged raises an exception; it may or may not have taken effect.
    """

    async def bind(self, asid: int, base: int, limit: int) -> None:
        """Bind `asid` to page tables and invalidate its translations (ASID-8).

        Parameters
        ----------
        base : page directory base, a physical byte address, multiple of 4096.
        limit : last virtual address that may be accessed, the last byte of a 4 KiB page (as
            ADR_LIMIT of an instance block). A larger page that extends past the limit counts as
            past it as a whole.
        """
        ...

    async def unbind(self, asid: int) -> None:
        """Unbind `asid` and invalidate its translations. Its requests then fault with
        UNBOUND_INST_BLOCK."""
        ...

    async def invalidate_all(self) -> None:
        """Invalidate the translations of all ASIDs."""
        ...

    async def invalidate_asid(self, asid: int) -> None:
        """Invalidate the translations of one ASID."""
        ...

    async def invalidate_page(self, asid: int, va: int) -> None:
        """Invalidate the page, of any size, that contains `va` in one ASID, and walks in flight
        that may return it."""
        ...
