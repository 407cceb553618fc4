"""Ends of connections, under threads that read from them."""

import contextlib
import socket
from multiprocessing.connection import Connection

__all__ = ["shut_down"]


def shut_down(link: Connection) -> None:
    """End a connection for both sides. A thread that reads or writes sees its end; closing the
    descriptor would not reach it."""
    with (
        contextlib.suppress(OSError),
        socket.fromfd(link.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)
