"""Open channels, assigned to streams by priority and address space (COPY-22)."""

from collections.abc import Iterator
from dataclasses import replace

from signalbox.driver.channel.channel import Channel, ChannelResources
from signalbox.driver.channel.priority_policy import Policy, PolicyError
from signalbox.driver.channel.settings import ChannelSettings
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL, Pushbuffer
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.runtime.channels import Channels
from signalbox.hw.methods import ObjectClass

__all__ = ["ChannelPool"]


class ChannelPool(Channels[Channel]):
    """Open channels of a machine, by number. `settings` apply to all of them."""

    def __init__(
        self,
        resources: ChannelResources,
        info: DeviceInfo,
        policy: Policy,
        settings: ChannelSettings,
    ) -> None:
        super().__init__(policy.stream_priorities)
        self._resources, self._info = resources, info
        self._policy, self.settings, self._runlist = policy, settings, resources.runlist
        self._channels: dict[int, Channel] = {}

    def __getitem__(self, index: int) -> Channel:
        return self._channels[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    async def for_priority(self, priority: int, space: AddressSpace) -> Channel:
        """See `Channels.for_priority`. Raises `DeviceError` if other spaces hold all channels of
        that priority; otherwise as `Channel.open`."""
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

    async def open(self, index: int, space: AddressSpace, **options: bool) -> Channel:
        """Return an open channel of an address space. If it is not open, enable it, with `options`
        in place of fields of `settings`, and bind the copy class and, if there is one, the compute
        class.

        Raises `DeviceError` if the channel belongs to another space; otherwise as `Channel.open`
        and `Runlist.add`.
        """
        if index not in self._channels:
            if not 0 <= index < self._info.channels:
                raise DeviceError(f"channel {index} is outside 0 … {self._info.channels - 1}")
            settings = replace(self.settings, **options)
            channel = Channel(self._resources, space, index, settings)
            self._channels[index] = channel
            try:
                await self._start(channel)
            except BaseException:  # cancelled, perhaps
                del self._channels[index]
                raise
        channel = self._channels[index]
        if channel.space is not space:
            raise DeviceError(f"channel {index} belongs to {channel.space}, not to {space}")
        return channel

    async def _start(self, channel: Channel) -> None:
        """Enable a channel, and give it a turn."""
        await channel.open(self._first_commands())
        if self._runlist is None:
            return
        try:
            await self._runlist.add(channel.index, channel.space)
        except BaseException:
            await channel.close()
            raise

    def _first_commands(self) -> Pushbuffer:
        """Commands that bind the machine's classes."""
        commands = Pushbuffer().set_object()
        if self._resources.compute is not None:
            commands.set_object(COMPUTE_SUBCHANNEL, ObjectClass.COMPUTE)
        return commands

    async def close(self, index: int) -> None:
        """See `Channels.close`."""
        channel = self._channels[index]
        await channel.close()
        del self._channels[index]
        if self._runlist is not None:
            await self._runlist.remove(index, channel.space)
