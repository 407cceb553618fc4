"""Page walk over tables in memory, written only from the public formats (spec 6.1).

Independent of the hardware and the driver: plain integers, with bit positions as published.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ORDINARY", "Fault", "Sparse", "Translation", "walk"]

Load = Callable[[int], int | None]
"""Returns the 8 bytes at a physical address; None for a bus error."""


@dataclass(frozen=True)
class Translation:
    """A mapped address, with the page's size and permissions."""

    pa: int
    page_bytes: int
    read_only: bool
    privileged: bool
    atomic_disable: bool


@dataclass(frozen=True)
class Sparse:
    """A sparse address: reads return 0, writes are dropped."""


@dataclass(frozen=True)
class Fault:
    """A fault: FAULT_TYPE 0 … 15, and the number of table entries read until then."""

    code: int
    reads: int


PDE, PDE_SIZE, PTE, UNSUPPORTED_APERTURE, UNSUPPORTED_KIND = 0, 1, 2, 10, 12
REGION, POISONED = 13, 14

ORDINARY = (0, 6)
"""KIND of ordinary memory: pitch, and generic memory of Turing and later."""


class _End(Exception):
    def __init__(self, outcome: Translation | Sparse | Fault) -> None:
        self.outcome = outcome


def walk(load: Load, memory_bytes: int, pdb: int, va: int) -> Translation | Sparse | Fault:
    """Translate `va` with the tables whose PD3 is at physical address `pdb`. `memory_bytes` : size
    of memory; tables and pages beyond it fault."""
    try:
        return _Walk(load, memory_bytes).run(pdb, va)
    except _End as end:
        return end.outcome


class _Walk:
    def __init__(self, load: Load, memory_bytes: int) -> None:
        self.load, self.memory_bytes, self.reads = load, memory_bytes, 0

    def fault(self, code: int) -> _End:
        return _End(Fault(code, self.reads))

    def read(self, address: int, dwords: int = 2) -> int:
        """Read an entry of 2 or 4 dwords, which counts as one read. Raises `_End` with a fault if
        it is outside memory or the bus reports an error."""
        self.reads += 1
        if address + 4 * dwords > self.memory_bytes:
            raise self.fault(REGION)
        words = [self.load(address + 8 * i) for i in range(dwords // 2)]
        value = 0
        for i, word in enumerate(words):
            if word is None:
                raise self.fault(POISONED)
            value |= word << 64 * i
        return value

    def table(self, aperture: int, volatile: int, address: int) -> int | None:
        """Address of the next table; None if there is none. Raises `_End` if the entry is sparse or
        its aperture is not supported."""
        if aperture == 0:
            if volatile:
                raise _End(Sparse())
            return None
        if aperture != 1:
            raise self.fault(UNSUPPORTED_APERTURE)
        return address

    def run(self, pdb: int, va: int) -> Translation | Sparse:
        at = pdb
        for high, low in ((48, 47), (46, 38), (37, 29)):
            entry = self.read(at + 8 * (va >> low & (1 << high - low + 1) - 1))
            if entry & 1 and low == 29:
                return self.page(entry, va, 1 << 29)
            if entry & 1:
                raise self.fault(PDE_SIZE)
            found = self.table(entry >> 1 & 3, entry >> 3 & 1, (entry >> 8 & 0x1FF_FFFF) << 12)
            if found is None:
                raise self.fault(PDE)
            at = found
        dual = self.read(at + 16 * (va >> 21 & 0xFF), 4)
        if dual & 1:
            return self.page(dual & (1 << 64) - 1, va, 1 << 21)
        return self.dual(dual, va)

    def dual(self, entry: int, va: int) -> Translation | Sparse:
        """Check the table of 64 KiB pages first, then that of 4 KiB pages."""
        big, small = entry >> 1 & 3, entry >> 65 & 3
        if not big and not small:
            if entry >> 3 & 1 or entry >> 67 & 1:
                raise _End(Sparse())
            raise self.fault(PDE)
        if big:
            at = self.table(big, 0, (entry >> 4 & 0x1FFF_FFFF) << 8)
            assert at is not None
            pte = self.read(at + 8 * (va >> 16 & 31))
            nothing_below = not small and not entry >> 67 & 1
            if pte & 1 or pte >> 5 & 1 or pte >> 3 & 1 or nothing_below:
                return self.page(pte, va, 1 << 16)
        at = self.table(small, entry >> 67 & 1, (entry >> 72 & 0x1FF_FFFF) << 12)
        assert at is not None
        return self.page(self.read(at + 8 * (va >> 12 & 511)), va, 1 << 12)

    def page(self, pte: int, va: int, size: int) -> Translation | Sparse:
        """Translation by a PTE. The page must lie inside memory; of a 512 MiB page, only the 2 MiB
        piece with the address. Raises `_End` if the PTE is sparse or faults."""
        if not pte & 1:
            if pte >> 3 & 1:
                raise _End(Sparse())
            raise self.fault(PTE)
        if pte >> 1 & 3:
            raise self.fault(UNSUPPORTED_APERTURE)
        if pte >> 56 not in ORDINARY:
            raise self.fault(UNSUPPORTED_KIND)
        base = (pte >> 8 & 0x1FF_FFFF) << 12
        pa = base // size * size + va % size
        piece = min(size, 1 << 21)
        if pa // piece * piece + piece > self.memory_bytes:
            raise self.fault(REGION)
        return Translation(pa, size, bool(pte >> 6 & 1), bool(pte >> 5 & 1), bool(pte >> 7 & 1))
