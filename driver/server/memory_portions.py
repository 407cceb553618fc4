"""The machine's memory, given to applications in portions (SHARE-3)."""

from dataclasses import dataclass

from signalbox.driver.memory.physical import Buffer, Memory
from signalbox.driver.server.settings import ServerSettings

__all__ = ["Pool", "Portion"]

_ALIGN = 1 << 16


@dataclass(frozen=True)
class Portion:
    """Memory of one application.

    Members
    -------
    memory : memory shared with the machine.
    system : memory for its page tables, rings and checked commands, which it cannot access;
        `allocator` divides it.
    """

    memory: Buffer
    system: Buffer
    allocator: Memory


class Pool:
    """Portions of a memory, returned when their applications end."""

    def __init__(self, memory: Memory, settings: ServerSettings) -> None:
        self._memory, self._settings = memory, settings

    def take(self, size: int, name: str) -> Portion:
        """A portion of `size` bytes, rounded up to whole pages; 0: the maximum of an application.
        Raises `OutOfMemory`, `ValueError` for more than the maximum."""
        most = self._settings.memory_each
        if size > most:
            raise ValueError(f"{size} bytes are more than the {most} of one application")
        size = -(-(size or most) // 4096) * 4096
        memory = self._memory.allocate(size, align=_ALIGN, name=f"memory of {name}")
        try:
            system = self._memory.allocate(
                self._settings.system_each, align=4096, name=f"system memory for {name}"
            )
        except Exception:
            memory.free()
            raise
        # Rings and commands of the previous application would be readable in this one's space.
        self._memory.machine.memory_write(system.address, bytes(system.room))
        first, end = system.address, system.address + system.room
        own = Memory(self._memory.machine, self._memory.size, base=first, end=end)
        return Portion(memory, system, own)

    def give(self, portion: Portion) -> None:
        """Return a portion that is no longer in use."""
        portion.memory.free()
        portion.system.free()
