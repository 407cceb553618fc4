"""Parts of a device shared by its streams and events."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from signalbox.driver.channel.command_channel import CommandChannel
from signalbox.driver.channel.priority_policy import Policy
from signalbox.driver.channel.runlist import Runlist
from signalbox.driver.compute.launcher import Launcher
from signalbox.driver.memory.fence import Fence, FencePools
from signalbox.driver.memory.physical import Memory
from signalbox.driver.memory.spaces import Spaces
from signalbox.driver.platform.info import DeviceError, DeviceInfo
from signalbox.driver.platform.machine import Machine
from signalbox.driver.runtime.channels import Channels
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.limits import Limits

__all__ = ["Services", "Waits", "released"]


def released(fence: Fence, value: int, channels: Iterable[CommandChannel]) -> bool:
    """Whether a fence has been released with `value` or a later value. The release depends on
    `channels`; raises `DeviceError` if it has not happened and one of them is closed."""
    if fence.reached(value):
        return True
    for channel in channels:
        channel.check_open()
    return False


class Waits(Protocol):
    """Waiting for the machine."""

    async def wait_fence(
        self, fence: Fence, value: int, channels: Sequence[CommandChannel]
    ) -> None:
        """Wait until `fence` is released with `value` or a later value.

        Raises the `ChannelError` of any of `channels`, on which the release depends; `DeviceError`
        if one of them is closed; otherwise as `wait_for`.
        """
        ...

    async def wait_for(self, done: Callable[[], bool], channels: Sequence[CommandChannel]) -> None:
        """Wait until `done()`, evaluated whenever the machine reports progress. Raises the
        `ChannelError` of any of `channels`."""
        ...


@dataclass(frozen=True)
class Services:
    """Parts of one device. `compute` is None on a machine without a compute engine, `runlist` if
    scheduling is flat, or on a server's machine. `streams` : maximum number of open streams; 0: any
    number."""

    machine: Machine
    info: DeviceInfo
    policy: Policy
    memory: Memory
    spaces: Spaces
    channels: Channels[CommandChannel]
    completion: Waits
    fences: FencePools
    clock: Clock
    limits: Limits
    compute: Launcher | None
    runlist: Runlist | None = None
    streams: int = 0

    @property
    def engine(self) -> Launcher:
        """The compute engine. Raises `DeviceError` if there is none."""
        if self.compute is None:
            raise DeviceError("the machine has no compute engine")
        return self.compute
