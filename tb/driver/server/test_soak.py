"""Applications that come and go, fault, flood, never end and are killed (SHARE-8, SHARE-9)."""

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from signalbox.tb.driver.server.processes import Running, server, succeed
from signalbox.tb.driver.server.visitor import CLIENTS, VISITS
from signalbox.tb.simulation.runner import choose_seed

PROCESSES = 4
"""Processes of visitors, for 48 clients."""

assert PROCESSES * CLIENTS == 48


def visitors(running: Running, seed: str, seconds: float) -> subprocess.Popen[str]:
    """Start a process of visitors."""
    module = "signalbox.tb.driver.server.visitor"
    command = [sys.executable, "-m", module, str(running.path), seed, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rubbish(path: Path, rng: random.Random) -> None:
    """A connection that sends random bytes and closes."""
    with socket.socket(socket.AF_UNIX) as link, suppress(OSError):
        link.connect(str(path))
        link.sendall(rng.randbytes(rng.randrange(200)))


def soak(folder: Path, seconds: float, longest: float = 10) -> None:
    """Keep 48 clients busy for `seconds`, and kill a quarter of them every few seconds, at most
    `longest` apart. The others' sums are right, and at the end nothing remains of any client."""
    rng = random.Random(seed := choose_seed())
    print(f"seed {seed}")
    started = killed = 0
    with server(folder, applications=48) as running:
        there: list[subprocess.Popen[str]] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            while len(there) < PROCESSES:
                there.append(visitors(running, f"{seed}/{started}", end - time.monotonic()))
                started += 1
            pause = rng.uniform(longest / 3, longest)
            time.sleep(min(pause, max(0, end - time.monotonic())))
            rubbish(running.path, rng)
            assert all(one.poll() is None or one.returncode == 0 for one in there)
            if time.monotonic() < end - 5:
                doomed = there.pop(rng.randrange(PROCESSES))
                doomed.send_signal(signal.SIGKILL)
                doomed.communicate()
                killed += 1
        made: Counter[str] = Counter()
        for one in there:
            output, _ = one.communicate(timeout=120)
            assert one.returncode == 0
            made += Counter(json.loads(output))
        succeed([running.start(1, 1)])
    print(f"{started} processes; visits of those left at the end: {dict(made)}")
    assert {visit.__name__ for visit in VISITS} == set(made) and killed


def test_some_seconds(tmp_path: Path):
    soak(tmp_path, 8, longest=2)


@pytest.mark.soak
def test_hour(tmp_path: Path):
    soak(tmp_path, 3600)
