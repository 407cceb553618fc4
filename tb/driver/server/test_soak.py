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
from dataclasses import replace
from pathlib import Path

import pytest

from signalbox.tb.driver.server.processes import Running, rtl_server, server, succeed
from signalbox.tb.driver.server.visitor import VISITS
from signalbox.tb.simulation.runner import choose_seed
from signalbox.tb.simulation.sizes import COMPUTE, options
from signalbox.tb.simulation.tiers import ON_VERILATOR

PROCESSES = 4
"""Processes of visitors."""


def visitors(path: Path, seed: str, seconds: float, clients: int) -> subprocess.Popen[str]:
    """Start a process of visitors."""
    module = "signalbox.tb.driver.server.visitor"
    command = [sys.executable, "-m", module, str(path), seed, str(seconds), str(clients)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def rubbish(path: Path, rng: random.Random) -> None:
    """A connection that sends random bytes and closes."""
    with socket.socket(socket.AF_UNIX) as link, suppress(OSError):
        link.connect(str(path))
        link.sendall(rng.randbytes(rng.randrange(200)))


def soak(running: Running, seconds: float, longest: float, clients: int) -> None:
    """Keep `clients` clients of each process busy for `seconds`, and kill a process every few
    seconds, at most `longest` apart. The others' sums are right; at its end, the server finds that
    nothing remains of any client."""
    rng = random.Random(seed := choose_seed())
    print(f"seed {seed}")
    started = killed = 0
    there: list[subprocess.Popen[str]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(there) < PROCESSES:
            left = end - time.monotonic()
            there.append(visitors(running.path, f"{seed}/{started}", left, clients))
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
        output, _ = one.communicate(timeout=300)
        assert one.returncode == 0
        made += Counter(json.loads(output))
    running.settled()  # there may be as many applications as the server takes, and they leave
    succeed([running.start(1, 1)])
    print(f"{started} processes; visits of those left at the end: {dict(made)}")
    assert {visit.__name__ for visit in VISITS} == set(made) and killed


def test_half_a_minute(tmp_path: Path):
    with server(tmp_path, applications=48) as running:
        soak(running, 28, longest=3, clients=12)


@pytest.mark.soak
def test_fifty_minutes(tmp_path: Path):
    with server(tmp_path, applications=48) as running:
        soak(running, 3000, longest=10, clients=12)


@pytest.mark.soak
@ON_VERILATOR
def test_ten_minutes_on_the_rtl(simulator: str, tmp_path: Path):
    config = replace(COMPUTE, channels=16, asids=18)
    limits = "--applications 12 --memory-each 0x40000 --patience 200000".split()
    with rtl_server(tmp_path, [*options(config), *limits]) as running:
        soak(running, 600, longest=20, clients=3)
