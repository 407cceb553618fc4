"""Memory of one algorithm."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.runtime.stream import Stream

__all__ = ["Workspace"]


class Workspace:
    """Buffers of one algorithm on a stream.

    Members
    -------
    buffers : allocated buffers.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device, self.stream = device, stream
        self.buffers: list[Buffer] = []

    @classmethod
    @asynccontextmanager
    async def prepare(cls, device: Device, stream: Stream) -> AsyncGenerator[Self]:
        """Context manager for the preparation of an algorithm. Yields a workspace, and frees its
        buffers if the preparation fails."""
        made = cls(device, stream)
        try:
            yield made
        except BaseException:
            await made.free()
            raise

    async def buffer(self, content: np.ndarray) -> Buffer:
        """Allocate a buffer with this content, in the stream's space. Raises as `Device.upload`."""
        made = await self.device.upload(content, space=self.stream.space)
        self.buffers.append(made)
        return made

    async def free(self) -> None:
        """Free the buffers, once nothing runs. An interrupted call can be repeated. Raises as
        `Device.free`."""
        while self.buffers:
            await self.device.free(self.buffers[-1])
            self.buffers.pop()
