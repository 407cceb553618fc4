"""A server of the fake machine, with clients in the same process."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from signalbox.driver.device import Device
from signalbox.driver.runtime.stream import Stream
from signalbox.driver.server.in_process import LocalInbox, LocalLink
from signalbox.driver.server.journal import Journal
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import Config
from signalbox.tb.driver.compute_bodies import addition, check
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

__all__ = ["SMALL", "Body", "Session", "serve", "session"]

SMALL: dict[str, Any] = {"applications": 6, "memory_each": 1 << 19, "launches_each": 8}
"""Settings with room for several applications in the memory of the fake machine."""


@dataclass
class Session:
    """A running server.

    Members
    -------
    links : connections of the clients, by device.
    running : the server's main loop.
    journal : the server's journal.
    """

    server: Server
    machine: FakeMachine
    inbox: LocalInbox
    links: dict[Device, LocalLink]
    running: asyncio.Future[None]
    journal: Journal

    async def client(self, name: str = "client", size: int = 0) -> Device:
        """A device of a new client."""
        link = LocalLink(self.machine, self.inbox)
        device = await link.device(name, size)
        self.links[device] = link
        return device

    def kill(self, device: Device) -> None:
        """End a client's connection without notice."""
        self.links[device].close()

    async def works(self, device: Device, stream: Stream | None = None, seed: int = 1) -> None:
        """Check that a client gets its work done."""
        task, args = await addition(device, stream or await device.stream(), seed)
        await task.synchronize()
        check(args)
        for name in "ABC":
            await device.free(args[name])

    async def close(self) -> None:
        """Close the devices that are still open."""
        for device, link in self.links.items():
            if link.open:
                await device.close()

    async def settle(self, applications: int = 0) -> None:
        """Wait until `applications` applications are left."""
        for _ in range(20_000):
            if len(self.server.applications) == applications:
                return
            await self.machine.wait_cycles(10)
        raise AssertionError(f"{len(self.server.applications)} applications are left")


Body = Callable[[Session], Coroutine[Any, Any, None]]


@asynccontextmanager
async def session(
    settings: ServerSettings, config: Config, *, until_left: bool = False
) -> AsyncGenerator[Session, None]:
    """A server for the duration of an `async with` block."""
    machine = FakeMachine(config, idle_limit=1 << 62, memory=bytearray(config.memory_bytes))
    inbox, journal = LocalInbox(machine), Journal(machine.now)
    server = await Server.open(machine, settings, inbox, asyncio.ensure_future, journal)
    running = asyncio.ensure_future(server.run(until_left=until_left))
    try:
        yield Session(server, machine, inbox, {}, running, journal)
    finally:
        inbox.put(Stop())
        await running


def serve(body: Body, *, config: dict[str, Any] | None = None, **settings: Any) -> None:
    """Run a body with a server, and close the devices that it leaves open. Then no client's memory,
    channels or address spaces may remain."""
    sizes = {"memory_bytes": SPACE, "channels": 16, "contexts": 1, **(config or {})}
    chosen = Config(**sizes)

    async def main() -> None:
        async with session(ServerSettings(**{**SMALL, **settings}), chosen) as one:
            server = one.server
            free, spaces = server.free_bytes, len([*server.device.spaces])
            working = asyncio.ensure_future(body(one))
            wanted = {working, one.running}
            await asyncio.wait(wanted, timeout=HANGS, return_when=asyncio.FIRST_COMPLETED)
            if one.running.done():
                raise AssertionError("the server has ended") from one.running.exception()
            await asyncio.wait_for(working, 0)
            await one.close()
        assert not server.applications and not server.owner.channels
        assert server.free_bytes == free, (server.free_bytes, free)
        assert len([*server.device.spaces]) == spaces
        left = [] if server.owner.compute is None else [*server.device.engine.contexts]
        assert all(one is server.contexts.universal for one in left)
        assert not any(server.device.engine.contexts.spaces(one) for one in left)

    asyncio.run(main())
