"""A lock between processes."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path

__all__ = ["lock"]


@contextlib.contextmanager
def lock(path: Path) -> Generator[None]:
    """Hold an exclusive lock on the file `path`, which is created if necessary. Waits while another
    process holds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
