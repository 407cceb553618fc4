"""Physical memory: an allocator, and buffers that numpy arrays go into and come out of."""

from bisect import insort
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from driver.machine import Machine

__all__ = ["Buffer", "Memory", "MemoryUseError", "OutOfMemory"]


class OutOfMemory(Exception):
    """No free range is large enough; the message names the sizes."""


class MemoryUseError(Exception):
    """A buffer was used after its end, or freed twice, or reserved where it cannot be."""


@dataclass(eq=False)
class Buffer:
    """A range of memory. Identity address space: `address` is virtual and physical.

    Usable wherever an address is wanted: `int(buffer)`, `buffer.at(offset)`.
    """

    memory: "Memory"
    address: int
    size: int
    name: str = ""
    freed: bool = False

    def __str__(self) -> str:
        name = f"buffer {self.name!r}" if self.name else "buffer"
        return f"{name} ({self.size} bytes at {self.address:#x})"

    def __int__(self) -> int:
        return self.address

    def at(self, offset: int, size: int = 0) -> int:
        """Address of byte `offset`; `size` bytes from there must lie inside."""
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


class Memory:
    """First-fit allocator over bytes `base` … `size` of a machine's physical memory.

    Neighbouring free ranges are joined, so a memory whose buffers are all freed is whole again.
    """

    def __init__(self, machine: Machine, size: int, *, base: int = 0) -> None:
        self.machine = machine
        self.base, self.size = base, size
        self._free: list[tuple[int, int]] = [(base, size)] if base < size else []

    @property
    def free_bytes(self) -> int:
        """Bytes that are not allocated."""
        return sum(end - start for start, end in self._free)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest free range."""
        return max((end - start for start, end in self._free), default=0)

    def allocate(self, size: int, *, align: int = 256, name: str = "") -> Buffer:
        """A buffer of `size` bytes whose address is a multiple of `align`, a power of two.

        Raises `OutOfMemory` when no free range is large enough.
        """
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        if align < 1 or align & (align - 1):
            raise ValueError(f"align = {align} is not a power of two")
        for start, end in self._free:
            address = -(-start // align) * align
            if address + size <= end:
                self._take(address, size)
                return Buffer(self, address, size, name)
        what = f" for {name!r}" if name else ""
        raise OutOfMemory(
            f"no {size} bytes{what} on a multiple of {align}: {self.free_bytes} of {self.size} "
            f"bytes are free, {self.largest_free} in one piece"
        )

    def reserve(self, address: int, size: int, *, name: str = "") -> Buffer:
        """The buffer at a given address, which must be free."""
        if size <= 0:
            raise ValueError(f"size = {size}: a buffer has at least 1 byte")
        if not any(start <= address and address + size <= end for start, end in self._free):
            raise MemoryUseError(
                f"{size} bytes at {address:#x} cannot be reserved: they are in use, or not inside "
                f"{self.base:#x} … {self.size:#x}"
            )
        self._take(address, size)
        return Buffer(self, address, size, name)

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's range back."""
        if buffer.memory is not self:
            raise MemoryUseError(f"{buffer} belongs to another memory")
        if buffer.freed:
            raise MemoryUseError(f"{buffer} is freed twice")
        buffer.freed = True
        insort(self._free, (buffer.address, buffer.address + buffer.size))
        joined: list[tuple[int, int]] = []
        for start, end in self._free:
            if joined and joined[-1][1] == start:
                start = joined.pop()[0]
            joined.append((start, end))
        self._free = joined

    def _take(self, address: int, size: int) -> None:
        """Remove a range, which is free, from the free list."""
        remaining: list[tuple[int, int]] = []
        for start, end in self._free:
            if start <= address < end:
                parts = [(start, address), (address + size, end)]
                remaining += [part for part in parts if part[0] < part[1]]
            else:
                remaining.append((start, end))
        self._free = remaining
