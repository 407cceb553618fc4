"""The driver for scripts without asyncio: the same calls, which block until they are done.

    with blocking.connect("server.socket") as device:
        stream = device.stream()
        ...
        stream.synchronize()

Driver objects that calls return, or that are members of others, block in the same way; numbers,
arrays, buffers, memory and errors are as with asyncio. Threads can share a device. Calls raise
`ServerError` if they have not returned by the end of the `with` block, if they are made later, or
in a process forked from the one that has connected.
"""

import asyncio
import atexit
import inspect
import operator
import os
import threading
from collections.abc import (
    Callable,
    Coroutine,
    Generator,
    ItemsView,
    Iterator,
    Sequence,
    ValuesView,
)
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

from signalbox.driver.compute.tasks import Tasks
from signalbox.driver.device import Device
from signalbox.driver.protocol.errors import ServerError

__all__ = ["Blocking", "connect"]


class Blocking:
    """An object of the driver with blocking calls: each coroutine runs on an event loop until it
    ends.

    It has the members and items of `inner`, and equals other `Blocking` objects of the same
    `inner`.
    """

    def __init__(self, inner: Any, loop: "_Loop") -> None:
        self._inner, self._loop = inner, loop

    def __repr__(self) -> str:
        return f"Blocking({self._inner!r})"

    def __str__(self) -> str:
        return str(self._inner)

    def __eq__(self, other: object) -> bool:
        return self._inner is _plain(other)

    def __hash__(self) -> int:
        return hash(self._inner)

    def __bool__(self) -> bool:
        return bool(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, key: Any) -> Any:
        return self._call(operator.getitem, (self._inner, key), {})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._call(tuple, (self._inner,), {}))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise `TypeError`: neither the event loop nor the machine can be copied."""
        raise TypeError(f"{self!r} cannot be copied or pickled")

    def __getattr__(self, name: str) -> Any:
        return self._wrapped(getattr(self._inner, name))

    def _wrapped(self, value: Any) -> Any:
        if inspect.ismethod(value):
            return lambda *args, **options: self._call(value, args, options)
        if type(value) is tuple or isinstance(value, ValuesView | ItemsView):
            return tuple(map(self._wrapped, value))
        return Blocking(value, self._loop) if _blocks(type(value)) else value

    def _call(
        self, method: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        async def call() -> Any:
            plain = [_plain(one) for one in args]
            result = method(*plain, **{name: _plain(one) for name, one in options.items()})
            return self._wrapped(await result if isinstance(result, Coroutine) else result)

        return self._loop.result(call())


@cache
def _blocks(kind: type) -> bool:
    """Whether objects of a class have coroutine methods, or contain tasks, which have some."""
    members = (inspect.getattr_static(kind, name) for name in dir(kind) if name[0] != "_")
    return kind is Tasks or any(map(inspect.iscoroutinefunction, members))


class _Loop:
    """An event loop in a thread of its own, which runs calls of other threads until `end`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        # Held while a call is given to the loop. Reentrant, for calls of signal handlers.
        self._lock, self._ended = threading.RLock(), False
        self._process = os.getpid()
        self._thread.start()
        # The thread stops silently when Python ends: later calls would wait for ever.
        atexit.register(self.end)

    def result(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Run a call on the loop; returns its result. Raises `ServerError` if the loop ends first,
        or in another process, which does not have the thread."""
        if self._elsewhere:
            call.close()
            raise ServerError(f"the device belongs to process {self._process}, not to this one")
        with self._lock:
            if self._ended:
                call.close()
                raise ServerError("the device was closed before the call")
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ServerError("the device was closed during the call") from None

    def end(self) -> None:
        """Stop the loop and cancel the calls in progress. All calls given to it earlier have begun
        by then. Does nothing if it has ended, or in another process."""
        if self._elsewhere or self._ended:
            return
        atexit.unregister(self.end)
        with self._lock:
            self._ended = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def _elsewhere(self) -> bool:
        return os.getpid() != self._process

    def _run(self) -> None:
        """Run the loop until it is stopped, then cancel the calls in progress."""
        with asyncio.Runner(loop_factory=lambda: self._loop):
            self._loop.run_forever()


def _plain(value: Any) -> Any:
    """The driver's object behind a `Blocking`; other values unchanged."""
    return value._inner if isinstance(value, Blocking) else value


@contextmanager
def connect(
    path: str | Path, name: str = "", memory: int = 0, start: Sequence[str] | None = None
) -> Generator[Any]:
    """A device of the server at `path` for the duration of a `with` block, which closes it at its
    end. Parameters and errors are those of `Device.connect`."""
    loop = _Loop()
    try:
        device = loop.result(Device.connect(path, name, memory, start))
        try:
            yield Blocking(device, loop)
        except BaseException:
            with suppress(ServerError):  # the first error is the one to report
                loop.result(device.close())
            raise
        loop.result(device.close())
    finally:
        loop.end()
