"""Real processes on the RTL: `signalbox serve`, three applications, one of them killed (SHARE-7,
SHARE-8, SHARE-10)."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from signalbox.driver import blocking
from signalbox.driver.client.socket_link import ask_status, listens
from signalbox.driver.protocol.errors import ServerError
from signalbox.tb.driver.server.application import add
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


@ON_VERILATOR
def test_started_by_its_first_client(simulator: str, tmp_path: Path):
    """Of two clients that come at the same time, one starts the server; it ends when both have
    gone, and is started again."""
    path = tmp_path / "server" / "socket"
    for _ in range(2):
        with ThreadPoolExecutor() as pool:
            sums = [pool.submit(add, str(path), seed, 2, [*SMALL, *LIMITS]) for seed in range(2)]
            for one in sums:
                one.result(timeout=500)
        deadline = time.monotonic() + 60
        while listens(path):
            assert time.monotonic() < deadline, "the server has not ended"
            time.sleep(0.1)
        assert "2 applications in " in path.with_name("output").read_text()


def test_server_that_does_not_start(tmp_path: Path):
    """The error says why."""
    with (
        pytest.raises(ServerError, match=r"could not be started: .*applications = 0"),
        blocking.connect(tmp_path / "socket", start=["--applications", "0"]),
    ):
        pass
