"""Files that lie beside a server's socket."""

import os
from pathlib import Path
from typing import IO

__all__ = ["beside", "opened"]


def beside(socket: Path, what: str) -> Path:
    """Path of a file that belongs to this socket alone: `.what` is appended to the socket's name,
    as sockets in one folder may differ only in their suffixes."""
    return socket.with_name(f"{socket.name}.{what}")


def opened(path: Path) -> IO[str]:
    """Open a file to read and write, created empty for this user alone if missing. Raises
    `OSError`, also for a symbolic link, which others could have put there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "r+")
