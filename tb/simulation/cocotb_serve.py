"""Serves a simulated machine to other processes until it is told to end. `served_machine` starts
it."""

import json
import logging
import os
import signal
import threading
from dataclasses import asdict
from pathlib import Path

import cocotb

from signalbox.driver.protocol.beside import opened
from signalbox.driver.server.journal import Journal
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.driver.server.sockets import SocketInbox, SocketServer
from signalbox.tb.simulation.holdings import holdings, kept
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.served_machine import JOB, OUTCOME

_ALONE_SECONDS = 60
"""Seconds for the first connection."""


@cocotb.test()
async def serve(dut):
    job = json.loads(os.environ[JOB])
    inbox, memory = SocketInbox(), SharedMemory(job["memory_bytes"])
    _log(job["log"])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: inbox.put(Stop()))
    machine = await SimMachine.start(dut, memory)
    journal = Journal(machine.now) if job["journal"] else None
    settings = ServerSettings(**job["settings"])
    server = await Server.open(machine, settings, inbox, cocotb.start_soon, journal)
    before = await holdings(server)
    listener = SocketServer(Path(job["socket"]), inbox, memory)
    with opened(Path(job["process"])) as process:
        process.write(str(os.getpid()))
    if job["until_left"]:
        _give_up(server, inbox)
    logging.getLogger("signalbox.server").info("listening at %s", job["socket"])
    try:
        await server.run(until_left=job["until_left"])
    finally:
        listener.close()
        Path(job["process"]).unlink()
    outcome = {
        "served": server.served,
        "cycle": machine.now(),
        "kept": await kept(server, before),
        "journal": [asdict(entry) for entry in journal.entries] if journal is not None else [],
    }
    Path(OUTCOME).write_text(json.dumps(outcome))


def _give_up(server: Server, inbox: SocketInbox) -> None:
    """End the server if nobody connects to it in `_ALONE_SECONDS`, as its starter was probably
    killed."""

    def stop() -> None:
        if not server.visited:
            inbox.put(Stop())

    timer = threading.Timer(_ALONE_SECONDS, stop)
    timer.daemon = True
    timer.start()


def _log(file: str) -> None:
    """Append the server's log to a file."""
    log = logging.getLogger("signalbox.server")
    stream = opened(Path(file))
    stream.seek(0, os.SEEK_END)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
