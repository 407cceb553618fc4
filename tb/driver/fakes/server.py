"""A server of the fake machine, as a process: `python -m signalbox.tb.driver.fakes.server SOCKET`.

It ends with its standard input. Then it prints the number of free bytes of memory, the number
before the first application, and the number of descriptors that it has opened since then and not
closed.
"""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.driver.server.sockets import SocketInbox, SocketServer
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import FakeMachine

__all__ = ["machine_on"]

_CHANNELS = 64
_BYTES = 1 << 25


def machine_on(memory: SharedMemory) -> FakeMachine:
    """A fake machine whose memory can be shared."""
    config = Config(memory_bytes=_BYTES, channels=_CHANNELS, asids=64, contexts=1)
    return FakeMachine(config, memory=memory.view)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _serve(path: Path, settings: ServerSettings) -> dict[str, int]:
    inbox, memory = SocketInbox(), SharedMemory(_BYTES)
    server = await Server.open(machine_on(memory), settings, inbox, asyncio.ensure_future)
    listener = SocketServer(path, inbox, memory)
    threading.Thread(target=lambda: (sys.stdin.read(), inbox.put(Stop())), daemon=True).start()
    before, open_before = server.free_bytes, _descriptors()
    print("ready", flush=True)
    await server.run()
    deadline = time.monotonic() + 5  # threads of connections that have just ended
    while (left := _descriptors() - open_before) > 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    outcome = {
        "free": server.free_bytes,
        "before": before,
        "descriptors": left,
        "served": server.served,
    }
    listener.close()
    return outcome


if __name__ == "__main__":
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    print(json.dumps(asyncio.run(_serve(Path(sys.argv[1]), ServerSettings(**options)))))
