"""The user at the other end of a connection. Linux only (SO_PEERCRED)."""

import socket
import struct
from multiprocessing.connection import Connection

__all__ = ["user_of"]

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group."""


def user_of(link: Connection) -> int:
    """Number of the user whose process listens at the other end of a connection, or has connected
    to this one."""
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=link.fileno())
    try:
        found = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    finally:
        own.detach()  # the connection closes its descriptor itself
    _, user, _ = _CREDENTIALS.unpack(found)
    return user
