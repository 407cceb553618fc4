"""Address spaces of a client: it chooses the addresses, the server has the page tables."""

from signalbox.driver.client.connection import Connection
from signalbox.driver.memory.address_space import AddressSpace
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.page_tables import Page
from signalbox.driver.memory.physical import Memory
from signalbox.driver.memory.spaces import Spaces
from signalbox.driver.protocol.messages import (
    CloseSpace,
    Done,
    Map,
    OpenSpace,
    Protect,
    Unmap,
)

__all__ = ["ClientSpace", "ClientSpaces"]

_SERVERS_BYTES = 1 << 38
"""Bytes from `AddressSpace.upper` that the server keeps for rings and pushbuffers."""


class ClientSpace(AddressSpace):
    """An address space whose page tables are the server's. `base` is its number there."""

    def __init__(
        self, connection: Connection, memory: Memory, name: str, size: int, number: int
    ) -> None:
        super().__init__(memory, name, size)
        self._connection, self._number, self._open = connection, number, False
        self._addresses.take(super().upper, _SERVERS_BYTES)

    @property
    def base(self) -> int:
        """Number of the space."""
        return self._number

    @property
    def upper(self) -> int:
        """See `AddressSpace.upper`; above the addresses of the server."""
        return super().upper + _SERVERS_BYTES

    async def open(self) -> None:
        """Create the space at the server, with its first use."""
        if not self._open:
            await self._connection.call(OpenSpace(self._number, self.size), Done)
            self._open = True

    async def _enter(
        self, va: int, pa: int, size: int, page_size: int, permissions: dict[str, bool]
    ) -> list[Page]:
        await self.open()
        options = {name: permissions[name] for name in ("read_only", "atomics")}
        request = Map(self._number, va=va, pa=pa, size=size, page=page_size, **options)
        await self._connection.call(request, Done)
        return []

    async def _remove(self, mapping: Mapping) -> list[Page]:
        await self._connection.call(Unmap(self._number, mapping.va), Done)
        return []

    async def _restrict(self, mapping: Mapping, *, read_only: bool) -> list[Page]:
        await self._connection.call(Protect(self._number, mapping.va, read_only), Done)
        return []

    async def _invalidate(self, pages: list[Page], *, whole: bool = False) -> None:
        """The server has done so with the change itself."""
        self._release_retiring()

    async def _free(self) -> None:
        if self._open:
            await self._connection.call(CloseSpace(self._number), Done)


class ClientSpaces(Spaces):
    """Address spaces of one client. Their ASIDs are the server's."""

    def __init__(self, connection: Connection, memory: Memory) -> None:
        super().__init__(memory)
        self._connection, self._last = connection, 0

    def _made(self, name: str, size: int, memory: Memory) -> AddressSpace:
        self._last += 1
        return ClientSpace(self._connection, memory, name, size, self._last)

    async def _leave(self, space: AddressSpace) -> None:
        """The server does so when the space ends."""
