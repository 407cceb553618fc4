"""Files that lie beside a server's socket."""

from pathlib import Path

__all__ = ["beside"]


def beside(socket: Path, what: str) -> Path:
    """Path of a file that belongs to this socket alone: `.what` is appended to the socket's name,
    as sockets in one folder may differ only in their suffixes."""
    return socket.with_name(f"{socket.name}.{what}")
