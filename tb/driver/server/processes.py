"""Servers of the fake machine and their applications, as processes."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from signalbox.driver.client.socket_link import ask_status, listens
from signalbox.tb.driver.hangs import HANGS

__all__ = ["Running", "server", "succeed"]

MODULE = "signalbox.tb.driver.server.application"


@dataclass
class Running:
    """A server's process."""

    path: Path
    process: subprocess.Popen[str]

    def end(self) -> dict[str, Any]:
        """End the server. Returns the resources that it has `kept`, and the number of applications
        that it has `served`."""
        output, _ = self.process.communicate("", timeout=60)
        assert self.process.returncode == 0
        return json.loads(output.splitlines()[-1])

    def start(self, seed: int, rounds: int, *, held: bool = False) -> subprocess.Popen[bytes]:
        """Start an application; `held`: it connects, and works once its standard input ends."""
        command = [sys.executable, "-m", MODULE, str(self.path), str(seed), str(rounds)]
        stdin = subprocess.PIPE if held else subprocess.DEVNULL
        return subprocess.Popen(command, stdin=stdin, stderr=subprocess.DEVNULL)

    def until(self, pattern: str) -> str:
        """Wait until the server's status matches a regular expression. Returns the status."""
        deadline = time.monotonic() + HANGS
        while not re.search(pattern, text := ask_status(self.path)):
            assert time.monotonic() < deadline, text
            time.sleep(0.05)
        return text

    def settled(self) -> str:
        """Wait until the server has no application. Returns its status."""
        return self.until(" 0 applications of")


@contextmanager
def server(folder: Path, **settings: Any) -> Generator[Running]:
    """A server. At its end, it must use as many resources of each kind as before its first
    application."""
    path = folder / "server" / "socket"
    chosen = {"memory_each": 1 << 18, "system_each": 1 << 17, "launches_each": 2, **settings}
    command = [sys.executable, "-m", "signalbox.tb.driver.fakes.server", str(path)]
    process = subprocess.Popen(
        [*command, json.dumps(chosen)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        running = Running(path, process)
        yield running
        running.settled()
        outcome = running.end()
        assert not outcome["kept"], outcome
        assert not path.exists()
    finally:
        process.kill()
        process.wait()


@contextmanager
def rtl_server(folder: Path, options: Sequence[str]) -> Generator[Running]:
    """`signalbox serve` with `options`. Its exit status must be 0, which it is only if all
    resources were returned. Building the simulation may take minutes."""
    path = folder / "server" / "socket"
    command = [sys.executable, "-m", "signalbox.tb.reports.serve", "--socket", str(path)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    running = Running(path, process)
    try:
        while not listens(path):
            assert process.poll() is None, "the server has ended"
            time.sleep(0.2)
        yield running
        running.settled()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    finally:
        process.terminate()
        process.wait()


def succeed(applications: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until all have ended without an error."""
    assert [one.wait(timeout=120) for one in applications] == [0] * len(applications)
