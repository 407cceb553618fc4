"""Applications in their own processes, on a server of the fake machine (SHARE-10)."""

import asyncio
import contextlib
import copy
import os
import pickle
import random
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from signalbox.driver import blocking
from signalbox.driver.client.socket_link import ask_status
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.kernels.library import VECTOR_ADD
from signalbox.driver.protocol.errors import ServerError
from signalbox.driver.protocol.messages import (
    LARGEST_MESSAGE,
    PROTOCOL,
    Call,
    Hello,
    Status,
    encode,
)
from signalbox.driver.server.sockets import _CONNECTIONS
from signalbox.tb.driver.compute_bodies import addition, check
from signalbox.tb.driver.server.processes import Running, server, succeed
from signalbox.tb.folders import ROOT
from signalbox.tb.reports.serve import main as serve_main
from signalbox.tb.reports.server_status import main as status_main
from signalbox.tb.simulation.runner import choose_seed

MOST_UNREAD = 8 << 20
"""Bytes for the answers that a client may leave unread."""


def test_blocking_form(tmp_path: Path):
    """Blocking calls work, with arrays as input and output, and raise the driver's errors."""
    with server(tmp_path) as running, blocking.connect(running.path, "plain") as device:
        stream, done = device.stream(), device.event()
        source = device.upload(np.arange(500, dtype=np.uint8))
        target = device.allocate(500)
        stream.memcpy_async(target, source, 500)
        done.record(stream)
        done.synchronize()
        assert np.array_equal(target.read(), source.read())
        assert 0 < done.time_ns <= device.time_ns()
        stream.memcpy_async(target, 0x7000_0000, 16)
        with pytest.raises(ChannelError, match="COPY_READ_FAULT"):
            stream.synchronize()
        assert "0 'plain'" in ask_status(running.path)


def test_blocking_calls_at_the_end(tmp_path: Path):
    """A call that waits in another thread ends when the device is closed; later calls are
    refused."""

    def attempt(call: Callable[[], None], told: list[str]) -> None:
        with pytest.raises(ServerError) as error:
            call()
        told.append(str(error.value))

    told: list[str] = []
    with server(tmp_path) as running:
        with blocking.connect(running.path, "ends") as device:
            stream, never = device.stream(), device.upload(np.zeros(1, np.uint32))
            stream.submit(Pushbuffer().acquire(device.space.at(never), 1))
            waits = threading.Thread(target=attempt, args=(stream.synchronize, told), daemon=True)
            waits.start()
            time.sleep(0.2)
        waits.join(10)
        assert len(told) == 1
        attempt(stream.synchronize, told)
        assert told[1] == "the device was closed before the call"
        with blocking.connect(running.path, "closes by itself") as device:
            device.close()


def test_blocking_call_just_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A call is refused even if the event loop has ended its tasks, but is not closed yet."""
    close, told = asyncio.SelectorEventLoop.close, []

    def call(device: blocking.Blocking) -> None:
        with pytest.raises(ServerError) as error:
            device.stream_priority_range()
        told.append(str(error.value))

    with server(tmp_path) as running:
        with blocking.connect(running.path, "ends") as device:
            late = threading.Thread(target=call, args=(device,), daemon=True)

            def slowly(loop: asyncio.SelectorEventLoop) -> None:
                late.start()
                late.join(0.2)
                close(loop)

            monkeypatch.setattr(asyncio.SelectorEventLoop, "close", slowly)
        late.join(10)
        assert told == ["the device was closed before the call"]


def test_blocking_calls_in_a_forked_process(tmp_path: Path):
    """They are refused, and the end of the process does not disturb its parent."""
    script = """
import os, sys
from signalbox.driver import blocking
with blocking.connect(sys.argv[1], "forks") as device:
    if not (child := os.fork()):
        device.time_ns()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("child ended with", status, "after", device.time_ns() >= 0)
"""
    with server(tmp_path) as running:
        command = [sys.executable, "-c", script, str(running.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "child ended with 1 after True\n"
    assert "the device belongs to process" in done.stderr


def test_blocking_device_left_open(tmp_path: Path):
    """A script ends although it has not closed its device."""
    script = """
import contextlib, sys
from signalbox.driver import blocking
stack = contextlib.ExitStack()
device = stack.enter_context(blocking.connect(sys.argv[1], "leaves"))
print(device.time_ns() >= 0)
"""
    with server(tmp_path) as running:
        command = [sys.executable, "-c", script, str(running.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    "connecting",
    [
        "with blocking.connect(sys.argv[1]): pass",
        "asyncio.run(Device.connect(sys.argv[1]))",
        "asyncio.run(asyncio.wait_for(Device.connect(sys.argv[1]), 0.1))",
    ],
)
def test_silent_server(tmp_path: Path, connecting: str):
    """Connecting to a server that does not answer can be interrupted, by Ctrl-C or a time-out."""
    script = f"""
import asyncio, signal, sys
from signalbox.driver import blocking
from signalbox.driver.device import Device
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
print("ready", flush=True)
{connecting}
"""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path := str(tmp_path / "socket"))
        silent.listen()
        command = [sys.executable, "-c", script, path]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as client:
            assert client.stdout is not None and client.stdout.readline() == "ready\n"
            link, _ = silent.accept()
            assert link.recv(1)
            if "wait_for" not in connecting:
                client.send_signal(signal.SIGINT)
            try:
                _, said = client.communicate(timeout=20)
            finally:
                client.kill()
                link.close()
        assert said.splitlines()[-1] in {"KeyboardInterrupt", "TimeoutError"}


def test_blocking_objects(tmp_path: Path):
    """Blocking objects compare, print and hash like the objects that they stand for."""
    with server(tmp_path) as running, blocking.connect(running.path) as device:
        stream, buffer = device.stream(name="mine"), device.allocate(64)
        assert stream.space == device.space and {stream.space: 1}[device.space] == 1
        assert stream != device.stream()
        assert buffer.mappings[0].space == device.space
        assert str(stream).startswith("mine (priority 0")
        assert buffer in [mapping.buffer for mapping in device.space]


def test_blocking_members(tmp_path: Path):
    """All that is found from a blocking object blocks: channels, tasks and spaces among others."""
    with server(tmp_path) as running, blocking.connect(running.path) as device:
        before = device.machine.now()
        device.machine.wait_cycles(100)
        assert device.machine.now() >= before + 100
        stream = device.stream()
        assert stream.channels == (stream.channel,)
        assert len(device.channels) == 1 and list(device.channels) == [stream.channel.index]
        assert device.channels[stream.channel.index] == stream.channel
        assert dict(device.channels.items()) == {stream.channel.index: stream.channel}
        assert [one.check() for one in device.channels.values()] == [None]
        assert [space.settle() for space in device.spaces] == [None]
        flag, c = device.upload(np.zeros(1, np.uint32)), device.allocate(400)
        stream.submit(Pushbuffer().acquire(device.space.at(flag), 1))
        task = stream.launch(VECTOR_ADD, 5, 20, {"A": c, "B": c, "C": c, "N": 100})
        assert list(stream.channel.tasks) == [task] and len(stream.channel.tasks) == 1
        flag.write(np.ones(1, np.uint32))
        assert [one.synchronize() for one in stream.channel.tasks] == [None] and task.ended


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_blocking_objects_are_not_copied(tmp_path: Path, copied: Callable[[object], object]):
    with server(tmp_path) as running, blocking.connect(running.path) as device:
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            copied(device.stream(name="mine"))


def test_device_of_an_event_loop(tmp_path: Path):
    async def main(path: Path) -> None:
        devices = [await Device.open(path), await Device.connect(path, "second", 1 << 17)]
        for seed, device in enumerate(devices):
            task, args = await addition(device, await device.stream(), seed)
            await task.synchronize()
            check(args)
        for device in devices:
            await device.close()
        with pytest.raises(ServerError):
            await devices[0].time_ns()

    with server(tmp_path) as running:
        asyncio.run(main(running.path))


@pytest.mark.parametrize("count", [16, pytest.param(48, marks=pytest.mark.nightly)])
def test_many_applications(tmp_path: Path, count: int):
    """Processes that are connected at once; then all of them work."""
    with server(tmp_path) as running:
        applications = [running.start(seed, 2, held=True) for seed in range(count)]
        running.until(f" {count} applications of {count}")
        for one in applications:
            assert one.stdin is not None
            one.stdin.close()
        succeed(applications)


def test_forty_eight_at_once(tmp_path: Path):
    """48 applications are connected and work at the same time (SHARE-10)."""

    async def main(path: Path) -> None:
        devices = [await Device.connect(path, f"app {number}") for number in range(48)]
        for device in devices:
            await device.stream()
        tasks = []
        for seed, device in enumerate(devices):
            stream = device._streams[0]
            tasks.append(await addition(device, stream, seed))
        for task, args in tasks:
            await task.synchronize()
            check(args)
        assert "48 applications of 48" in ask_status(path)
        for device in devices:
            await device.close()

    with server(tmp_path) as running:
        asyncio.run(main(running.path))


def test_killed_processes(tmp_path: Path):
    """Some applications get SIGKILL at random moments; the others finish with the right sums
    (SHARE-8)."""
    rng = random.Random(seed := choose_seed())
    print(f"seed {seed}")
    with server(tmp_path) as running:
        well = [running.start(number, 12) for number in range(3)]
        for number in range(6):
            doomed = running.start(100 + number, 1000)
            time.sleep(rng.uniform(0.2, 1.2))
            doomed.send_signal(signal.SIGKILL)
            doomed.wait()
        succeed(well)


def test_stopped_process(tmp_path: Path):
    """A process that hangs in the midst of its work does not keep the others waiting."""
    with server(tmp_path) as running:
        hangs = running.start(1, 1000)
        running.until(r"'adds 1'.*[1-9] +0$")  # a task has ended
        hangs.send_signal(signal.SIGSTOP)
        try:
            succeed([running.start(number, 3) for number in range(2, 5)])
            assert "adds 1" in running.until(" 1 application of")
            assert hangs.poll() is None
        finally:
            hangs.send_signal(signal.SIGKILL)
            hangs.wait()


def raw(path: Path) -> socket.socket:
    """A bare connection."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(path))
    return link


def framed(data: bytes) -> bytes:
    """A message on the wire."""
    return len(data).to_bytes(4, "big") + data


def copies(device: blocking.Blocking, stream: blocking.Blocking, content: int) -> None:
    """Check that an application gets its work done."""
    source, target = device.upload(np.full(500, content, np.uint8)), device.allocate(500)
    stream.memcpy_async(target, source, 500)
    stream.synchronize()
    assert np.array_equal(target.read(), source.read())
    device.free(source)
    device.free(target)


HELLO = encode(Call(0, Hello(PROTOCOL, "raw", 1)))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\0",
        framed(HELLO)[:10],
        framed(b"\xff" * 30),
        framed(HELLO) * 2,
        framed(HELLO) + framed(b"garbage"),
        (LARGEST_MESSAGE + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff" + (1 << 60).to_bytes(8, "big"),
        framed(encode(Call(0, Hello(PROTOCOL + 1, "newer", 1)))),
        framed(encode(Call(0, Status()))),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=range(11),
)
def test_bad_messages(tmp_path: Path, sent: bytes):
    """Half messages, garbage, wrong lengths and wrong versions: another application continues to
    work before, amid and after them."""
    with server(tmp_path) as running, blocking.connect(running.path, "good") as good:
        stream, link, half = good.stream(), raw(running.path), len(sent) // 2
        for number, part in enumerate((b"", sent[:half], sent[half:])):
            with contextlib.suppress(OSError):  # the server may have closed it
                link.sendall(part)
            copies(good, stream, number)
        link.close()
        copies(good, stream, 3)


def most_resident(process: subprocess.Popen[str]) -> int:
    """Largest number of bytes that a process has had in memory."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def test_reader_of_nothing(tmp_path: Path):
    """A client that never reads its answers is disconnected, and costs little memory until
    then."""
    with server(tmp_path) as running:
        link = raw(running.path)
        link.sendall(framed(HELLO))
        asks = framed(encode(Call(1, Status())))
        running.until("'raw'")
        before = most_resident(running.process)
        link.settimeout(20)
        try:
            for _ in range(200_000):
                link.sendall(asks)
        except OSError:
            pass
        else:
            raise AssertionError("the server went on")
        assert most_resident(running.process) - before < MOST_UNREAD
        succeed([running.start(1, 1)])
        link.close()


def test_hasty_connections(tmp_path: Path):
    """Clients that send Hello and leave before the answer leave no descriptor open."""
    with server(tmp_path) as running:
        for _ in range(40):
            link = raw(running.path)
            link.sendall(framed(HELLO))
            link.close()
        succeed([running.start(1, 1)])


def test_too_many_connections(tmp_path: Path):
    """Of 300 connections at once, those beyond the limit are closed; the others go on. Later there
    is room for an application again."""
    with server(tmp_path) as running:
        with blocking.connect(running.path, "first") as first:
            stream = first.stream()
            links = [raw(running.path) for _ in range(299)]
            for link in links:
                link.settimeout(20)
            for link in links[_CONNECTIONS - 1 :]:
                assert link.recv(1) == b"", "it is not closed"
            for link in links[: _CONNECTIONS - 1]:
                link.sendall(framed(encode(Call(0, Status()))))
                assert len(link.recv(4)) == 4, "it has no answer"
            copies(first, stream, 1)
            for link in links:
                link.close()
        succeed([running.start(1, 1)])


def test_socket_that_was_left(tmp_path: Path):
    """A killed server leaves a socket, which the next server takes over."""
    path = tmp_path / "server" / "socket"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    with server(tmp_path) as running:
        succeed([running.start(1, 1)])


def test_only_its_user(tmp_path: Path):
    """No other user can connect, and no second server takes the socket."""
    with server(tmp_path) as running:
        assert stat.S_IMODE(os.stat(running.path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(running.path.parent).st_mode) == 0o700
        command = [sys.executable, "-m", "signalbox.tb.driver.fakes.server", str(running.path)]
        second = subprocess.run(command, capture_output=True, text=True, input="", check=False)
        assert second.returncode and "in use" in second.stderr
        succeed([running.start(1, 1)])


def test_server_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A client does not use a server that another user has started at its path."""
    with server(tmp_path) as running:
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
            for ask in (ask_status, lambda path: asyncio.run(Device.open(path))):
                with pytest.raises(ServerError, match=r"is of user \d+, not \d+"):
                    ask(running.path)
        succeed([running.start(1, 1)])


def test_folder_of_the_socket(tmp_path: Path):
    """A missing folder is created for the user alone, whatever the umask; in one that exists, the
    socket is still the user's own."""
    before = os.umask(0)
    try:
        with server(tmp_path / "missing") as running:
            folder = running.path.parent
            assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, running.path)] == [
                0o700,
                0o600,
            ]
        (shared := tmp_path / "shared" / "server").mkdir(parents=True, mode=0o777)
        with server(shared.parent) as running:
            assert stat.S_IMODE(shared.stat().st_mode) == 0o777
            assert stat.S_IMODE(running.path.stat().st_mode) == 0o600
            assert {one.name for one in shared.iterdir()} == {"socket"}
    finally:
        os.umask(before)


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An address is the path of a socket, relative to the current folder, with no other meaning of
    a name."""
    with server(tmp_path) as running:
        monkeypatch.chdir(running.path.parent)

        async def main() -> None:
            device = await Device.open(running.path.name)
            await device.close()
            with pytest.raises(ServerError, match="no server at gpu: No such file or directory"):
                await Device.open("gpu")

        asyncio.run(main())
        assert not Path("gpu").exists()


def test_default_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """`signalbox serve` and `signalbox status` use the same socket, in the build folder."""
    script = """
from signalbox.tb.simulation.served_machine import SOCKET
print(SOCKET)
"""
    for build in ("", str(tmp_path / "elsewhere")):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "SIGNALBOX_BUILD": build, "PYTHONPATH": str(ROOT)},
        )
        folder = build or str(tmp_path / "sim_build")
        assert done.stdout == f"{folder}/server/socket\n"
    for command in (serve_main, status_main):
        with pytest.raises(SystemExit):
            command(["--help"])
        assert re.search(r"--socket SOCKET\s+default: .*server/socket", capsys.readouterr().out)


def test_no_server(tmp_path: Path):
    with pytest.raises(ServerError, match=r"no server at .*nothing: No such file"):
        ask_status(tmp_path / "nothing")
    with pytest.raises(ServerError, match="no server at"):
        asyncio.run(Device.open(tmp_path / "nothing"))


def test_server_that_ends(tmp_path: Path):
    """Clients get an error when the server has ended."""

    async def main(running: Running) -> None:
        device = await Device.open(running.path)
        stream = await device.stream()
        await asyncio.to_thread(running.process.communicate, "")
        with pytest.raises(ServerError, match="the server has"):
            buffer = await device.upload(np.zeros(8, np.uint32))
            await stream.launch(VECTOR_ADD, 1, 1, {"A": buffer, "B": buffer, "C": buffer, "N": 1})

    with pytest.raises(ServerError), server(tmp_path) as running:
        asyncio.run(main(running))
