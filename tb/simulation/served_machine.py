"""A machine on the RTL that other processes share through a server."""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from signalbox.driver.protocol.beside import beside
from signalbox.driver.server.journal import Entry, Kind
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import Config
from signalbox.hw.top import Signalbox
from signalbox.tb.folders import SIM_BUILD
from signalbox.tb.simulation.top import TRACE, check_memory, simulate_top

__all__ = ["JOB", "OUTCOME", "SOCKET", "Outcome", "serve"]

JOB = "SIGNALBOX_SERVE"
"""Environment variable with the job for `cocotb_serve`, a JSON object."""

OUTCOME = "served.json"
"""File in the run folder with the server's outcome, a JSON object."""

SOCKET = SIM_BUILD / "server" / "socket"

_ENDS = signal.SIGINT, signal.SIGTERM


@dataclass(frozen=True)
class Outcome:
    """State of a machine when its server ended.

    Members
    -------
    served : number of applications served.
    cycle : last cycle.
    kept : increase of each resource in use since before the first application, by name, without
        zeros (`tb.simulation.holdings`).
    journal : entries of the journal; empty if none was kept.
    trace : file with the machine's trace.
    """

    served: int
    cycle: int
    kept: Mapping[str, int]
    journal: Sequence[Entry]
    trace: Path


def serve(
    config: Config,
    settings: ServerSettings,
    socket: Path = SOCKET,
    *,
    until_left: bool = False,
    journal: bool = False,
) -> Outcome:
    """Serve a machine until SIGINT or SIGTERM. Builds the simulation first, if necessary. The
    server's log and process number are in files with the name of the socket and `.log` or `.pid`
    appended.

    Parameters
    ----------
    until_left : also end when the last application has left.
    journal : keep a journal and a trace.

    Raises `ConfigError` for more memory than can be simulated, `RuntimeError` if a tool is missing
    or the design does not build, `AssertionError` if the simulation fails, and `KeyboardInterrupt`
    for a signal before the server listens.
    """
    check_memory(config)
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    process = beside(socket, "pid")
    process.unlink(missing_ok=True)  # of a server that was killed
    job = {
        "socket": str(socket.resolve()),
        "process": str(process.resolve()),
        "log": str(beside(socket, "log").resolve()),
        "memory_bytes": config.memory_bytes,
        "until_left": until_left,
        "journal": journal,
        "settings": asdict(settings),
    }
    # The simulation has its own handlers, and ends by itself.
    before = {number: signal.signal(number, _pass_on(process)) for number in _ENDS}
    try:
        folder = simulate_top(
            Signalbox(replace(config, trace=config.trace or journal)),
            "signalbox.tb.simulation.cocotb_serve",
            simulator="verilator",
            name="server",
            env={JOB: json.dumps(job), "COCOTB_LOG_LEVEL": "WARNING"},
            log="server",
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    found = json.loads((folder / OUTCOME).read_text())
    entries = [Entry(**{**one, "kind": Kind(one["kind"])}) for one in found.pop("journal")]
    return Outcome(**found, journal=entries, trace=folder / TRACE)


def _pass_on(process: Path) -> Any:
    """Signal handler that passes the signal on to the simulation. While there is no simulation yet,
    it raises `KeyboardInterrupt`."""

    def handler(number: int, _: object) -> None:
        if not process.exists():
            raise KeyboardInterrupt
        os.kill(int(process.read_text()), number)

    return handler
