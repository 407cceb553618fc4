"""A machine that this process shares with others, through a server."""

import os
from typing import Unpack

from signalbox.driver.channel.channel import Channel
from signalbox.driver.channel.priority_policy import NoPriorityPolicy
from signalbox.driver.channel.settings import ChannelOptions
from signalbox.driver.client.channels import ClientChannels, ClientWaits
from signalbox.driver.client.connection import Connection
from signalbox.driver.client.launcher import ClientLauncher
from signalbox.driver.client.memory import ClientMachine, SharedBytes
from signalbox.driver.client.spaces import ClientSpaces
from signalbox.driver.compute.priority_bands import Sharing
from signalbox.driver.faults.fault_log import FaultLog
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.fence import FencePools
from signalbox.driver.memory.physical import Memory
from signalbox.driver.platform.control_port import ControlPort
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.messages import (
    PROTOCOL,
    Done,
    Hello,
    Leave,
    Number,
    ReadTime,
    Result,
    Welcome,
)
from signalbox.driver.runtime.clock import Clock
from signalbox.driver.runtime.limits import Limits
from signalbox.driver.runtime.services import Services

__all__ = ["SharedMachine"]


class SharedMachine:
    """The `Owner` of a device whose machine belongs to a server.

    Parameters
    ----------
    welcome : answer to `greet`.
    memory : the client's memory, given by the server.

    Members
    -------
    services : parts of the device.
    space : default address space.
    client : number of this client.
    """

    def __init__(self, connection: Connection, welcome: Welcome, memory: SharedBytes) -> None:
        self._connection, self.client = connection, welcome.client
        info, machine = welcome.info, ClientMachine(connection, memory)
        end = welcome.base + welcome.size
        pool = Memory(machine, info.memory_bytes, base=welcome.base, end=end)
        spaces, fences = ClientSpaces(connection, pool), FencePools(machine)
        launcher = None
        if info.compute:
            launcher = ClientLauncher(connection, machine, spaces, fences.of, welcome)
        self.space: AddressSpace = spaces.create("device")
        self._fences = fences
        self._leaving = self._left = False
        self.services = Services(
            machine=machine,
            info=info,
            policy=NoPriorityPolicy(1, stream_priorities=welcome.levels),
            memory=pool,
            spaces=spaces,
            channels=ClientChannels(connection, machine, pool, welcome, launcher),
            completion=ClientWaits(connection),
            fences=fences,
            clock=Clock(self._time_ns, info.cycle_ns, welcome.epoch),
            limits=Limits(welcome.levels, Sharing.MOST_URGENT),
            compute=launcher,
            streams=welcome.streams,
        )

    @staticmethod
    async def greet(connection: Connection, name: str, size: int = 0) -> Welcome:
        """Introduce the application to the server, and ask for `size` bytes of memory (0: the
        server's default). Raises `OutOfMemory`, `DeviceError`, `ServerError`."""
        return await connection.call(Hello(PROTOCOL, name, os.getpid(), size), Welcome)

    async def _time_ns(self) -> int:
        return (await self._connection.call(ReadTime(), Number)).value

    @property
    def control(self) -> ControlPort:
        """Raises `DeviceError`."""
        raise DeviceError("the machine's registers are the server's: its clients have none")

    @property
    def faults(self) -> FaultLog:
        """Raises `DeviceError`."""
        raise DeviceError("the log of translation faults is the server's")

    async def channel(
        self, index: int, space: AddressSpace, **options: Unpack[ChannelOptions]
    ) -> Channel:
        """Raises `DeviceError`."""
        raise DeviceError("hardware channels are the server's: its clients have streams")

    async def close(self, *, drain: bool = False) -> None:
        """Leave the server: queued commands are executed (`drain`) or dropped, tasks are killed,
        memory is returned. A further call does nothing; a concurrent call waits for the first.
        Raises `ServerError`."""
        if self._leaving:
            while not self._left:
                await self._connection.news()
            return
        self._leaving = True
        try:
            await self._connection.call(Leave(drain), Done, self._answered)
        finally:
            self._connection.close()

    def _answered(self, _: Result) -> None:
        self._left = True
