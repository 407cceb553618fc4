"""Ending a connection while threads read from it."""

import contextlib
import socket
from multiprocessing.connection import Connection

__all__ = ["shut_down"]


def shut_down(link: Connection) -> None:
    """End a connection for both sides. Threads that read or write are woken; closing the
    descriptor would not wake them."""
    with (
        contextlib.suppress(OSError),
        socket.fromfd(link.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as own,
    ):
        own.shutdown(socket.SHUT_RDWR)
