"""Calls that are cancelled while they wait."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from signalbox.driver.device import Device
from signalbox.driver.runtime.stream import Stream

__all__ = ["MOMENTS", "close_stream_only", "interrupt"]

MOMENTS = [*range(12), 20, 30, 40, 60, 80, 100]
"""Turns of the event loop after which calls are cancelled."""


async def interrupt(call: Coroutine[Any, Any, Any], turns: int) -> None:
    """Cancel a call after `turns` turns of the event loop, unless it has ended by then. Raises the
    error of a call that fails."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def close_stream_only(device: Device, stream: Stream) -> None:
    """Cancel the closing of a stream while it waits to close its channel."""
    async with device.channels._changes(stream.channel.index):
        closing = asyncio.ensure_future(stream.close())
        while stream in device._streams:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
    assert closing.cancelled() and stream.channel in device.channels.values()
