"""Policies that map stream priorities to channels and wrap copies (COPY-20 … COPY-24).

A policy is any object with the members of `Policy`; pass it to `Device.open`. Priorities exist only
here: the hardware has none (COPY-21).
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.platform.whole import whole

__all__ = [
    "CountFirstPolicy",
    "LevelledChannels",
    "NoPriorityPolicy",
    "Policy",
    "PolicyError",
    "PriorityPolicy",
]


class PolicyError(ValueError):
    """A policy does not fit the device, or has no usable channel for a stream; the message gives
    the numbers."""


class Policy(Protocol):
    """Maps streams to channels, and wraps their copies in commands.

    A policy counts a copy by additions to a counting semaphore (`Pushbuffer.add`: SEM_EXECUTE with
    IADD), which sum to 0 once the copy has ended. If a channel is closed before that, the driver
    takes back the additions that have executed. It takes back no other operations.

    Members
    -------
    stream_priorities : number of stream priorities, 0 (least urgent) down to
        1 - `stream_priorities` (as in CUDA, a lower number is more urgent).
    semaphores : number of on-chip counting semaphores that the policy needs.
    """

    stream_priorities: int
    semaphores: int

    def bind(self, channels: int, semaphores: Sequence[int]) -> None:
        """Set up the policy for a device.

        Parameters
        ----------
        channels : number of channels of the device.
        semaphores : addresses of the counting semaphores requested, all of value 0.

        Raises `PolicyError` if the device does not suffice.
        """
        ...

    def channel(self, priority: int, usable: Collection[int]) -> int:
        """Choose one of the `usable` channels for a stream of `priority`, which is in range
        (COPY-22). Raises `PolicyError` if no channel of that priority is usable."""
        ...

    def before_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Append the commands that precede a copy in `channel`."""
        ...

    def after_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Append the commands that follow a copy in `channel`."""
        ...


class LevelledChannels:
    """Assigns channels to internal priorities 1 (lowest) … `levels`; adds no commands to copies.

    Parameters
    ----------
    levels : number of internal priorities, P of COPY-20.
    channels_per_level : number of channels of each level, lowest level first; defaults to an even
        split of the device's channels.
    stream_priorities : number of stream priorities, at least 1; defaults to `levels`. They are
        spread over the levels in order, the most urgent on the highest level.

    Streams of one level are assigned its usable channels in rotation. The lowest level has the
    lowest channel numbers. Raises `PolicyError` for bad arguments, `TypeError` for numbers that are
    not whole.
    """

    semaphores = 0

    def __init__(
        self,
        levels: int = 2,
        channels_per_level: Sequence[int] | None = None,
        stream_priorities: int | None = None,
    ) -> None:
        levels = whole(levels, "levels")
        if stream_priorities is not None:
            stream_priorities = whole(stream_priorities, "stream_priorities")
        if channels_per_level is not None:
            channels_per_level = [whole(one, "channels_per_level") for one in channels_per_level]
        if levels < 1:
            raise PolicyError(f"levels = {levels}: there is at least 1 priority")
        if stream_priorities is not None and stream_priorities < 1:
            raise PolicyError(f"stream_priorities = {stream_priorities} is not at least 1")
        if channels_per_level is not None:
            if len(channels_per_level) != levels:
                raise PolicyError(
                    f"channels_per_level names {len(channels_per_level)} levels, not {levels}"
                )
            if min(channels_per_level) < 1:
                raise PolicyError(f"channels_per_level = {channels_per_level}: each has at least 1")
        self.levels = levels
        self.stream_priorities = levels if stream_priorities is None else stream_priorities
        self.channels_per_level = channels_per_level
        self.addresses: tuple[int, ...] = ()
        self._channels: list[list[int]] = []
        self._next: list[int] = []

    def bind(self, channels: int, semaphores: Sequence[int]) -> None:
        """See `Policy.bind`."""
        counts = self.channels_per_level
        if counts is None:
            share, rest = divmod(channels, self.levels)
            counts = [share + (level < rest) for level in range(self.levels)]
        if min(counts) < 1 or sum(counts) > channels:
            needed = max(self.levels, sum(counts))
            raise PolicyError(
                f"{self.levels} levels need {needed} channels, the device has {channels}"
            )
        if len(semaphores) != self.semaphores:
            raise PolicyError(f"{len(semaphores)} semaphores given, {self.semaphores} needed")
        firsts = [sum(counts[:level]) for level in range(self.levels)]
        self._channels = [
            list(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)
        ]
        self._next = [0] * self.levels
        self.addresses = tuple(semaphores)

    def level_of_priority(self, priority: int) -> int:
        """Internal priority of a stream priority."""
        urgency, count = -priority, self.stream_priorities
        if count >= self.levels:
            return 1 + urgency * self.levels // count
        return self.levels - (count - 1 - urgency) * (self.levels - 1) // max(1, count - 1)

    def level_of_channel(self, channel: int) -> int:
        """Internal priority of a channel. Raises `PolicyError` for a channel without one."""
        for index, members in enumerate(self._channels):
            if channel in members:
                return index + 1
        raise PolicyError(f"channel {channel} has no priority under this policy")

    def channel(self, priority: int, usable: Collection[int]) -> int:
        """See `Policy.channel`."""
        index = self.level_of_priority(priority) - 1
        members, first = self._channels[index], self._next[index]
        for channel in (*members[first:], *members[:first]):
            if channel in usable:
                self._next[index] = (members.index(channel) + 1) % len(members)
                return channel
        names = ", ".join(map(str, members))
        raise PolicyError(f"none of the channels of priority {priority} ({names}) is usable")

    def before_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Append nothing."""

    def after_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Append nothing."""


class NoPriorityPolicy(LevelledChannels):
    """Bare copies, ordered only by issue order and time slices: the baseline of COPY-24. Channels
    are assigned as by a `PriorityPolicy` with the same arguments."""


class PriorityPolicy(LevelledChannels):
    """Priorities by counting semaphores, exactly as in COPY-20 … COPY-23.

    S(p), for p = 2 … `levels`, counts the outstanding copies of priority p. A copy of priority N
    waits until S(N + 1) … S(`levels`) are all 0, and is counted in S(N) from then to its end.

    Only the highest level is counted while it waits for an engine. At intermediate levels the
    acquires come before the increment and are decided only once an engine is free (COPY-13), so
    these levels compete with lower ones by age. `CountFirstPolicy` avoids that.
    """

    def __init__(
        self,
        levels: int = 2,
        channels_per_level: Sequence[int] | None = None,
        stream_priorities: int | None = None,
    ) -> None:
        super().__init__(levels, channels_per_level, stream_priorities)
        self.semaphores = levels - 1

    def semaphore(self, level: int) -> int:
        """Address of S(`level`), `level` 2 … `levels`."""
        return self.addresses[level - 2]

    def before_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Acquire S(p) == 0 for every higher p, in ascending order; then increment S(N)."""
        self._acquire(channel, commands)
        self._count(channel, commands)

    def after_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Decrement S(N)."""
        level = self.level_of_channel(channel)
        if level > 1:
            commands.add(self.semaphore(level), -1)

    def _acquire(self, channel: int, commands: Pushbuffer) -> None:
        for higher in range(self.level_of_channel(channel) + 1, self.levels + 1):
            commands.acquire(self.semaphore(higher), 0)

    def _count(self, channel: int, commands: Pushbuffer) -> None:
        level = self.level_of_channel(channel)
        if level > 1:
            commands.add(self.semaphore(level), 1)


class CountFirstPolicy(PriorityPolicy):
    """As `PriorityPolicy`, but counts a copy before it waits for the levels above: increment S(N),
    acquires, copy, decrement. The increment needs no engine (COPY-3), so a copy of any level holds
    back all lower levels as soon as it arrives. Levels wait only for higher ones, so there is no
    deadlock."""

    def before_copy(self, channel: int, commands: Pushbuffer) -> None:
        """Increment S(N); then acquire S(p) == 0 for every higher p, in ascending order."""
        self._count(channel, commands)
        self._acquire(channel, commands)
