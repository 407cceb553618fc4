"""Memory of launches: records and arguments, cut from pages of their address space (HOST-10)."""

from dataclasses import dataclass

from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.memory.ranges import Ranges
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.machine import Machine
from signalbox.hw.qmd import QMD_BYTES

__all__ = ["TaskMemory", "TaskPool"]

_CHUNK_BYTES = 1 << 14


@dataclass
class _Chunk:
    """Pages of the pool, and what is free of them."""

    buffer: Buffer
    ranges: Ranges


@dataclass(frozen=True)
class TaskMemory:
    """`size` bytes from virtual address `va` on, a multiple of 256."""

    pool: "TaskPool"
    chunk: _Chunk
    offset: int
    size: int

    @property
    def va(self) -> int:
        """Virtual address."""
        return self.pool.space.at(self.chunk.buffer, self.offset)

    def write(self, content: bytes) -> None:
        """Put bytes at the start."""
        self.chunk.buffer.write(content, self.offset)

    def free(self) -> None:
        """Give it back, once the machine does not use it any more."""
        self.chunk.ranges.give(self.offset, self.size)


class TaskPool:
    """Of one address space. The machine writes where an evicted task goes on into its record, so
    the pages are writable; they are kept until the space is closed."""

    def __init__(self, space: AddressSpace, machine: Machine) -> None:
        self.space, self._lock = space, FairLock(machine)
        self._chunks: list[_Chunk] = []

    async def take(self, size: int) -> TaskMemory:
        """So many bytes, on a multiple of 256. Raises as `AddressSpace.allocate`."""
        size = -(-size // QMD_BYTES) * QMD_BYTES
        async with self._lock:
            for chunk in self._chunks:
                if (offset := chunk.ranges.find(size, QMD_BYTES)) is not None:
                    break
            else:
                chunk, offset = await self._more(size), 0
            chunk.ranges.take(offset, size)
        return TaskMemory(self, chunk, offset, size)

    async def _more(self, size: int) -> _Chunk:
        size, above = max(size, _CHUNK_BYTES), self.space.upper
        buffer = await self.space.allocate(size, above=above, name="task records")
        chunk = _Chunk(buffer, Ranges(0, size))
        self._chunks.append(chunk)
        return chunk

    @property
    def used(self) -> int:
        """Bytes that launches have now."""
        return sum(chunk.buffer.size - chunk.ranges.total for chunk in self._chunks)

    def end(self) -> None:
        """Give the pages back, once the space is closed."""
        for chunk in self._chunks:
            chunk.buffer.free()
        self._chunks.clear()
