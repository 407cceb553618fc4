"""Open channels, assigned to streams by priority and address space (COPY-22)."""

from collections.abc import Iterator, Mapping

from signalbox.driver.channel.channel import Channel, ChannelResources
from signalbox.driver.channel.priority_policy import Policy, PolicyError
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL, Pushbuffer
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.hw.methods import ObjectClass

__all__ = ["ChannelPool"]


class ChannelPool(Mapping[int, Channel]):
    """Open channels of a device, by number. Each belongs to one address space at a time.
    `settings` apply to channels opened without settings of their own."""

    def __init__(
        self,
        resources: ChannelResources,
        info: DeviceInfo,
        policy: Policy,
        settings: ChannelSettings,
    ) -> None:
        self._resources, self._info = resources, info
        self._policy, self.settings = policy, settings
        self._channels: dict[int, Channel] = {}

    def __getitem__(self, index: int) -> Channel:
        return self._channels[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def priority_range(self) -> tuple[int, int]:
        """(least, greatest) stream priority: 0 and a number at or below 0, as in CUDA."""
        return 0, 1 - self._policy.stream_priorities

    def clamp(self, priority: int) -> int:
        """Clamp a priority to the range, silently as in CUDA (section 7)."""
        least, greatest = self.priority_range
        return min(least, max(greatest, priority))

    async def for_priority(self, priority: int, space: AddressSpace) -> Channel:
        """Channel for a stream of `priority` in `space`, opened if necessary. Raises `DeviceError`
        if other spaces hold all channels of that priority; otherwise as `Channel.open`."""
        channels = self._channels
        usable = {
            index
            for index in range(self._info.channels)
            if index not in channels or channels[index].space is space
        }
        try:
            index = self._policy.channel(priority, usable)
        except PolicyError as error:
            owners = [f"channel {i} {channels[i].space.name!r}" for i in sorted(channels)]
            raise DeviceError(
                f"no channel for a stream of {space}: {error}. In use by address spaces: "
                f"{', '.join(owners)}"
            ) from error
        return await self.open(index, space)

    async def open(
        self, index: int, space: AddressSpace, settings: ChannelSettings | None = None
    ) -> Channel:
        """Return an open channel of an address space. If it is not open, enable it with `settings`
        and bind the copy class and, if there is one, the compute class.

        Raises `DeviceError` if the channel belongs to another space; otherwise as `Channel.open`.
        """
        if index not in self._channels:
            if not 0 <= index < self._info.channels:
                raise DeviceError(f"channel {index} is outside 0 … {self._info.channels - 1}")
            channel = Channel(self._resources, space, index, settings or self.settings)
            self._channels[index] = channel
            try:
                await channel.open(self._first_commands())
            except Exception:
                del self._channels[index]
                raise
        channel = self._channels[index]
        if channel.space is not space:
            raise DeviceError(f"channel {index} belongs to {channel.space}, not to {space}")
        return channel

    def _first_commands(self) -> Pushbuffer:
        """Commands that bind the machine's classes."""
        commands = Pushbuffer().set_object()
        if self._resources.compute is not None:
            commands.set_object(COMPUTE_SUBCHANNEL, ObjectClass.COMPUTE)
        return commands

    async def close(self, index: int) -> None:
        """Close a channel, which must no longer be in use. Any address space can have it then.
        Raises `ChannelActive`."""
        await self._channels[index].close()
        del self._channels[index]
