"""Open channels, assigned to streams by priority and address space (COPY-22)."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Unpack

from signalbox.driver.channel.channel import Channel, ChannelResources
from signalbox.driver.channel.priority_policy import Policy, PolicyError
from signalbox.driver.channel.settings import ChannelOptions, ChannelSettings
from signalbox.driver.commands.pushbuffer import COMPUTE_SUBCHANNEL, Pushbuffer
from signalbox.driver.faults.channel_error import ChannelActive
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.asids import OutOfAsids
from signalbox.driver.platform.fair_lock import FairLock
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.whole import whole
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
        self._ready: set[int] = set()  # open, and not being closed
        self._locks = [FairLock(resources.control.machine) for _ in range(info.channels)]

    def __getitem__(self, index: int) -> Channel:
        return self._channels[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._channels)

    def __len__(self) -> int:
        return len(self._channels)

    async def for_priority(self, priority: int, space: AddressSpace) -> Channel:
        """See `Channels.for_priority`. Raises `DeviceError` if other spaces hold all channels of
        that priority; otherwise as `Channel.open`."""
        while True:
            index = self._choose(priority, space)
            async with self._changes(index):
                if self._fits(index, space) or not self._lasts(index):
                    channel = await self._opened(index, space, self.settings)
                    self._uses[channel] += 1
                    return channel

    def _choose(self, priority: int, space: AddressSpace) -> int:
        """Number of a channel for `for_priority`: free, or of the same space; otherwise one whose
        opening or closing is in progress, or was interrupted."""
        every = range(self._info.channels)
        fitting = {index for index in every if self._fits(index, space)}
        try:
            return self._policy.channel(priority, fitting)
        except PolicyError as error:
            refusal = error
        try:
            return self._policy.channel(priority, {one for one in every if not self._lasts(one)})
        except PolicyError:
            owners = [f"channel {i} {one.space.name!r}" for i, one in sorted(self.items())]
            raise DeviceError(
                f"no channel for a stream of {space}: {refusal}. In use by address spaces: "
                f"{', '.join(owners)}"
            ) from refusal

    def _fits(self, index: int, space: AddressSpace) -> bool:
        """Whether a channel is free, or of a space and not closed in part."""
        channel = self._channels.get(index)
        return channel is None or (channel.space is space and not channel.closed)

    def _lasts(self, index: int) -> bool:
        """Whether a channel is open, and not about to be closed."""
        return index in self._ready and not self._unused(self._channels[index])

    async def open(
        self, index: int, space: AddressSpace, **options: Unpack[ChannelOptions]
    ) -> Channel:
        """Return an open channel of an address space. If it is not open, enable it, with `options`
        in place of fields of `settings`, and bind the copy class and, if there is one, the compute
        class.

        Raises `DeviceError` if the channel belongs to another space; otherwise as `Channel.open`
        and `Runlist.add`.
        """
        index = whole(index, "channel")
        if not 0 <= index < self._info.channels:
            raise DeviceError(f"channel {index} is outside 0 … {self._info.channels - 1}")
        async with self._changes(index):
            return await self._opened(index, space, replace(self.settings, **options))

    async def _opened(self, index: int, space: AddressSpace, settings: ChannelSettings) -> Channel:
        """See `open`. Within `_changes`."""
        if not self._lasts(index):
            if index in self._channels:  # an earlier call was interrupted
                await self._remove(index)
            try:
                await self._start(index, space, settings)
            except OutOfAsids:
                await self._close_interrupted()
                await self._start(index, space, settings)
            self._ready.add(index)
        channel = self._channels[index]
        if channel.space is not space:
            raise DeviceError(f"channel {index} belongs to {channel.space}, not to {space}")
        return channel

    async def _close_interrupted(self) -> None:
        """Close the channels whose opening or closing was interrupted: they may hold ASIDs."""
        for index in list(self._channels):
            if not self._lasts(index) and not self._changes(index).held:
                with suppress(ChannelActive):
                    async with self._changes(index):
                        await self._remove(index)

    async def _start(self, index: int, space: AddressSpace, settings: ChannelSettings) -> None:
        """Enable a channel, and give it a turn. If it fails, the channel is free again."""
        channel = self._channels[index] = Channel(self._resources, space, index, settings)
        try:
            await channel.open(self._first_commands())
        except Exception:
            del self._channels[index]
            raise
        try:
            if self._runlist is not None:
                await self._runlist.add(index, channel.space)
        except Exception:
            await self._remove(index)
            raise

    def _first_commands(self) -> Pushbuffer:
        """Commands that bind the machine's object classes."""
        commands = Pushbuffer().set_object()
        if self._resources.compute is not None:
            commands.set_object(COMPUTE_SUBCHANNEL, ObjectClass.COMPUTE)
        return commands

    def _changes(self, index: int) -> FairLock:
        return self._locks[index]

    async def _remove(self, index: int) -> None:
        channel = self._channels[index]
        self._ready.discard(index)
        await channel.close()
        if self._runlist is not None:
            await self._runlist.remove(index, channel.space)
        self._uses.pop(channel, None)
        del self._channels[index]
