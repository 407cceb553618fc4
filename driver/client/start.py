"""Start of a server by its first client."""

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Socket
from pathlib import Path

from signalbox.driver.client.socket_link import MappedMemory, connect, listens
from signalbox.driver.protocol.beside import beside, opened
from signalbox.driver.protocol.errors import ServerError
from signalbox.driver.protocol.messages import Welcome

__all__ = ["start_and_connect"]

_POLL_SECONDS = 0.1

_TRIES = 3
"""Attempts to connect: a server that is about to end accepts a connection and does not answer."""


def start_and_connect(
    path: Path, name: str, size: int, options: Sequence[str]
) -> tuple[Socket, Welcome, MappedMemory]:
    """`connect`. If no server listens at `path`, one is started first, which ends when its last
    application has gone. Clients that come at the same time share one start.

    Building the machine may take minutes; the server's output goes to a file beside the socket,
    with `.output` appended to its name.

    Parameters
    ----------
    options : of `signalbox serve`.

    Raises as `connect`; `ServerError` if the server ends instead, with the last line of its output.
    """
    for _ in range(_TRIES - 1):
        _ensure(path, options)
        with suppress(ServerError):
            return connect(path, name, size)
    _ensure(path, options)
    return connect(path, name, size)


def _ensure(path: Path, options: Sequence[str]) -> None:
    """Return once a server listens. Raises `ServerError`."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with opened(beside(path, "starting")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not listens(path):
                _start(path, options)
    except OSError as error:
        raise ServerError(f"the server could not be started: {error}") from error


def _start(path: Path, options: Sequence[str]) -> None:
    printed = beside(path, "output")
    print(f"starting a server; what it prints is in {printed}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "signalbox", "serve", "--socket", str(path), "--until-left"]
    with opened(printed) as output:
        output.truncate()
        server = subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=server.wait, daemon=True).start()  # leaves no zombie
    while not listens(path):
        if server.poll() is not None:
            lines = printed.read_text().splitlines() or ["it has printed nothing"]
            raise ServerError(f"the server could not be started: {lines[-1]}")
        time.sleep(_POLL_SECONDS)
