"""Address spaces of a client: the client chooses the addresses, the server has the page tables.

The server carries out the changes of a client in order, even after their callers are cancelled. So
a change is noted here when it is sent, and a mapping is removed again if its caller is cancelled.
"""

from contextlib import suppress

from signalbox.driver.client.connection import Connection
from signalbox.driver.memory.address_space import AddressSpace, SpaceError
from signalbox.driver.memory.mapping import Mapping
from signalbox.driver.memory.page_tables import Page
from signalbox.driver.memory.physical import Memory
from signalbox.driver.memory.spaces import Spaces
from signalbox.driver.protocol.errors import ServerError, exception_of
from signalbox.driver.protocol.messages import (
    IDS,
    CloseSpace,
    Done,
    Map,
    OpenSpace,
    Protect,
    Refused,
    Request,
    Result,
    Settle,
    Unmap,
)

__all__ = ["ClientSpace", "ClientSpaces"]

_SERVERS_BYTES = 1 << 38
"""Bytes from `AddressSpace.upper` that the server keeps for rings and pushbuffers; in a space of up
to 2^39 bytes, half of those from there on."""


class ClientSpace(AddressSpace):
    """An address space whose page tables are the server's. `base` is its number there."""

    def __init__(
        self, connection: Connection, memory: Memory, name: str, size: int, number: int
    ) -> None:
        super().__init__(memory, name, size)
        self._connection, self._number, self._open = connection, number, False
        self._answers: list[Result] = []
        self._addresses.take(super().upper, self.upper - super().upper)

    @property
    def base(self) -> int:
        """Number of the space."""
        return self._number

    @property
    def upper(self) -> int:
        """See `AddressSpace.upper`; above the addresses of the server."""
        own = super().upper
        return own + min(_SERVERS_BYTES, (self.size - own) // 2)

    async def open(self) -> None:
        """Create the space at the server, on first use."""
        if not self._open:
            self._open = True
            await self._connection.call(OpenSpace(self._number, self.size), Done, self._opened)

    def _opened(self, answer: Result) -> None:
        self._open = not isinstance(answer, Refused)

    async def _enter(
        self, va: int, pa: int, size: int, page_size: int, permissions: dict[str, bool]
    ) -> list[Page]:
        await self.open()
        options = {name: permissions[name] for name in ("read_only", "atomics")}
        request = Map(self._number, va=va, pa=pa, size=size, page=page_size, **options)
        try:
            await self._connection.call(request, Done)
        except BaseException:  # cancelled, or refused
            self._take_back(va)
            raise
        return []

    def _take_back(self, va: int) -> None:
        """Remove a mapping that may have been entered."""
        with suppress(ServerError):  # the connection has ended
            self._connection.post(Unmap(self._number, va), lambda _: None)

    async def _remove(self, mapping: Mapping) -> list[Page]:
        self._send(Unmap(self._number, mapping.va))
        return []

    async def _restrict(self, mapping: Mapping, *, read_only: bool) -> list[Page]:
        self._send(Protect(self._number, mapping.va, read_only))
        return []

    def _send(self, request: Request) -> None:
        """Send a change, whose answer `_invalidate` waits for."""
        self._answers = answers = []
        self._connection.post(request, answers.append)

    async def _invalidate(self, pages: list[Page], *, whole: bool = False) -> None:
        """Wait for the answer to the last change; by then the server has invalidated its pages.
        For the `whole` space, ask the server again, as it may have refused a change."""
        if whole:
            self._send(Settle(self._number))
        self._unsettled = True
        while not self._answers:
            await self._connection.news()
        (answer,) = self._answers
        if isinstance(answer, Refused):
            raise exception_of(answer)
        self._unsettled = False
        self._release_retiring()

    async def _free(self) -> None:
        if self._open:
            self._open = False
            await self._connection.call(CloseSpace(self._number), Done, self._closed)

    def _closed(self, answer: Result) -> None:
        self._open = isinstance(answer, Refused)


class ClientSpaces(Spaces):
    """Address spaces of one client. Their ASIDs are the server's."""

    def __init__(self, connection: Connection, memory: Memory) -> None:
        super().__init__(memory)
        self._connection, self._last = connection, 0

    def _made(self, name: str, size: int, memory: Memory) -> AddressSpace:
        following = ((self._last + step) % IDS for step in range(1, IDS + 1))
        number = next((one for one in following if one not in self._spaces), None)
        if number is None:
            raise SpaceError(f"{name!r}: {IDS} address spaces are open already")
        self._last = number
        return ClientSpace(self._connection, memory, name, size, number)

    async def _leave(self, space: AddressSpace) -> None:
        """Does nothing: the server does this when the space ends."""
