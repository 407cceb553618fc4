"""Ends of connections between the server and other processes."""

import asyncio
import contextlib
import json
import os
import resource
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from signalbox.driver.client.socket_link import SocketLink
from signalbox.driver.protocol.errors import ServerError
from signalbox.driver.protocol.messages import (
    Answer,
    Done,
    Leave,
    News,
    Notified,
    decode_call,
    encode,
)
from signalbox.driver.protocol.shutdown import shut_down
from signalbox.driver.server.application import Peer
from signalbox.driver.server.server import Lost, Received
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.driver.server.sockets import SocketInbox, SocketPeer, SocketServer
from signalbox.hw.config import Config
from signalbox.tb.simulation import served_machine


def serve(path: Path, answers: int) -> None:
    """Answer one message `answers` times, through a slow connection, and end the process. The
    thread that accepted the connection is slow, too."""
    send = Connection.send_bytes

    def slowly(link: Connection, *given: Any) -> None:
        time.sleep(0.05)
        send(link, *given)

    start = SocketPeer.start

    def late(peer: SocketPeer) -> None:
        start(peer)
        time.sleep(0.1)

    with patch.object(Connection, "send_bytes", slowly), patch.object(SocketPeer, "start", late):
        inbox, memory = SocketInbox(), SharedMemory(1 << 16)
        server = SocketServer(path, inbox, memory)
        asyncio.run(inbox.wait())
        (item,) = inbox.take()
        assert isinstance(item, Received)
        for number in range(answers):
            item.peer.send(b"%d" % number)
        server.close()


@pytest.mark.parametrize("answers", [1, 5])
def test_last_answers(tmp_path: Path, answers: int):
    """A server sends its last answers before it ends, so the last client to leave still gets its
    answer."""
    path = tmp_path / "socket"
    process = get_context("spawn").Process(target=serve, args=(path, answers))
    process.start()
    while True:
        assert process.is_alive()
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            link = Client(str(path), "AF_UNIX")
            break
        time.sleep(0.01)
    with link:
        link.send_bytes(b"leave")
        assert [link.recv_bytes() for _ in range(answers)] == [b"%d" % n for n in range(answers)]
        with pytest.raises(EOFError):
            link.recv_bytes()
    process.join(10)
    assert process.exitcode == 0


@dataclass
class Greeted:
    """A server in this process, and a client; the server has taken the client's first message."""

    server: SocketServer
    inbox: SocketInbox
    peer: Peer
    link: Connection


@contextmanager
def greeted(path: Path) -> Generator[Greeted]:
    """Closes the client's connection at the end."""
    inbox = SocketInbox()
    server = SocketServer(path, inbox, SharedMemory(1 << 16))
    with Client(str(path), "AF_UNIX") as link:
        link.send_bytes(b"hello")
        asyncio.run(inbox.wait())
        (item,) = inbox.take()
        assert isinstance(item, Received)
        yield Greeted(server, inbox, item.peer, link)


def test_a_client_that_reads_no_answer(tmp_path: Path):
    """The end of a process with unread answers is reported like any other."""
    with greeted(tmp_path / "socket") as both:
        both.peer.send(b"answer")
        assert both.link.poll(10)
    asyncio.run(both.inbox.wait())
    (lost,) = both.inbox.take()
    assert isinstance(lost, Lost) and lost.why == "its process has ended"
    both.server.close()


def test_a_stalled_client_is_not_waited_for(tmp_path: Path):
    """A server ends even if a client reads nothing."""
    with greeted(tmp_path / "socket") as both:
        for _ in range(100):
            both.peer.send(bytes(1 << 16))
        both.server.close()


def test_an_answer_just_before_the_end():
    """A client takes an answer that comes together with the end of the connection."""
    mine, other = Pipe()

    async def leave() -> Done:
        link = SocketLink(mine)
        call = asyncio.create_task(link.connection.call(Leave(drain=True), Done))
        await asyncio.sleep(0)
        number = decode_call(other.recv_bytes()).number
        other.send_bytes(encode(Answer(number, 5, Done())))
        other.close()
        while not mine.closed:  # the thread has read both, while the event loop stands still
            time.sleep(0.01)
        await call
        with pytest.raises(ServerError, match="the server has ended the connection"):
            await link.wait()
        return call.result()

    assert asyncio.run(leave()) == Done()


def test_news_after_the_loop():
    """A connection whose event loop has ended closes at the next message, so the server does not
    keep an application without a client."""
    mine, other = Pipe()

    async def visit() -> None:
        SocketLink(mine)
        await asyncio.sleep(0)

    asyncio.run(visit())
    other.send_bytes(encode(News(1, Notified())))
    assert other.poll(10)
    with pytest.raises(EOFError):
        other.recv_bytes()


def test_too_few_descriptors():
    """A connection can be ended although there is no descriptor left."""
    mine, other = Pipe()
    before, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    most = max(int(one) for one in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(mine.fileno()))
        shut_down(mine)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for one in held:
            os.close(one)
    assert other.poll(10)
    with pytest.raises(EOFError):
        other.recv_bytes()
    mine.close()
    other.close()


@pytest.mark.parametrize("most", [0, 1])
def test_too_few_threads(monkeypatch: pytest.MonkeyPatch, most: int):
    """A connection for which none or one of two threads can be started is closed, once."""
    mine, other = Pipe()
    ended: list[bool] = []
    peer = SocketPeer(mine, SocketInbox(), SharedMemory(1 << 16), lambda: ended.append(mine.closed))
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def some(thread: threading.Thread) -> None:
        if len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    with pytest.raises(RuntimeError):
        peer.start()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()
    assert ended == [True]
    with pytest.raises(EOFError):
        other.recv_bytes()
    other.close()


def test_files_of_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Machines served at sockets that differ only in their suffixes have their own process numbers
    and logs."""
    files: list[str] = []

    def simulated(*_: Any, env: dict[str, str], **__: Any) -> Path:
        job = json.loads(env[served_machine.JOB])
        files.extend([job["process"], job["log"]])
        outcome = {"served": 0, "cycle": 0, "kept": {}, "journal": []}
        (tmp_path / served_machine.OUTCOME).write_text(json.dumps(outcome))
        return tmp_path

    monkeypatch.setattr(served_machine, "simulate_top", simulated)
    sockets = [tmp_path / name for name in ("gpu.0", "gpu.1", "gpu")]
    for path in sockets:
        served_machine.serve(Config(memory_bytes=1 << 20), ServerSettings(), path)
    assert files == [f"{path}.{what}" for path in sockets for what in ("pid", "log")]
