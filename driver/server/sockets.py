"""Clients in other processes: a local socket, and memory that they map (SHARE-10).

Each connection has a thread that reads and one that writes, so a stalled client does not delay
others. Only the user who runs the server can connect.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from signalbox.driver.protocol.messages import LARGEST_MESSAGE
from signalbox.driver.protocol.shutdown import shut_down
from signalbox.driver.server.server import Lost, Received, Stop
from signalbox.driver.server.shared_memory import SharedMemory

__all__ = ["THREADS", "SocketInbox", "SocketPeer", "SocketServer"]

LOG = logging.getLogger("signalbox.server")

THREADS = "reads from a client", "writes to a client"
"""Names of the threads of a connection."""

_UNREAD = 4096
"""Maximum number of messages that a client has not read; with more the connection ends."""

_CONNECTIONS = 256
"""Maximum number of connections at a time; further ones are closed at once."""

_PAUSE_SECONDS = 0.05
"""Pause after a connection could not be accepted, for lack of descriptors for example."""

_FINISH_SECONDS = 1.0
"""Time for the last answers, when the server ends."""

_UNTAKEN = 64
"""Maximum number of messages of a client that the server has not taken; at this number, its thread
waits."""


class SocketInbox:
    """The `driver.server.server.Inbox` of clients in other processes. Time stands still while it
    waits."""

    def __init__(self) -> None:
        self._items: deque[Received | Lost | Stop] = deque()
        self._changed = threading.Condition()

    def put(self, item: Received | Lost | Stop) -> None:
        """Add an item, from any thread."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def take(self) -> list[Received | Lost | Stop]:
        """See `Inbox.take`."""
        with self._changed:
            items = [*self._items]
            self._items.clear()
        for item in items:
            if isinstance(item, Received) and isinstance(item.peer, SocketPeer):
                item.peer.room.release()
        return items

    async def wait(self) -> None:
        """See `Inbox.wait`. Blocks the event loop, and with it the simulation."""
        with self._changed:
            while not self._items:
                self._changed.wait()


class SocketPeer:
    """The `driver.server.application.Peer` of a client in another process.

    Members
    -------
    room : semaphore that counts the further messages that the server may be given.
    """

    def __init__(
        self,
        link: Connection,
        inbox: SocketInbox,
        memory: SharedMemory,
        ended: Callable[[], object],
    ) -> None:
        self.room = threading.Semaphore(_UNTAKEN)
        self._ended = ended
        self._link, self._inbox, self._memory = link, inbox, memory
        self._unread: queue.Queue[bytes | BinaryIO | None] = queue.Queue(_UNREAD)
        self._lock, self._over = threading.Lock(), False
        self._descriptor: BinaryIO | None = None
        reader, writer = THREADS
        self._reader = threading.Thread(target=self._read, name=reader, daemon=True)
        self._writer = threading.Thread(target=self._write, name=writer, daemon=True)

    def start(self) -> None:
        """Start the threads. Raises `RuntimeError` if there cannot be more threads; the connection
        is then closed."""
        try:
            self._writer.start()
        except RuntimeError:
            self._end()
            raise
        try:
            self._reader.start()
        except RuntimeError:
            self._unread.put_nowait(None)  # the writer ends, and closes the connection
            raise

    def send(self, message: bytes) -> None:
        """See `Peer.send`. The first message after `share` is followed by the descriptor."""
        self._put(message)
        if self._descriptor is not None:
            self._put(self._descriptor)
            self._descriptor = None

    def share(self, address: int, size: int) -> None:
        """See `Peer.share`."""
        self._descriptor = os.fdopen(self._memory.share(address, size), "rb", 0)

    def withdraw(self, address: int, size: int) -> None:
        """See `Peer.withdraw`."""
        self._memory.withdraw(address, size)

    def close(self) -> None:
        """See `Peer.close`. Ends both threads."""
        self._shut()

    def finish(self, until: float) -> None:
        """Send the remaining messages, and end the connection. Returns at `until` at the latest, a
        time of `time.monotonic`: a stalled client is not waited for."""
        with contextlib.suppress(queue.Full):
            self._unread.put_nowait(None)
        self._writer.join(max(0, until - time.monotonic()))

    def _put(self, item: bytes | BinaryIO) -> None:
        with self._lock:
            if not self._over:
                with contextlib.suppress(queue.Full):
                    self._unread.put_nowait(item)
                    return
        if not isinstance(item, bytes):
            item.close()
        self._shut()

    def _shut(self) -> None:
        """End the connection while its threads use it."""
        with self._lock:
            if not self._over:
                shut_down(self._link)

    # -- threads -----------------------------------------------------------------------------------

    def _read(self) -> None:
        why = "its process has ended"
        try:
            while True:
                data = self._link.recv_bytes(LARGEST_MESSAGE)
                self.room.acquire()
                self._inbox.put(Received(self, data))
        except (EOFError, ConnectionResetError):  # a reset: it left answers unread
            pass
        except OSError as error:
            why = str(error)
        self._inbox.put(Lost(self, why))
        self._shut()
        with contextlib.suppress(queue.Full):  # a writer behind a full queue sees the shut-down
            self._unread.put_nowait(None)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (item := self._unread.get()) is not None:
                if isinstance(item, bytes):
                    self._link.send_bytes(item)
                else:
                    with item:
                        reduction.send_handle(self._link, item.fileno(), None)
        self._shut()
        if self._reader.ident is not None:  # otherwise it could not be started
            self._reader.join()
        self._drop()
        self._end()

    def _end(self) -> None:
        """Close the connection, which no thread uses any more."""
        self._link.close()
        self._ended()

    def _drop(self) -> None:
        """Close descriptors that were not sent; none is queued any more."""
        with self._lock:
            self._over = True
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._unread.get_nowait()
                if item is not None and not isinstance(item, bytes):
                    item.close()


class SocketServer:
    """Accepts connections at `path` until `close`.

    Raises `OSError` if another server listens there, or for a bad path.
    """

    def __init__(self, path: Path, inbox: SocketInbox, memory: SharedMemory) -> None:
        self.path = path
        self._inbox, self._memory = inbox, memory
        self._free, self._closed = threading.Semaphore(_CONNECTIONS), False
        self._peers: WeakSet[SocketPeer] = WeakSet()
        self._starts = threading.Lock()
        """Held until a starting peer is in `_peers`: its first message may be the last."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(path)
        before = os.umask(0o177)
        try:
            self._listener = Listener(str(path), "AF_UNIX", backlog=64)
        finally:
            os.umask(before)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                LOG.warning("no connection: %s", error)
                time.sleep(_PAUSE_SECONDS)
                continue
            self._serve(link)

    def _serve(self, link: Connection) -> None:
        """Start the threads of a connection, if there can be one more."""
        if not self._free.acquire(blocking=False):
            LOG.warning("%d connections are open: another one was closed", _CONNECTIONS)
            link.close()
            return
        peer = SocketPeer(link, self._inbox, self._memory, self._free.release)
        try:
            with self._starts:
                peer.start()
                self._peers.add(peer)
        except RuntimeError as error:
            LOG.warning("no connection: %s", error)

    def close(self) -> None:
        """Accept no further connection, remove the socket, and end all connections once their last
        answers are sent, which may take a second at most."""
        self._closed = True
        self._listener.close()
        until = time.monotonic() + _FINISH_SECONDS
        with self._starts:
            peers = list(self._peers)
        for peer in peers:
            peer.finish(until)


def _remove_stale(path: Path) -> None:
    """Remove a socket without a listener, left by a server that was killed."""
    if not path.is_socket():
        return
    try:
        Client(str(path), "AF_UNIX").close()
    except ConnectionRefusedError:
        path.unlink()
