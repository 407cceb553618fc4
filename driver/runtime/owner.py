"""Access to a device's machine, through registers or through a server."""

from typing import Protocol, Unpack

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.settings import ChannelOptions
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.runtime.services import Services

__all__ = ["Owner"]


class Owner(Protocol):
    """Interface of an open machine to `driver.device.Device`. Members that need registers raise
    `DeviceError` on a shared machine."""

    services: Services
    space: AddressSpace

    @property
    def control(self) -> ControlPort:
        """Control port."""
        ...

    @property
    def faults(self) -> FaultLog:
        """Log of translation faults."""
        ...

    async def channel(
        self, index: int, space: AddressSpace, **options: Unpack[ChannelOptions]
    ) -> Channel:
        """A hardware channel, opened if necessary. Raises as `ChannelPool.open`."""
        ...

    async def close(self, *, drain: bool = False) -> None:
        """End all work and leave the machine; `drain` : execute queued work first. A further call
        does nothing; a concurrent call waits for the first. Raises as `Device.close`."""
        ...
