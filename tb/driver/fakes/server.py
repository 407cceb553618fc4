"""A server of the fake machine, as a process: `python -m signalbox.tb.driver.fakes.server SOCKET`.

It ends at the end of its standard input. Then it prints the number of applications, and the
difference of each resource in use from its use before the first application (`kept`).
"""

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.driver.server.sockets import SocketInbox, SocketServer
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.simulation.holdings import holdings, kept

__all__ = ["machine_on"]

_CHANNELS = 64
_BYTES = 1 << 25


def machine_on(memory: SharedMemory) -> FakeMachine:
    """A fake machine whose memory can be shared."""
    config = Config(memory_bytes=_BYTES, channels=_CHANNELS, asids=64, contexts=1)
    return FakeMachine(config, memory=memory.view)


async def _serve(path: Path, settings: ServerSettings) -> dict[str, Any]:
    inbox, memory = SocketInbox(), SharedMemory(_BYTES)
    machine = machine_on(memory)
    server = await Server.open(machine, settings, inbox, asyncio.ensure_future)
    before, bound = await holdings(server), {*machine.translator.bound}
    listener = SocketServer(path, inbox, memory)
    threading.Thread(target=lambda: (sys.stdin.read(), inbox.put(Stop())), daemon=True).start()
    print("ready", flush=True)
    await server.run()
    listener.close()
    left = await kept(server, before)
    if more := {*machine.translator.bound} - bound:
        left["bound ASIDs"] = len(more)
    return {"kept": left, "served": server.served}


if __name__ == "__main__":
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    print(json.dumps(asyncio.run(_serve(Path(sys.argv[1]), ServerSettings(**options)))))
