"""Which ranges of a line of addresses are free: of physical memory, or of an address space."""

from bisect import insort

__all__ = ["Ranges"]


class Ranges:
    """The free ranges of addresses `start` … `end` - 1, at first all of them.

    Neighbouring free ranges are joined, so a line whose parts are all given back is whole again.
    """

    def __init__(self, start: int, end: int) -> None:
        self._free: list[tuple[int, int]] = [(start, end)] if start < end else []

    @property
    def total(self) -> int:
        """Bytes that are free."""
        return sum(end - start for start, end in self._free)

    @property
    def largest(self) -> int:
        """Bytes of the largest free range."""
        return max((end - start for start, end in self._free), default=0)

    def find(self, size: int, align: int, *, lowest: int = 0) -> int | None:
        """First fit: the lowest multiple of `align`, at or above `lowest`, at which `size` bytes
        are free; None when there is none."""
        for start, end in self._free:
            address = -(-max(start, lowest) // align) * align
            if address + size <= end:
                return address
        return None

    def has(self, address: int, size: int) -> bool:
        """Whether a range is free."""
        return any(start <= address and address + size <= end for start, end in self._free)

    def take(self, address: int, size: int) -> None:
        """A range, which is free, is so no more."""
        remaining: list[tuple[int, int]] = []
        for start, end in self._free:
            if start <= address < end:
                parts = [(start, address), (address + size, end)]
                remaining += [part for part in parts if part[0] < part[1]]
            else:
                remaining.append((start, end))
        self._free = remaining

    def give(self, address: int, size: int) -> None:
        """A range, which was taken, is free again."""
        insort(self._free, (address, address + size))
        joined: list[tuple[int, int]] = []
        for start, end in self._free:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        self._free = joined
