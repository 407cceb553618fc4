"""Ending a connection while threads read from it."""

import contextlib
import socket
from multiprocessing.connection import Connection

__all__ = ["shut_down"]


def shut_down(link: Connection) -> None:
    """End a connection for both sides. Threads that read or write are woken; closing the
    descriptor would not wake them. Needs no further descriptor."""
    with contextlib.suppress(OSError):
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=link.fileno())
        try:
            own.shutdown(socket.SHUT_RDWR)
        finally:
            own.detach()  # the connection closes its descriptor itself
