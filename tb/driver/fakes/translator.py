"""Translation in plain Python that remembers as much as it may, for tests of the driver."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from signalbox.tb.models.pagetables import REGION, Fault, Sparse, Translation, walk

__all__ = ["UNBOUND", "VA_LIMIT", "Translator"]

VA_LIMIT, UNBOUND = 3, 4
ENTRY_SHIFT, REGION_SHIFT = 21, 29
"""Address bits within the range of an entry of PD0, and of PD1."""


@dataclass(frozen=True)
class Remembered:
    """A page in the TLB."""

    asid: int
    va: int
    page: Translation

    def holds(self, asid: int, va: int) -> bool:
        return asid == self.asid and self.va <= va < self.va + self.page.page_bytes


class Translator:
    """The ASID table, and a TLB over tables in `memory`.

    The TLB has no limit: every translated page is remembered until it is invalidated, and the
    oldest match is used. Table entries read on the way are remembered, too: for each 2 MiB region,
    as in a walk in flight; entries of PD1 for each 512 MiB, as in a walk cache. Invalid entries are
    not remembered.

    Members
    -------
    bound : page directory base and last address of each ASID.
    """

    def __init__(self, memory: bytearray) -> None:
        self._memory = memory
        self.bound: dict[int, tuple[int, int]] = {}
        self._pages: list[Remembered] = []
        self._entries: dict[tuple[int, int, int], dict[int, int]] = {}

    # Commands

    def bind(self, asid: int, base: int, limit: int) -> None:
        self.bound[asid] = base, limit
        self.forget_asid(asid)

    def unbind(self, asid: int) -> None:
        self.bound.pop(asid, None)
        self.forget_asid(asid)

    def forget_all(self) -> None:
        self._forget(lambda *_: True)

    def forget_asid(self, asid: int) -> None:
        self._forget(lambda each, _: each == asid)

    def forget_page(self, asid: int, va: int) -> None:
        self._forget(lambda each, page: each == asid and va in page)

    def _forget(self, covered: Callable[[int, range], bool]) -> None:
        """Forget pages for which `covered(asid, addresses)` is true, and table entries read by
        walks there."""
        self._pages = [
            each
            for each in self._pages
            if not covered(each.asid, range(each.va, each.va + each.page.page_bytes))
        ]
        for asid, shift, number in list(self._entries):
            if covered(asid, range(number << shift, number + 1 << shift)):
                del self._entries[asid, shift, number]

    # Requests

    def access(self, asid: int, va: int) -> Translation | Sparse | Fault:
        """Translate a request, and remember the page if one is found."""
        if asid not in self.bound:
            return Fault(UNBOUND, 0)
        base, limit = self.bound[asid]
        if va > limit:
            return Fault(VA_LIMIT, 0)
        known = next((each for each in self._pages if each.holds(asid, va)), None)
        if known is None:
            found = walk(self._load(asid, va), len(self._memory), base, va)
            if not isinstance(found, Translation):
                return found
            offset = va % found.page_bytes
            first = Translation(
                *(found.pa - offset, found.page_bytes),
                *(found.read_only, found.privileged, found.atomic_disable),
            )
            known = Remembered(asid, va - offset, first)
            self._pages.append(known)
        page, pa = known.page, known.page.pa + va - known.va
        if pa >= len(self._memory):
            return Fault(REGION, 3)
        return Translation(
            *(pa, page.page_bytes),
            *(page.read_only, page.privileged, page.atomic_disable),
        )

    def remembers(self, address: int, size: int) -> bool:
        """Whether an access or a walk may still reach a range of physical memory."""
        end = address + size
        in_page = any(
            each.page.pa < end and address < each.page.pa + each.page.page_bytes
            for each in self._pages
        )
        return in_page or any(
            address <= entry < end for entries in self._entries.values() for entry in entries
        )

    def _load(self, asid: int, va: int) -> Callable[[int], int]:
        """Returns the load function of one walk."""
        near, far = (
            self._entries.setdefault((asid, shift, va >> shift), {})
            for shift in (ENTRY_SHIFT, REGION_SHIFT)
        )
        reads = count()

        def load(address: int) -> int:
            # The third entry belongs to PD1.
            known = far if next(reads) == 2 else near
            if address not in known:
                value = int.from_bytes(self._memory[address : address + 8], "little")
                if not value:
                    return 0
                known[address] = value
            return known[address]

        return load
