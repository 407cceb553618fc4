"""Calls of a client, independent of the transport."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from signalbox.driver.protocol.errors import ServerError, exception_of
from signalbox.driver.protocol.messages import (
    CALL_NUMBERS,
    MOST_CALLS,
    Answer,
    Call,
    Event,
    MessageError,
    News,
    Refused,
    Request,
    Result,
    decode_reply,
    encode_call,
)

__all__ = ["Connection", "Link"]

_Result = TypeVar("_Result", bound=Result)


class Link(Protocol):
    """Carries messages to a server. Messages from the server are given to `Connection.take`."""

    def send(self, message: bytes) -> None:
        """Send a message. Raises `ServerError` if the connection has ended."""
        ...

    async def wait(self) -> None:
        """Wait until another message has been taken. Raises as `send`."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class Connection:
    """Calls to a server, and its news.

    Members
    -------
    cycle : machine cycle of the last message.
    """

    def __init__(self, link: Link) -> None:
        self.cycle = 0
        self._link = link
        self._count = 0
        self._posted: dict[int, Callable[[Result], None]] = {}
        self._unsent: deque[bytes] = deque()
        self._listeners: list[Callable[[Event], None]] = []

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with all news from now on."""
        self._listeners.append(listener)

    def take(self, data: bytes) -> None:
        """Accept a message of the server. Raises `MessageError`."""
        message = decode_reply(data)
        self.cycle = message.cycle
        match message:
            case Answer(number=number, result=result):
                if number not in self._posted:
                    raise MessageError(f"answer {number} is to no call")
                self._posted.pop(number)(result)
                with suppress(ServerError):  # those who wait for answers will see it
                    self._send()
            case News(event=event):
                for listener in self._listeners:
                    listener(event)

    async def news(self) -> None:
        """Wait for the next message. Raises `ServerError`."""
        await self._link.wait()

    def post(self, request: Request, answered: Callable[[Result], None]) -> None:
        """Make a call without waiting; `answered` is given its answer. The call is sent once fewer
        than `MOST_CALLS` earlier ones have no answer. Raises `ServerError`, and as
        `encode_call`."""
        self._unsent.append(encode_call(Call(self._count, request)))
        self._posted[self._count] = answered
        self._count = (self._count + 1) % CALL_NUMBERS
        self._send()

    def _send(self) -> None:
        """Send as many calls as may be in progress."""
        while self._unsent and len(self._posted) - len(self._unsent) < MOST_CALLS:
            self._link.send(self._unsent.popleft())

    async def call(
        self,
        request: Request,
        kind: type[_Result],
        answered: Callable[[Result], None] | None = None,
    ) -> _Result:
        """Make a call, whose answer is of type `kind`. Raises the exception with which the server
        refuses it; `ServerError` if the connection has ended.

        The server carries out the call even if its caller is cancelled meanwhile. So state that
        must agree with the server's is changed in `answered`, which is given the answer in either
        case.
        """
        answers: list[Result] = []

        def take(answer: Result) -> None:
            answers.append(answer)
            if answered is not None:
                answered(answer)

        self.post(request, take)
        while not answers:
            await self._link.wait()
        (answer,) = answers
        if isinstance(answer, Refused):
            raise exception_of(answer)
        if not isinstance(answer, kind):
            raise ServerError(f"{type(request).__name__} was answered with {answer}")
        return answer

    def close(self) -> None:
        """End the connection."""
        self._link.close()
