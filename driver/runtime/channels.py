"""Channels of a device, as its streams see them."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.whole import whole

__all__ = ["Channels"]

_Channel = TypeVar("_Channel", bound=CommandChannel, covariant=True)


class Channels(Mapping[int, _Channel]):
    """Open channels, by number. Each belongs to one address space at a time.

    They include channels that are being opened or closed. If the opening or closing is interrupted,
    the next call that needs the channel, or its ASID, closes the channel first.

    Parameters
    ----------
    stream_priorities : number of stream priorities.
    """

    def __init__(self, stream_priorities: int) -> None:
        self._stream_priorities = stream_priorities
        self._uses: Counter[CommandChannel] = Counter()

    @property
    def priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below 0, as in CUDA."""
        return 0, 1 - self._stream_priorities

    def clamp(self, priority: int) -> int:
        """Clamp a priority to the range, silently as in CUDA (spec 7). Raises `TypeError` for
        fractions."""
        least, greatest = self.priority_range
        return min(least, max(greatest, whole(priority, "priority")))

    @abstractmethod
    async def for_priority(self, priority: int, space: AddressSpace) -> _Channel:
        """Channel for a stream of `priority` in `space`, opened if necessary, and in use until
        `release`. Raises `DeviceError` if there is none; `OutOfAsids`, `OutOfAddresses`,
        `OutOfMemory`."""

    async def release(self, channel: CommandChannel) -> None:
        """End a use of a channel, once its work has executed. The end of the last use closes the
        channel; any address space can then have it. Raises `ChannelActive`."""
        if channel in self._uses:
            self._uses[channel] -= 1
        async with self._changes(channel.index):
            if self.get(channel.index) is channel and self._unused(channel):
                await self._remove(channel.index)

    def _unused(self, channel: CommandChannel) -> bool:
        """Whether the last use of a channel has ended, so that it can be closed."""
        return channel in self._uses and not self._uses[channel]

    async def close(self, index: int) -> None:
        """Close a channel even if it is in use. Raises `ChannelActive`, `KeyError` for a channel
        that is not open."""
        await self.end(self[index])

    async def end(self, channel: CommandChannel) -> None:
        """As `close`, but does nothing if another call has closed the channel; its number may then
        belong to another channel."""
        async with self._changes(channel.index):
            if self.get(channel.index) is channel:
                await self._remove(channel.index)

    @abstractmethod
    def _changes(self, index: int) -> FairLock:
        """Lock held while a channel is opened or closed."""

    @abstractmethod
    async def _remove(self, index: int) -> None:
        """Close an existing channel, within `_changes`. An interrupted call can be repeated."""
