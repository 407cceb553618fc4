"""Free ranges of addresses, of physical memory or of an address space."""

from bisect import insort

__all__ = ["Ranges"]


class Ranges:
    """Free ranges within addresses `start` … `end` - 1, all free at first.

    Adjacent free ranges are merged, so everything taken and given back is one range again.
    """

    def __init__(self, start: int, end: int) -> None:
        self._free: list[tuple[int, int]] = [(start, end)] if start < end else []

    @property
    def total(self) -> int:
        """Number of free bytes."""
        return sum(end - start for start, end in self._free)

    @property
    def largest(self) -> int:
        """Size of the largest free range, in bytes."""
        return max((end - start for start, end in self._free), default=0)

    def find(self, size: int, align: int, *, lowest: int = 0) -> int | None:
        """First fit: the lowest multiple of `align`, at or above `lowest`, with `size` free bytes;
        None if there is none."""
        for start, end in self._free:
            address = -(-max(start, lowest) // align) * align
            if address + size <= end:
                return address
        return None

    def has(self, address: int, size: int) -> bool:
        """Whether the whole range is free."""
        return any(start <= address and address + size <= end for start, end in self._free)

    def take(self, address: int, size: int) -> None:
        """Take a range, which must be free."""
        remaining: list[tuple[int, int]] = []
        for start, end in self._free:
            if start <= address < end:
                parts = [(start, address), (address + size, end)]
                remaining += [part for part in parts if part[0] < part[1]]
            else:
                remaining.append((start, end))
        self._free = remaining

    def give(self, address: int, size: int) -> None:
        """Free a range, which must be taken."""
        insort(self._free, (address, address + size))
        joined: list[tuple[int, int]] = []
        for start, end in self._free:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        self._free = joined
