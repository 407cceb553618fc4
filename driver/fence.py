"""Fences: 16-byte semaphores in memory that the hardware releases with a value and the time."""

from driver.memory import Buffer, Memory

__all__ = ["FENCE_BYTES", "Fence", "FencePool"]

FENCE_BYTES = 16
"""Payload (4), zero (4), PTIMER in ns (8); spec page 60, 2.2."""

_POOL_BYTES = 4096


class Fence:
    """One fence. Its values rise by 1 with every release that is submitted, modulo 2³².

    `following` is taken and `advance` called in one turn of the channel (`Channel.turn`): else
    values could be released in another order, and a waiter would miss its own.
    """

    def __init__(self, buffer: Buffer, offset: int) -> None:
        self.address = buffer.at(offset, FENCE_BYTES)
        self._buffer = buffer
        self._offset = offset
        self.submitted = 0
        self.clear()

    def clear(self) -> None:
        """As new: value and time 0."""
        self.submitted = 0
        self._buffer.write(bytes(FENCE_BYTES), self._offset)

    @property
    def following(self) -> int:
        """Value for the next release."""
        return (self.submitted + 1) & 0xFFFF_FFFF

    def advance(self) -> None:
        """The release with `following` was submitted."""
        self.submitted = self.following

    @property
    def value(self) -> int:
        """Payload now."""
        return int(self._buffer.read("<u4", 1, self._offset)[0])

    @property
    def time_ns(self) -> int:
        """PTIMER of the last release."""
        return int(self._buffer.read("<u8", 1, self._offset + 8)[0])

    def reached(self, value: int) -> bool:
        """Whether `value` or a later one was released (circular, as ACQ_CIRC_GEQ)."""
        return (self.value - value) & 0xFFFF_FFFF < 1 << 31


class FencePool:
    """Fences, cut from pages of device memory."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._free: list[Fence] = []

    def take(self) -> Fence:
        """A fence with value 0."""
        if not self._free:
            page = self._memory.allocate(_POOL_BYTES, align=FENCE_BYTES, name="fences")
            offsets = range(0, _POOL_BYTES, FENCE_BYTES)
            self._free = [Fence(page, offset) for offset in reversed(offsets)]
        return self._free.pop()

    def give(self, fence: Fence) -> None:
        """Give a fence back that nothing will release or acquire any more."""
        fence.clear()
        self._free.append(fence)
