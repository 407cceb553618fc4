"""A lock between processes."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path

__all__ = ["lock"]


@contextlib.contextmanager
def lock(path: Path) -> Generator[None]:
    """Hold the lock file `path`, so that only one process builds a file at a time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
