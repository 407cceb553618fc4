"""Parts of a device that its streams and events share."""

from dataclasses import dataclass

from driver.channel.priority_policy import Policy
from driver.compute.engine import ComputeEngine
from driver.memory.fence import FencePools
from driver.platform.info import DeviceError
from driver.runtime.channel_pool import ChannelPool
from driver.runtime.clock import Clock
from driver.runtime.completion import Completion

__all__ = ["Services"]


@dataclass(frozen=True)
class Services:
    """Made by `Device`; `compute` is None on a machine without a compute engine."""

    policy: Policy
    channels: ChannelPool
    completion: Completion
    fences: FencePools
    clock: Clock
    compute: ComputeEngine | None

    @property
    def engine(self) -> ComputeEngine:
        """The compute engine. Raises `DeviceError` without one."""
        if self.compute is None:
            raise DeviceError("the machine has no compute engine")
        return self.compute
