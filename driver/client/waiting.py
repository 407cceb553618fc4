"""Blocking calls beside an event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

__all__ = ["beside"]

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")


async def beside(
    call: Callable[_Options, _Result], *args: _Options.args, **options: _Options.kwargs
) -> _Result:
    """Result of a blocking call, made in a new thread. If the caller is cancelled, neither the
    event loop nor the end of the process waits for the call; with `asyncio.to_thread` they
    would."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(call(*args, **options))
        except BaseException as error:  # the caller's
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(future)
