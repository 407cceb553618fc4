"""Physical memory: an allocator, and buffers that numpy arrays go into and come out of."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from signalbox.driver.memory.ranges import Ranges
from signalbox.driver.platform.machine import Machine
from signalbox.hw.page_tables import PAGE_SIZES

__all__ = ["Buffer", "Memory", "MemoryUseError", "OutOfMemory", "page_for"]


class OutOfMemory(Exception):
    """No free range is large enough; the message names the sizes."""


class MemoryUseError(Exception):
    """A buffer was used outside its bounds, after its end, or in an address space in which it is
    not mapped; or freed twice; or reserved where it cannot be."""


@dataclass(eq=False)
class Buffer:
    """`size` bytes of physical memory from `address` on, of `room` that are set aside: more where
    they are whole pages. Its virtual address is another in each space (`AddressSpace.at`).

    `mappings` lists its mappings in all address spaces, including those whose invalidation the
    machine has not acknowledged. Until the list is empty the buffer cannot be freed.
    """

    memory: "Memory"
    address: int
    size: int
    name: str = ""
    room: int = 0
    freed: bool = False
    mappings: list[object] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.room = max(self.room, self.size)

    def __str__(self) -> str:
        name = f"buffer {self.name!r}" if self.name else "buffer"
        return f"{name} ({self.size} bytes at physical {self.address:#x})"

    def at(self, offset: int, size: int = 0) -> int:
        """Physical address of byte `offset`; `size` bytes from there must lie inside."""
        if self.freed:
            raise MemoryUseError(f"{self} was freed")
        if not 0 <= offset <= offset + size <= self.size:
            raise MemoryUseError(f"bytes {offset} … {offset + size} are not inside {self}")
        return self.address + offset

    def write(self, data: bytes | bytearray | np.ndarray, offset: int = 0) -> None:
        """Put bytes, or an array in C order, at byte `offset`."""
        raw = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
        self.memory.machine.memory_write(self.at(offset, len(raw)), raw)

    def read(
        self,
        dtype: DTypeLike = np.uint8,
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> np.ndarray:
        """Copy of the contents from byte `offset` on as an array; to the end without a `shape`."""
        item = np.dtype(dtype).itemsize
        count = (self.size - offset) // item if shape is None else int(np.prod(shape))
        raw = self.memory.machine.memory_read(self.at(offset, count * item), count * item)
        array = np.frombuffer(raw, dtype).copy()
        return array if shape is None else array.reshape(shape)

    def fill(self, byte: int = 0) -> None:
        """Set every byte."""
        self.write(bytes([byte]) * self.size)

    def free(self) -> None:
        """Give the range back."""
        self.memory.free(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.read()
        return array if dtype is None else array.astype(dtype)


def page_for(size: int) -> int:
    """Bytes of the pages of a buffer of `size` bytes: the largest of which it fills a quarter. Of
    large pages few have to be looked up, which memory is spent for."""
    return next((page for page in reversed(PAGE_SIZES) if 4 * size >= page), PAGE_SIZES[0])


class Memory:
    """First-fit allocator over bytes `base` … `size` of a machine's physical memory."""

    def __init__(self, machine: Machine, size: int, *, base: int = 0) -> None:
        self.machine = machine
        self.base, self.size = base, size
        self._ranges = Ranges(base, size)

    @property
    def free_bytes(self) -> int:
        """Bytes that are not allocated."""
        return self._ranges.total

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free range."""
        return self._ranges.largest

    def allocate(self, size: int, *, align: int = 256, name: str = "") -> Buffer:
        """A buffer of `size` bytes whose address is a multiple of `align`, a power of two.

        Raises `OutOfMemory` when no free range is large enough.
        """
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        if align < 1 or align & (align - 1):
            raise ValueError(f"align = {align} is not a power of two")
        address = self._ranges.find(size, align)
        if address is None:
            what = f" for {name!r}" if name else ""
            raise OutOfMemory(
                f"no {size} bytes{what} on a multiple of {align}: {self.free_bytes} of {self.size} "
                f"bytes are free, {self.largest_free} in one piece"
            )
        self._ranges.take(address, size)
        return Buffer(self, address, size, name)

    def allocate_pages(self, size: int, *, name: str = "") -> Buffer:
        """A buffer of `size` bytes for address spaces: whole pages of `page_for` it. Raises
        `OutOfMemory`."""
        page = page_for(size)
        buffer = self.allocate(-(-size // page) * page, align=page, name=name)
        buffer.size = size
        return buffer

    def reserve(self, address: int, size: int, *, name: str = "") -> Buffer:
        """The buffer at a given address, which must be free."""
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        if not self._ranges.has(address, size):
            raise MemoryUseError(
                f"{size} bytes at {address:#x} cannot be reserved: they are in use, or not inside "
                f"{self.base:#x} … {self.size:#x}"
            )
        self._ranges.take(address, size)
        return Buffer(self, address, size, name)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's range back."""
        if buffer.memory is not self:
            raise MemoryUseError(f"{buffer} belongs to another memory")
        if buffer.freed:
            raise MemoryUseError(f"{buffer} is freed twice")
        if buffer.mappings:
            what = ", ".join(str(mapping) for mapping in buffer.mappings)
            raise MemoryUseError(f"{buffer} is still mapped: {what}. Unmap it first")
        buffer.freed = True
        self._ranges.give(buffer.address, buffer.room)
