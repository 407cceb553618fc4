"""Memory for task records and arguments, allocated from pages of their address space (HOST-10)."""

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
    """Pages of a pool, and their free ranges."""

    buffer: Buffer
    ranges: Ranges


@dataclass(frozen=True)
class TaskMemory:
    """`size` bytes at virtual address `va`, a multiple of 256."""

    pool: "TaskPool"
    chunk: _Chunk
    offset: int
    size: int

    @property
    def va(self) -> int:
        """Virtual address of the first byte."""
        return self.pool.space.at(self.chunk.buffer, self.offset)

    def write(self, content: bytes) -> None:
        """Write bytes at the start."""
        self.chunk.buffer.write(content, self.offset)

    def free(self) -> None:
        """Free the memory, once the machine no longer uses it."""
        self.chunk.ranges.give(self.offset, self.size)


class TaskPool:
    """Task memory of one address space. Pages are kept until the space is closed.

    They are mapped writable: the machine saves the resume point of an evicted task in its record.
    """

    def __init__(self, space: AddressSpace, machine: Machine) -> None:
        self.space, self._lock = space, FairLock(machine)
        self._chunks: list[_Chunk] = []

    async def take(self, size: int) -> TaskMemory:
        """Allocate `size` bytes, rounded up to a multiple of 256. Raises as
        `AddressSpace.allocate`."""
        (memory,) = await self.take_several(1, size)
        return memory

    async def take_several(self, count: int, size: int) -> list[TaskMemory]:
        """The same `count` times, one directly after the other; each is freed on its own."""
        each = -(-size // QMD_BYTES) * QMD_BYTES
        size = count * each
        async with self._lock:
            for chunk in self._chunks:
                if (offset := chunk.ranges.find(size, QMD_BYTES)) is not None:
                    break
            else:
                chunk, offset = await self._more(size), 0
            chunk.ranges.take(offset, size)
        return [TaskMemory(self, chunk, offset + n * each, each) for n in range(count)]

    async def _more(self, size: int) -> _Chunk:
        size, above = max(size, _CHUNK_BYTES), self.space.upper
        buffer = await self.space.allocate(size, above=above, name="task records")
        chunk = _Chunk(buffer, Ranges(0, size))
        self._chunks.append(chunk)
        return chunk

    @property
    def used(self) -> int:
        """Bytes currently allocated."""
        return sum(chunk.buffer.size - chunk.ranges.total for chunk in self._chunks)

    def end(self) -> None:
        """Free the pages, once the space is closed."""
        for chunk in self._chunks:
            chunk.buffer.free()
        self._chunks.clear()
