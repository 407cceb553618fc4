"""Physical memory: an allocator, and buffers that are read and written as numpy arrays."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from signalbox.driver.memory.ranges import Ranges
from signalbox.driver.platform.machine import Machine
from signalbox.hw.page_tables import PAGE_SIZES

__all__ = ["Buffer", "Memory", "MemoryUseError", "OutOfMemory", "page_for"]


class OutOfMemory(Exception):
    """No free range is large enough; the message gives the sizes."""


class MemoryUseError(Exception):
    """A buffer was used outside its bounds, after it was freed, or in an address space that does
    not map it; freed twice or while mapped; or reserved where memory is not free."""


@dataclass(eq=False)
class Buffer:
    """`size` bytes of physical memory at `address`. Virtual addresses: `AddressSpace.at`.

    `room` is the number of bytes allocated, more than `size` for whole pages. `mappings` lists the
    buffer's mappings in all address spaces, including unmapped ones whose invalidation is not yet
    acknowledged; the buffer cannot be freed until the list is empty.
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
        """Physical address of byte `offset`; `size` bytes from there must lie inside the buffer.

        Raises `MemoryUseError`.
        """
        if self.freed:
            raise MemoryUseError(f"{self} was freed")
        if not 0 <= offset <= offset + size <= self.size:
            raise MemoryUseError(f"bytes {offset} … {offset + size} are not inside {self}")
        return self.address + offset

    def write(self, data: bytes | bytearray | np.ndarray, offset: int = 0) -> None:
        """Write bytes, or an array in C order, at byte `offset`. Raises `MemoryUseError`, and
        `TypeError` for content that is neither."""
        # Without `memoryview`, `bytes` of a number would be that many zeros.
        raw = data.tobytes() if isinstance(data, np.ndarray) else bytes(memoryview(data))
        self.memory.machine.memory_write(self.at(offset, len(raw)), raw)

    def read(
        self,
        dtype: DTypeLike = np.uint8,
        shape: int | tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> np.ndarray:
        """Read from byte `offset` into a new array; without `shape`, to the end of the buffer.

        Raises `MemoryUseError`.
        """
        item = np.dtype(dtype).itemsize
        count = (self.size - offset) // item if shape is None else int(np.prod(shape))
        raw = self.memory.machine.memory_read(self.at(offset, count * item), count * item)
        array = np.frombuffer(raw, dtype).copy()
        return array if shape is None else array.reshape(shape)

    def fill(self, byte: int = 0) -> None:
        """Set every byte to `byte`, 0 … 255. Raises `ValueError`, and `MemoryUseError` if freed."""
        self.write(bytes([byte]) * self.size)

    def free(self) -> None:
        """Free the buffer. Raises `MemoryUseError` as `Memory.free`."""
        self.memory.free(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.read()
        return array if dtype is None else array.astype(dtype)


def page_for(size: int) -> int:
    """Page size, in bytes, for a buffer of `size` bytes: the largest page, up to 2 MiB, of which
    the buffer fills at least a quarter; 512 MiB if it consists of whole pages of that size. Larger
    pages need fewer TLB entries, at the cost of memory."""
    *usual, largest = PAGE_SIZES
    if size and size % largest == 0:
        return largest
    return next((page for page in reversed(usual) if 4 * size >= page), PAGE_SIZES[0])


class Memory:
    """First-fit allocator over bytes `base` … `end` - 1 (default: to the end) of the `size` bytes
    of a machine's physical memory. It is thread-safe: with `driver.blocking`, the threads of the
    script share it with that of the driver."""

    def __init__(
        self, machine: Machine, size: int, *, base: int = 0, end: int | None = None
    ) -> None:
        self.machine = machine
        self.base, self.size = base, size
        self.end = size if end is None else end
        self._ranges = Ranges(base, self.end)
        self._lock = threading.RLock()  # reentrant, for calls of signal handlers

    @property
    def free_bytes(self) -> int:
        """Number of unallocated bytes."""
        return self._ranges.total

    @property
    def largest_free(self) -> int:
        """Size of the largest free range, in bytes."""
        return self._ranges.largest

    def allocate(self, size: int, *, align: int = 256, name: str = "") -> Buffer:
        """Allocate `size` bytes at a multiple of `align`, a power of two.

        Raises `OutOfMemory` if no free range is large enough, `ValueError` for bad arguments.
        """
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        if align < 1 or align & (align - 1):
            raise ValueError(f"align = {align} is not a power of two")
        with self._lock:
            address = self._ranges.find(size, align)
            if address is None:
                what = f" for {name!r}" if name else ""
                raise OutOfMemory(
                    f"no free range of {size} bytes{what} aligned to {align}: {self.free_bytes} of "
                    f"{self.end} bytes are free, the largest range has {self.largest_free}"
                )
            self._ranges.take(address, size)
        return Buffer(self, address, size, name)

    def allocate_pages(self, size: int, *, name: str = "") -> Buffer:
        """Allocate a buffer of `size` bytes for mapping: whole pages of `page_for(size)` bytes, or
        smaller pages if there is no room for those. Raises `OutOfMemory`; `ValueError` for a size
        below 1."""
        best = page_for(size)
        pages = [page for page in reversed(PAGE_SIZES) if page <= best]
        with self._lock:
            fits = (
                one for one in pages if self._ranges.find(-(-size // one) * one, one) is not None
            )
            page = next(fits, best)
            buffer = self.allocate(-(-size // page) * page, align=page, name=name)
        buffer.size = size
        return buffer

    def reserve(self, address: int, size: int, *, name: str = "") -> Buffer:
        """Allocate `size` bytes at a given address. Raises `MemoryUseError` if they are not free,
        `ValueError` for a size below 1."""
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        with self._lock:
            if not self._ranges.has(address, size):
                raise MemoryUseError(
                    f"{size} bytes at {address:#x} cannot be reserved: they are in use, or outside "
                    f"{self.base:#x} … {self.end:#x}"
                )
            self._ranges.take(address, size)
        return Buffer(self, address, size, name)

    def free(self, buffer: Buffer) -> None:
        """Free a buffer.

        Raises `MemoryUseError` if it is already freed, still mapped, or from another memory.
        """
        if buffer.memory is not self:
            raise MemoryUseError(f"{buffer} belongs to another memory")
        with self._lock:
            if buffer.freed:
                raise MemoryUseError(f"{buffer} is freed twice")
            if buffer.mappings:
                what = ", ".join(str(mapping) for mapping in buffer.mappings)
                raise MemoryUseError(f"{buffer} is still mapped: {what}. Unmap it first")
            buffer.freed = True
            self._ranges.give(buffer.address, buffer.room)
