"""One mapping: a range of an address space, and the physical memory behind it."""

from dataclasses import dataclass

from signalbox.driver.memory.physical import Buffer, MemoryUseError

__all__ = ["Mapping"]


@dataclass(eq=False)
class Mapping:
    """`size` bytes from virtual address `va` on are those from physical `pa` on, in pages of
    `page_size` bytes. Made by `AddressSpace.map`; changed by its methods only.

    Usable wherever an address is wanted: `int(mapping)`, `mapping.at(offset)`. `space` is its
    address space, for comparison and messages. A mapped `buffer` cannot be freed.
    """

    space: object
    va: int
    pa: int
    size: int
    page_size: int
    buffer: Buffer | None = None
    name: str = ""
    read_only: bool = False
    privileged: bool = False
    atomics: bool = True
    unmapped: bool = False

    def __str__(self) -> str:
        return f"{self.what} of {self.space}"

    def __int__(self) -> int:
        return self.va

    @property
    def what(self) -> str:
        """Name and place in words, for messages that name the space already."""
        name = f"mapping {self.name!r}" if self.name else "mapping"
        return f"{name} ({self.size} bytes at {self.va:#x})"

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.va + self.size

    def at(self, offset: int, size: int = 0) -> int:
        """Virtual address of byte `offset`; `size` bytes from there must lie inside.

        Raises `MemoryUseError`.
        """
        if self.unmapped:
            raise MemoryUseError(f"{self} was unmapped")
        if not 0 <= offset <= offset + size <= self.size:
            raise MemoryUseError(f"bytes {offset} … {offset + size} are not inside {self}")
        return self.va + offset
