"""Serves a simulated machine to other processes until it is told to end. `tb.simulation.serve`
starts it."""

import json
import logging
import os
import signal
from dataclasses import asdict
from pathlib import Path

import cocotb

from signalbox.driver.server.journal import Journal
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.driver.server.sockets import SocketInbox, SocketServer
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.serve import JOB, OUTCOME


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
    free = server.free_bytes
    listener = SocketServer(Path(job["socket"]), inbox, memory)
    Path(job["process"]).write_text(str(os.getpid()))
    logging.getLogger("signalbox.server").info("listening at %s", job["socket"])
    try:
        await server.run(until_idle=job["until_idle"])
    finally:
        listener.close()
        Path(job["process"]).unlink()
    outcome = {
        "served": server.served,
        "cycle": machine.now(),
        "left": free - server.free_bytes,
        "journal": [asdict(entry) for entry in journal.entries] if journal is not None else [],
    }
    Path(OUTCOME).write_text(json.dumps(outcome))


def _log(file: str) -> None:
    """Write the server's log to a file."""
    log = logging.getLogger("signalbox.server")
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
