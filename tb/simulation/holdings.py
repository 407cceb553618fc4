"""Resources in use by a server. They are counted before it listens and after its last application
has left, to find leaks."""

import os
import threading
import time
from pathlib import Path

from signalbox.driver.server.server import Server
from signalbox.driver.server.sockets import THREADS

__all__ = ["holdings", "kept"]

_SECONDS = 5
"""Seconds for the threads of connections that have just ended."""

_POLL_SECONDS = 0.05


async def holdings(server: Server) -> dict[str, int]:
    """Number of resources in use, by name: resources given to applications by the server, channels
    and tasks shown by the machine's registers, and resources of this process. Free memory is
    counted as negative bytes."""
    owner = server.owner
    channels = range(server.device.info.channels)
    shown = [await owner.control.read_channel_fields(one, "STATUS") for one in channels]
    state = await owner.control.read_fields("TASK_STATE")
    spaces = [*owner.spaces]
    return {
        "bytes of memory": -server.free_bytes,
        "applications": len(server.applications),
        "address spaces": len(spaces),
        "ASIDs": sum(space.asid is not None for space in spaces),
        "channels": len(owner.channels),
        "enabled channels": sum(status["ENABLED"] | status["ACTIVE"] for status in shown),
        "tasks": sum(status["TASKS"] for status in shown),
        "busy compute engines": 1 - state["IDLE"],
        **_of_process(),
    }


async def kept(server: Server, before: dict[str, int]) -> dict[str, int]:
    """Increase of `holdings` since `before`, by name; negative for a decrease. Resources without a
    difference are left out. Call it when no application is connected. Waits up to 5 s for threads
    of ended connections."""
    until = time.monotonic() + _SECONDS
    while any(_of_process()[name] > before[name] for name in _of_process()):
        if time.monotonic() > until:
            break
        time.sleep(_POLL_SECONDS)
    now = await holdings(server)
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


def _of_process() -> dict[str, int]:
    """Resources of this process of the kinds that connections use."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    threads = threading.enumerate()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": sum(thread.name in THREADS for thread in threads),
        "shared segments": sum("/memfd:signalbox" in line for line in maps),
    }
