"""Calls that are cancelled while they wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

__all__ = ["MOMENTS", "interrupt"]

MOMENTS = [*range(12), 20, 30, 40, 60, 80, 100]
"""Turns of the event loop after which calls are cancelled."""


async def interrupt(call: Coroutine[Any, Any, Any], turns: int) -> None:
    """Cancel a call after turns of the event loop, unless it has ended by then."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
