"""Interface to a device's address spaces. Their page tables belong to this process or to a
server."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.hw.config import VA_BITS

__all__ = ["Spaces"]


class Spaces(ABC):
    """The address spaces of a device that are not closed.

    Parameters
    ----------
    memory : allocator of the spaces' buffers.

    Members
    -------
    reserved : ASIDs that are given only to spaces created for them.
    """

    reserved: frozenset[int] = frozenset()

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = FairLock(memory.machine)
        self._count = 0
        self._spaces: dict[int, AddressSpace] = {}

    def __iter__(self) -> Iterator[AddressSpace]:
        """All spaces, in order of creation."""
        return iter(tuple(self._spaces.values()))

    def create(
        self, name: str = "", *, size: int = 1 << VA_BITS, memory: Memory | None = None
    ) -> AddressSpace:
        """Create a space of `size` bytes, without mappings and not yet bound.

        Parameters
        ----------
        memory : allocator of its buffers and, where the driver has them, of its page tables;
            default: that of all spaces.

        Raises `OutOfMemory`; `ValueError` unless `size` is a multiple of 4 KiB up to 2^49; in a
        client of a server, `SpaceError` if it has 65,536 spaces.
        """
        space = self._made(name or f"space {self._count}", size, memory or self._memory)
        self._count += 1
        self._spaces[space.base] = space
        return space

    @abstractmethod
    def _made(self, name: str, size: int, memory: Memory) -> AddressSpace:
        """A new space."""

    async def close(self, space: AddressSpace) -> None:
        """Unbind a space, remove its mappings and free its page tables. Buffers are not freed.
        An interrupted call can be repeated. Raises `SpaceError` if the space is in use or already
        closed; and as `Mmu.unbind`."""
        async with self._lock:
            self.check(space)
            await self._leave(space)
            await space.end()
            del self._spaces[space.base]

    @abstractmethod
    async def _leave(self, space: AddressSpace) -> None:
        """Make the machine forget a space before it is closed. Raises `SpaceError` if the space is
        in use."""

    def check(self, space: AddressSpace) -> None:
        """Raise `SpaceError` for a space that was closed, or belongs to another machine."""
        if self._spaces.get(space.base) is not space:
            raise SpaceError(f"{space} was closed, or belongs to another machine")
