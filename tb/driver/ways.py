"""Ways in which an application uses a machine. Tests of the driver's public API run in each way.

    @EVERYWHERE
    def test_copy(way: Way):
        async def body(device, machine): ...

        way.run(body)

The fixture `way` is in `conftest.py`.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from signalbox.driver import blocking
from signalbox.driver.device import Device
from signalbox.driver.server.in_process import LocalInbox, LocalLink
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.hw.config import Config
from signalbox.tb.driver.fakes.machine import SPACE, FakeMachine
from signalbox.tb.driver.hangs import HANGS

__all__ = ["EVERYWHERE", "IN_PROCESS", "BlockingWay", "Body", "OwnWay", "ServedWay", "Way"]

Body = Callable[[Any, FakeMachine], Coroutine[Any, Any, None]]

EVERYWHERE = pytest.mark.parametrize("way", ["own", "served", "blocking"], indirect=True)
"""Mark of a test with a body that uses only the public API."""

IN_PROCESS = pytest.mark.parametrize("way", ["own", "served"], indirect=True)
"""Mark of a test with a body that also looks into the machine, or relies on the event loop."""


class Way(Protocol):
    """A way of using a machine."""

    def run(self, body: Body) -> None:
        """Run `body(device, machine)` on a machine in its initial state."""
        ...


class OwnWay:
    """The device opens the machine itself."""

    def run(self, body: Body) -> None:
        """See `Way.run`."""

        async def main() -> None:
            machine = FakeMachine()
            device = await Device.open(machine)
            await asyncio.wait_for(body(device, machine), HANGS)

        asyncio.run(main())


class ServedWay:
    """The device is the only client of a server in the same process. Afterwards the server must
    have all memory and channels back."""

    def run(self, body: Body) -> None:
        """See `Way.run`."""
        asyncio.run(self._main(body))

    async def _main(self, body: Body) -> None:
        config = Config(memory_bytes=SPACE, contexts=1)
        machine = FakeMachine(config, idle_limit=1 << 62, memory=bytearray(SPACE))
        settings, inbox = ServerSettings(applications=1, memory_each=5 << 20), LocalInbox(machine)
        server = await Server.open(machine, settings, inbox, asyncio.ensure_future)
        running, free = asyncio.ensure_future(server.run()), server.free_bytes
        try:
            device = await LocalLink(machine, inbox).device("client")
            working = asyncio.ensure_future(body(device, machine))
            ends = asyncio.FIRST_COMPLETED
            await asyncio.wait({working, running}, timeout=HANGS, return_when=ends)
            await asyncio.wait_for(working, 0)
            await device.close()
            while server.applications:
                await machine.wait_cycles(10)
            assert server.free_bytes == free and not server.owner.channels
        finally:
            inbox.put(Stop())
            await running


class BlockingWay:
    """The device uses the blocking API, as a client of the server at socket `path`, in another
    process. Calls are made in threads, so that the body can make several at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def run(self, body: Body) -> None:
        """See `Way.run`. The machine is None."""
        none: Any = None
        with blocking.connect(self._path, "client", 5 << 20) as device:
            asyncio.run(asyncio.wait_for(body(_Awaited(device), none), HANGS))


class _Awaited:
    """Makes a `Blocking` object usable in a body for asyncio: methods that are coroutines in the
    API for asyncio are coroutines here, too."""

    def __init__(self, inner: blocking.Blocking) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return _awaited(value)
        if inspect.iscoroutinefunction(getattr(type(self._inner._inner), name, None)):
            return lambda *args, **options: self._later(value, args, options)
        return lambda *args, **options: self._now(value, args, options)

    def __eq__(self, other: object) -> bool:
        return self._inner == _blocking(other)

    def __hash__(self) -> int:
        return hash(self._inner)

    def _now(self, call: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        plain = {name: _blocking(one) for name, one in options.items()}
        return _awaited(call(*map(_blocking, args), **plain))

    async def _later(self, call: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return await asyncio.to_thread(self._now, call, args, options)


def _awaited(value: Any) -> Any:
    return _Awaited(value) if isinstance(value, blocking.Blocking) else value


def _blocking(value: Any) -> Any:
    return value._inner if isinstance(value, _Awaited) else value
