"""Real processes on the RTL: `signalbox serve`, three applications, one of them killed (SHARE-7,
SHARE-8, SHARE-10)."""

import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from signalbox.driver import blocking
from signalbox.driver.client import start
from signalbox.driver.client.socket_link import ask_status, listens
from signalbox.driver.protocol.errors import ServerError
from signalbox.tb.driver.hangs import HANGS
from signalbox.tb.driver.server.processes import rtl_server
from signalbox.tb.driver.server.visitor import KINDS
from signalbox.tb.reports.readback import Events, read
from signalbox.tb.reports.served import MACHINE, QUEUE, task_track
from signalbox.tb.reports.timeline import WARPS
from signalbox.tb.simulation.runner import choose_seed
from signalbox.tb.simulation.sizes import COMPUTE, options
from signalbox.tb.simulation.tiers import ON_VERILATOR

MACHINE_OPTIONS = options(COMPUTE)
KILLS = 3
"""Clients of each kind that are killed."""

VISITOR_GONE = r"(?s)\A((?!'visitor ).)*\Z"
"""Status of a server without visitors."""

LIMITS = "--applications 4 --memory-each 0x40000 --patience 200000".split()


RUNLIST = ["--scheduling", "runlist", "--runlist-entries", "16", "--interleave", "adds 1=high"]


def application(path: Path, seed: int, rounds: int) -> subprocess.Popen[bytes]:
    """Start an application."""
    command = [sys.executable, "-m", "signalbox.tb.driver.server.application"]
    command += [str(path), str(seed), str(rounds)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def listening(path: Path, server: subprocess.Popen[str]) -> None:
    """Wait until the server listens; this may include building the simulation."""
    while server.poll() is None:
        try:
            ask_status(path)
            return
        except ServerError:
            time.sleep(0.2)
    raise AssertionError("the server has ended")


def check_timeline(events: Events) -> None:
    """Each application has had tasks; each task's arrow leads to a block on an SM."""
    blocks = {track: there for track, there in events.items() if track[0] == MACHINE}
    arrows = {flow for there in blocks.values() for _, one in there for flow in one.flow_ids}
    names = {track[0] for track in events} - {MACHINE}
    assert len(names) == 3
    for name in names:
        tasks = [one for _, one in events[name, task_track(0)] if one.name]
        assert len(tasks) == 3 or "adds 9" in name
        assert {flow for one in tasks[:-1] for flow in one.flow_ids} <= arrows
        queued = [one.counter_value for _, one in events[name, QUEUE]]
        assert max(queued) >= 1 and min(queued) >= 0 and queued[-1] == 0
        assert [one.counter_value for _, one in events[name, WARPS]][-1] == 0


@ON_VERILATOR
@pytest.mark.parametrize(
    "scheduling",
    [
        pytest.param([], id="flat"),
        pytest.param(RUNLIST, id="runlist", marks=pytest.mark.nightly),
    ],
)
def test_processes(simulator: str, tmp_path: Path, scheduling: list[str]):
    """The surviving applications' sums are right; no application remains."""
    path, timeline = tmp_path / "server" / "socket", tmp_path / "timeline.pftrace"
    command = [sys.executable, "-m", "signalbox.tb.reports.serve", "--socket", str(path)]
    chosen = [*MACHINE_OPTIONS, *LIMITS, *scheduling, "--timeline", str(timeline)]
    server = subprocess.Popen([*command, *chosen], stdout=subprocess.PIPE, text=True)
    try:
        listening(path, server)
        well = [application(path, seed, 3) for seed in range(2)]
        doomed = application(path, 9, 1000)
        beside = [path.with_name(f"socket.{what}") for what in ("log", "pid")]
        assert [stat.S_IMODE(os.stat(one).st_mode) for one in (path, *beside)] == [0o600] * 3
        while not re.search(r"'adds 9'.* [1-9]\d* +0$", ask_status(path), re.MULTILINE):
            time.sleep(0.1)  # until a task of it has ended
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        assert [one.wait(timeout=120) for one in well] == [0, 0]
        while " 0 applications of 3" not in (told := ask_status(path)):
            time.sleep(0.1)
        used = re.search(rf"\n{COMPUTE.sms} SMs: .* busy since the last status, (.*)% so far", told)
        assert used and 0 < float(used[1]) < 100, told
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=60)
        assert server.returncode == 0 and "\n3 applications in " in output, output
        assert "its process has ended" in path.with_suffix(".log").read_text()
        check_timeline(read(timeline))
    finally:
        server.kill()


def doomed(path: Path, seed: str, kind: str) -> subprocess.Popen[bytes]:
    """Start a client that makes visits of one kind until it is killed."""
    module = "signalbox.tb.driver.server.visitor"
    return subprocess.Popen([sys.executable, "-m", module, str(path), seed, kind])


@pytest.mark.nightly
@ON_VERILATOR
def test_killed_at_random_moments(simulator: str, tmp_path: Path):
    """Clients that add, fault, flood, wait for ever, or run kernels without an end, are killed at
    random moments, in the order of a seed, beside one whose sums are checked. Nothing of them
    remains, and the server continues (SHARE-8, SHARE-9)."""
    rng = random.Random(seed := choose_seed())
    print(f"seed {seed}")
    kinds = [kind for kind in KINDS for _ in range(KILLS)]
    rng.shuffle(kinds)
    with rtl_server(tmp_path, [*MACHINE_OPTIONS, *LIMITS]) as running:
        for number, kind in enumerate(kinds):
            victim = application(running.path, number, 2)
            one = doomed(running.path, f"{seed}/{number}", kind)
            if rng.random() < 0.8:  # otherwise while it starts, or connects
                running.until(r"'visitor \d+' +\d")
            time.sleep(rng.uniform(0, 1))
            assert one.poll() is None, f"{kind}: it failed"
            one.send_signal(signal.SIGKILL)
            one.wait()
            running.until(VISITOR_GONE)
            assert victim.wait(timeout=HANGS) == 0, f"beside {kind}"


@ON_VERILATOR
def test_started_by_its_first_client(
    simulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of two clients that arrive at the same time, one starts the server, which ends when both are
    gone; later clients start it again."""
    path = tmp_path / "server" / "socket"
    chosen = [*MACHINE_OPTIONS, *LIMITS, "--timeline", str(tmp_path / "timeline.pftrace")]
    output, barrier = path.with_suffix(".output"), Barrier(2, timeout=500)

    starts: list[Path] = []
    start_one = start._start

    def counted(path: Path, options: Sequence[str]) -> None:
        starts.append(path)
        start_one(path, options)

    monkeypatch.setattr(start, "_start", counted)

    def client() -> None:
        with blocking.connect(path, start=chosen) as device:
            barrier.wait()
            assert device.upload(np.arange(8, dtype=np.uint32)).read(np.uint32)[7] == 7

    for turn in range(2):
        with ThreadPoolExecutor() as pool:
            for one in [pool.submit(client) for _ in range(2)]:
                one.result()
        deadline = time.monotonic() + 60
        while "2 applications in " not in (text := output.read_text()):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        assert not listens(path) and len(starts) == 1 + turn


def test_server_that_does_not_start(tmp_path: Path):
    """The error gives the reason; the server's output is in a file next to its socket."""
    for name in ("gpu.0", "gpu.1"):
        with (
            pytest.raises(ServerError, match=r"could not be started: .*applications = 0"),
            blocking.connect(tmp_path / name, start=["--applications", "0"]),
        ):
            pass
        assert "applications = 0" in (tmp_path / f"{name}.output").read_text()
