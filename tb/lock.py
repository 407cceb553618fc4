"""A lock between processes that make the same thing."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path

__all__ = ["lock"]


@contextlib.contextmanager
def lock(path: Path) -> Generator[None]:
    """Hold `path` against other processes that build the same thing."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
