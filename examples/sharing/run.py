"""Runs three programs on one simulated machine, and kills one of them."""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from signalbox.driver.client.socket_link import ask_status
from signalbox.driver.protocol.errors import ServerError

HERE = Path(__file__).resolve().parent
MACHINE = """
    --channels=4 --semaphores=16 --counters=4 --memory-bytes=16777216 --asids=8 --contexts=2
    --slots=4 --spare-rows=4 --sms=2 --sm-warps=6 --sm-blocks=3 --sm-registers=2048
    --sm-shared=4096 --lanes=8"""
"""The machine of `make sim`, so that one build serves both."""

TIMELINE = Path("sim_build/sharing.pftrace")
LIMITS = "--applications 4 --memory-each 0x40000 --patience 200000"


def program(name: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start one of the programs in this folder."""
    command = [sys.executable, str(HERE / name), *map(str, arguments)]
    return subprocess.Popen(command, text=True, **options)


def wait_for(socket: Path, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens. Raises `RuntimeError` if it ends instead."""
    while server.poll() is None:
        try:
            ask_status(socket)
            return
        except ServerError:
            time.sleep(0.2)
    raise RuntimeError("the server has ended")


def main() -> int:
    """Run the example, until the server has nothing left of any program. Returns 0 if the server
    and the two programs that are not killed end without an error."""
    TIMELINE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "server" / "socket"
        command = [sys.executable, "-m", "signalbox", "serve", "--socket", str(socket)]
        options = [*MACHINE.split(), *LIMITS.split(), "--timeline", str(TIMELINE)]
        server = subprocess.Popen([*command, *options])
        try:
            wait_for(socket, server)
            endless = program("never_ends.py", socket, stdout=subprocess.PIPE)
            assert endless.stdout is not None
            print(endless.stdout.readline(), end="")
            well = [program("adds.py", socket, 4), program("copies.py", socket, 6)]
            time.sleep(2)
            print(ask_status(socket))
            endless.send_signal(signal.SIGKILL)
            print("never ends: killed", flush=True)
            failed = [one for one in well if one.wait()]
            while "process" in ask_status(socket):  # head of the table of applications
                time.sleep(0.1)
            print(ask_status(socket))
        finally:
            server.send_signal(signal.SIGTERM)
        return int(bool(failed) or server.wait() != 0)


if __name__ == "__main__":
    sys.exit(main())
