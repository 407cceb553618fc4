"""Circular allocator for the pushbuffer memory of a channel."""

from collections import deque
from dataclasses import dataclass

__all__ = ["Segments"]


@dataclass
class _Segment:
    """Bytes `start` … `end` - 1, in use by submission number `entry`."""

    entry: int
    start: int
    end: int


class Segments:
    """Segments within `size` bytes of memory, freed in the order in which they were placed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._segments: deque[_Segment] = deque()

    def __len__(self) -> int:
        return len(self._segments)

    def place(self, entry: int, size: int) -> int | None:
        """Allocate `size` bytes for submission number `entry`. Returns their offset in bytes; None
        if there is no room."""
        start = self.room(size)
        if start is not None:
            self._segments.append(_Segment(entry, start, start + size))
        return start

    def room(self, size: int) -> int | None:
        """Offset that `place` would return, or None."""
        if not self._segments:
            return 0 if size <= self.size else None
        first, last = self._segments[0].start, self._segments[-1].end
        if first < last:
            if last + size <= self.size:
                return last
            return 0 if size < first else None
        return last if last + size < first else None

    def free(self, entry: int) -> None:
        """Free the segments of submissions before number `entry`."""
        while self._segments and self._segments[0].entry < entry:
            self._segments.popleft()
