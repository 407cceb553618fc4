"""Connection to a server in another process: a local socket, and memory that both map."""

import asyncio
import contextlib
import mmap
import os
import threading
from multiprocessing import reduction
from multiprocessing.connection import Client
from multiprocessing.connection import Connection as Socket
from pathlib import Path

from signalbox.driver.client.connection import Connection
from signalbox.driver.protocol.errors import ServerError, exception_of
from signalbox.driver.protocol.messages import (
    PROTOCOL,
    Answer,
    Call,
    Hello,
    Refused,
    Report,
    Request,
    Result,
    Status,
    Welcome,
    decode_reply,
    encode_call,
)
from signalbox.driver.protocol.shutdown import shut_down
from signalbox.driver.protocol.user import user_of

__all__ = ["MappedMemory", "SocketLink", "ask_status", "connect", "listens"]


class MappedMemory:
    """The client's part of the machine's memory, mapped from a descriptor: its `SharedBytes`."""

    def __init__(self, descriptor: int, base: int, size: int) -> None:
        self._base = base
        self._bytes = mmap.mmap(descriptor, size)

    def read(self, address: int, size: int) -> bytes:
        """See `SharedBytes.read`."""
        first = address - self._base
        return self._bytes[first : first + size]

    def write(self, address: int, data: bytes) -> None:
        """See `SharedBytes.write`."""
        first = address - self._base
        self._bytes[first : first + len(data)] = data


class SocketLink:
    """The `Link` of a client, on an asyncio event loop. A thread reads the server's messages.

    Members
    -------
    connection : calls of the client.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []
        self._lost = ""
        self.connection = Connection(self)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: bytes) -> None:
        """See `Link.send`."""
        if self._lost:
            raise ServerError(self._lost)
        try:
            self._socket.send_bytes(message)
        except OSError as error:
            raise ServerError(f"the server has gone: {error}") from error

    async def wait(self) -> None:
        """See `Link.wait`."""
        if self._lost:
            raise ServerError(self._lost)
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        # The end of the connection may be known by then, but the last message came first.
        await waiter

    def close(self) -> None:
        """See `Link.close`."""
        self._lost = self._lost or "the connection was closed"
        if not self._socket.closed:
            shut_down(self._socket)

    def _read(self) -> None:
        try:
            while True:
                data = self._socket.recv_bytes()
                self._loop.call_soon_threadsafe(self._take, data)
        except (OSError, EOFError, RuntimeError):  # RuntimeError: the loop has ended first
            self._socket.close()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _take(self, data: bytes) -> None:
        try:
            self.connection.take(data)
        except Exception as error:
            self._lost = self._lost or f"a message of the server could not be read: {error}"
            self.close()
        self._wake()

    def _end(self) -> None:
        self._lost = self._lost or "the server has ended the connection"
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _ask(socket: Socket, request: Request) -> Result:
    """Make the first call of a connection."""
    socket.send_bytes(encode_call(Call(0, request)))
    reply = decode_reply(socket.recv_bytes())
    if not isinstance(reply, Answer):
        raise ServerError(f"the first message of the server is {reply}")
    if isinstance(reply.result, Refused):
        raise exception_of(reply.result)
    return reply.result


def _open(path: Path) -> Socket:
    try:
        socket = Client(str(path), "AF_UNIX")
    except OSError as error:
        raise ServerError(f"no server at {path}: {error.strerror or error}") from error
    if (owner := user_of(socket)) != os.geteuid():
        socket.close()
        raise ServerError(f"the server at {path} is of user {owner}, not {os.geteuid()}")
    return socket


def listens(path: Path) -> bool:
    """Whether a server accepts connections at `path`. Raises `OSError` if that cannot be
    determined: no permission, or a path that is too long for a socket."""
    try:
        Client(str(path), "AF_UNIX").close()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def connect(path: Path, name: str, size: int) -> tuple[Socket, Welcome, MappedMemory]:
    """Connect as an application and map its memory. Blocks. Raises `ServerError` without a server,
    and the exception with which the server refuses `Hello`."""
    socket = _open(path)
    try:
        welcome = _ask(socket, Hello(PROTOCOL, name, os.getpid(), size))
        if not isinstance(welcome, Welcome):
            raise ServerError(f"Hello was answered with {welcome}")
        descriptor = reduction.recv_handle(socket)
        try:
            memory = MappedMemory(descriptor, welcome.base, welcome.size)
        finally:
            os.close(descriptor)
    except (OSError, EOFError) as error:
        socket.close()
        raise ServerError(f"the server ended the connection: {error}") from error
    except BaseException:
        socket.close()
        raise
    return socket, welcome, memory


def ask_status(path: Path) -> str:
    """Status of the server, as text. Raises `ServerError`."""
    with _open(path) as socket:
        try:
            report = _ask(socket, Status())
        except (OSError, EOFError) as error:
            raise ServerError(f"the server ended the connection: {error}") from error
    if not isinstance(report, Report):
        raise ServerError(f"Status was answered with {report}")
    return report.text
