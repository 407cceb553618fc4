"""Channels of a device, as its streams see them."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TypeVar

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.memory.address_space import AddressSpace

__all__ = ["Channels"]

_Channel = TypeVar("_Channel", bound=CommandChannel, covariant=True)


class Channels(Mapping[int, _Channel]):
    """Open channels, by number. Each belongs to one address space at a time.

    Parameters
    ----------
    stream_priorities : number of stream priorities.
    """

    def __init__(self, stream_priorities: int) -> None:
        self._stream_priorities = stream_priorities

    @property
    def priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below 0, as in CUDA."""
        return 0, 1 - self._stream_priorities

    def clamp(self, priority: int) -> int:
        """Clamp a priority to the range, silently as in CUDA (section 7)."""
        least, greatest = self.priority_range
        return min(least, max(greatest, priority))

    @abstractmethod
    async def for_priority(self, priority: int, space: AddressSpace) -> _Channel:
        """Channel for a stream of `priority` in `space`, opened if necessary. Raises `DeviceError`
        if there is none; `OutOfAsids`, `OutOfAddresses`, `OutOfMemory`."""

    @abstractmethod
    async def close(self, index: int) -> None:
        """Close a channel, which must no longer be in use. Any address space can have it then.
        Raises `ChannelActive`."""
