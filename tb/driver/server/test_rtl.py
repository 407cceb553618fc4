"""Real processes on the RTL: `signalbox serve`, three applications, one of them killed (SHARE-7,
SHARE-8, SHARE-10)."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from signalbox.driver.client.socket_link import ask_status
from signalbox.driver.protocol.errors import ServerError
from signalbox.tb.simulation.tiers import ON_VERILATOR

SMALL = "--config tiny --sms 2 --sm-warps 4 --channels 8 --asids 16 --memory-bytes 0x800000".split()
LIMITS = "--applications 4 --memory-each 0x40000 --patience 200000".split()


def application(path: Path, seed: int, rounds: int) -> subprocess.Popen[bytes]:
    """Start an application."""
    command = [sys.executable, "-m", "signalbox.tb.driver.server.application"]
    return subprocess.Popen([*command, str(path), str(seed), str(rounds)])


def listening(path: Path, server: subprocess.Popen[str]) -> None:
    """Wait until the server listens, which may take as long as building the simulation."""
    while server.poll() is None:
        try:
            ask_status(path)
            return
        except ServerError:
            time.sleep(0.2)
    raise AssertionError("the server has ended")


@ON_VERILATOR
def test_processes(simulator: str, tmp_path: Path):
    """The sums of those that are left alone are right; nothing of any is left."""
    path = tmp_path / "server" / "socket"
    command = [sys.executable, "-m", "signalbox.tb.simulation.serve", "--socket", str(path)]
    server = subprocess.Popen([*command, *SMALL, *LIMITS], stdout=subprocess.PIPE, text=True)
    try:
        listening(path, server)
        well = [application(path, seed, 3) for seed in range(2)]
        doomed = application(path, 9, 1000)
        while "adds 9" not in ask_status(path):
            time.sleep(0.1)
        time.sleep(1)
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        assert [one.wait(timeout=120) for one in well] == [0, 0]
        while " 0 applications of 3" not in ask_status(path):
            time.sleep(0.1)
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=60)
        assert server.returncode == 0 and "\n3 applications in " in output, output
        assert "its process has ended" in path.with_name("log").read_text()
    finally:
        server.kill()
