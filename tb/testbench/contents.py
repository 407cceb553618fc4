"""Contents of a memory behind memory ports, and its failing addresses."""

import functools
import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from signalbox.hw.config import VA_BITS
from signalbox.hw.records.memory import MemoryStatus

__all__ = ["PAGE", "Contents", "Failing", "Space"]

PAGE = 4096
"""Bytes of a page. Contents are kept by page, and no burst crosses a page boundary."""

Space = Hashable
"""Identifies an address space, e.g. by ASID and whether addresses are physical."""


@functools.lru_cache(maxsize=512)
def _fresh(space: Space, page: int) -> bytes:
    """Contents of a page that was never written: random bytes, derived from space and page number,
    so that a wrong address shows as wrong data."""
    return random.Random(f"{space} {page}").randbytes(PAGE)


@dataclass(frozen=True)
class Failing:
    """Addresses of one space at which reads, or writes, fail with `status`."""

    space: Space
    addresses: range
    status: MemoryStatus
    write: bool

    def hits(self, space: Space, low: int, high: int) -> bool:
        """Whether an access to the addresses from `low` to `high` (exclusive) fails. The direction
        is not considered."""
        mine = space == self.space
        return mine and low < self.addresses.stop and high > self.addresses.start


class Contents:
    """Bytes of every address space. Addresses wrap at the end of a space (2^`VA_BITS` bytes). Bytes
    that were never written are random.

    Members
    -------
    failing : addresses at which accesses fail; may be replaced at any time.
    pages : pages that have been written, by space and page number.
    """

    def __init__(self) -> None:
        self.failing: list[Failing] = []
        self.pages: dict[tuple[Space, int], bytearray] = {}

    def page(self, space: Space, page: int) -> bytes | bytearray:
        """Current contents of a page, given by its number."""
        return self.pages.get((space, page)) or _fresh(space, page)

    def read(self, space: Space, address: int, size: int) -> bytes:
        """`size` bytes from `address`."""
        found = bytearray()
        while len(found) < size:
            page, offset = divmod((address + len(found)) % (1 << VA_BITS), PAGE)
            found += self.page(space, page)[offset : offset + size - len(found)]
        return bytes(found)

    def write(self, space: Space, address: int, content: bytes) -> None:
        """Write bytes from `address`."""
        done = 0
        while done < len(content):
            page, offset = divmod((address + done) % (1 << VA_BITS), PAGE)
            part = content[done : done + PAGE - offset]
            key = (space, page)
            if key not in self.pages:
                self.pages[key] = bytearray(_fresh(space, page))
            self.pages[key][offset : offset + len(part)] = part
            done += len(part)

    def store(self, space: Space, address: int, word: dict[str, Any], size: int) -> None:
        """Write one beat at `address`. `word` : a `write_beat`; only the bytes that its strobe
        selects are written. `size` : bytes of the beat."""
        lanes, strobe = word["data"].to_bytes(size, "little"), word["strobe"]
        if strobe == (1 << size) - 1:
            self.write(space, address, lanes)
            return
        for lane in range(size):
            if strobe >> lane & 1:
                self.write(space, address + lane, lanes[lane : lane + 1])

    def status(self, space: Space, low: int, high: int, *, write: bool) -> MemoryStatus:
        """Status of an access to the addresses from `low` to `high` (exclusive): OK, or the highest
        status among the entries of `failing` that it touches."""
        hits = [
            one.status for one in self.failing if one.write == write and one.hits(space, low, high)
        ]
        return max(hits, key=lambda status: status.value, default=MemoryStatus.OK)
