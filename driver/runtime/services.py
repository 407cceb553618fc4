"""Parts of a device shared by its streams and events."""

from dataclasses import dataclass

from signalbox.driver.channel.priority_policy import Policy
from signalbox.driver.compute.engine import ComputeEngine
from signalbox.driver.memory.fence import FencePools
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.runtime.channel_pool import ChannelPool
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.completion import Completion
from signalbox.driver.runtime.limits import Limits

__all__ = ["Services"]


@dataclass(frozen=True)
class Services:
    """Services of one device. `compute` is None on a machine without a compute engine."""

    policy: Policy
    channels: ChannelPool
    completion: Completion
    fences: FencePools
    clock: Clock
    limits: Limits
    compute: ComputeEngine | None

    @property
    def engine(self) -> ComputeEngine:
        """The compute engine. Raises `DeviceError` if there is none."""
        if self.compute is None:
            raise DeviceError("the machine has no compute engine")
        return self.compute
