"""Clients in the server's own process: for tests and measurements that repeat to the cycle.

Messages are byte for byte those of other processes; memory is the machine's.
"""

from collections import deque

from signalbox.driver.client.connection import Connection
from signalbox.driver.client.shared_machine import SharedMachine
from signalbox.driver.device import Device
from signalbox.driver.platform.machine import Machine
from signalbox.driver.protocol.errors import ServerError
from signalbox.driver.server.server import Lost, Received, Stop

__all__ = ["LocalInbox", "LocalLink"]

_IDLE_CYCLES = 16
"""Cycles between two polls while nothing is in progress."""


class LocalInbox:
    """The `driver.server.server.Inbox` of clients in the same process. Time always passes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[Received | Lost | Stop] = deque()

    def put(self, item: Received | Lost | Stop) -> None:
        """Add an item."""
        self._items.append(item)

    def take(self) -> list[Received | Lost | Stop]:
        """See `Inbox.take`."""
        items = [*self._items]
        self._items.clear()
        return items

    async def wait(self) -> None:
        """See `Inbox.wait`."""
        while not self._items:
            await self._machine.wait_cycles(_IDLE_CYCLES)


class LocalPeer:
    """The server's end of a connection: its `Peer`."""

    def __init__(self, machine: Machine, link: "LocalLink") -> None:
        self._machine, self._link = machine, link

    def send(self, message: bytes) -> None:
        """See `Peer.send`."""
        self._link.take(message)

    def share(self, address: int, size: int) -> None:
        """See `Peer.share`."""
        self._machine.memory_write(address, bytes(size))

    def withdraw(self, address: int, size: int) -> None:
        """See `Peer.withdraw`."""
        self._machine.memory_write(address, bytes(size))

    def close(self) -> None:
        """See `Peer.close`."""
        self._link.close()


class LocalLink:
    """The client's end of a connection: its `Link` and its `SharedBytes`.

    Members
    -------
    connection : calls of the client.
    open : whether the connection has not ended.
    """

    def __init__(self, machine: Machine, inbox: LocalInbox) -> None:
        self._machine, self._inbox = machine, inbox
        self._peer = LocalPeer(machine, self)
        self.connection = Connection(self)
        self._taken, self.open = 0, True

    async def device(self, name: str, size: int = 0) -> Device:
        """Become an application. Raises as `SharedMachine.greet`."""
        welcome = await SharedMachine.greet(self.connection, name, size)
        return Device(SharedMachine(self.connection, welcome, self))

    def send(self, message: bytes) -> None:
        """See `Link.send`."""
        if not self.open:
            raise ServerError("the connection has ended")
        self._inbox.put(Received(self._peer, message))

    async def wait(self) -> None:
        """See `Link.wait`."""
        before = self._taken
        while self._taken == before:
            if not self.open:
                raise ServerError("the connection has ended")
            await self._machine.wait_cycles(1)

    def take(self, message: bytes) -> None:
        """Accept a message of the server."""
        self.connection.take(message)
        self._taken += 1

    def close(self) -> None:
        """See `Link.close`. To the server, the same as the end of a killed process."""
        if self.open:
            self.open = False
            self._inbox.put(Lost(self._peer, "its process has ended"))

    def read(self, address: int, size: int) -> bytes:
        """See `SharedBytes.read`."""
        return self._machine.memory_read(address, size)

    def write(self, address: int, data: bytes) -> None:
        """See `SharedBytes.write`."""
        self._machine.memory_write(address, data)
