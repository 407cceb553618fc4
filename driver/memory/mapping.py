"""A mapping: a range of virtual addresses, backed by physical memory."""

from dataclasses import dataclass

from signalbox.driver.memory.physical import Buffer, MemoryUseError
from signalbox.driver.platform.whole import whole

__all__ = ["Mapping"]


@dataclass(eq=False)
class Mapping:
    """`size` bytes at virtual address `va`, backed by physical memory at `pa`, in pages of
    `page_size` bytes. Created by `AddressSpace.map` and changed only by that class.

    `int(mapping)` and `mapping.at(offset)` give virtual addresses. `space` is the address space,
    for comparison and messages. A mapped `buffer` cannot be freed.
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

    def __index__(self) -> int:
        return self.va

    @property
    def what(self) -> str:
        """Name, size and address, for messages that already name the space."""
        name = f"mapping {self.name!r}" if self.name else "mapping"
        return f"{name} ({self.size} bytes at {self.va:#x})"

    @property
    def end(self) -> int:
        """First virtual address past the mapping."""
        return self.va + self.size

    def at(self, offset: int, size: int = 0) -> int:
        """Virtual address of byte `offset`; `size` bytes from there must lie inside the mapping.

        Raises `MemoryUseError`.
        """
        if self.unmapped:
            raise MemoryUseError(f"{self} was unmapped")
        offset = whole(offset, "offset")
        if not 0 <= offset <= offset + size <= self.size:
            raise MemoryUseError(f"bytes {offset} … {offset + size} are not inside {self}")
        return self.va + offset
