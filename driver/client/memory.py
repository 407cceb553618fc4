"""A client's view of the machine: its own part of the memory, and time."""

from typing import Protocol

from signalbox.driver.client.connection import Connection
from signalbox.driver.platform.info import DeviceError
from signalbox.driver.protocol.messages import Done, Wait

__all__ = ["ClientMachine", "SharedBytes"]


class SharedBytes(Protocol):
    """Memory that client and machine share, by physical address."""

    def read(self, address: int, size: int) -> bytes:
        """Current contents."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Write bytes; the machine sees them at once."""
        ...


class ClientMachine:
    """The `driver.platform.machine.Machine` of a client. Registers are the server's: accesses raise
    `DeviceError`."""

    def __init__(self, connection: Connection, memory: SharedBytes) -> None:
        self._connection, self._memory = connection, memory

    async def read32(self, offset: int) -> int:
        """Raises `DeviceError`."""
        raise _no_registers()

    async def write32(self, offset: int, value: int) -> None:
        """Raises `DeviceError`."""
        raise _no_registers()

    async def interrupt(self) -> None:
        """Wait for the next message of the server. Raises `ServerError`."""
        await self._connection.news()

    def wake(self) -> None:
        """Does nothing: messages wake those who wait."""

    async def wait_cycles(self, cycles: int) -> None:
        """Wait for at least `cycles` clock cycles. Raises `ServerError`."""
        await self._connection.call(Wait(cycles), Done)

    def memory_read(self, address: int, size: int) -> bytes:
        """See `Machine.memory_read`."""
        return self._memory.read(address, size)

    def memory_write(self, address: int, data: bytes) -> None:
        """See `Machine.memory_write`."""
        self._memory.write(address, data)

    def now(self) -> int:
        """Cycle of the last message of the server."""
        return self._connection.cycle


def _no_registers() -> DeviceError:
    return DeviceError("the machine's registers are the server's: its clients have none")
