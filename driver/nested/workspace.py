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
    buffers : those that exist.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device, self.stream = device, stream
        self.buffers: list[Buffer] = []

    @classmethod
    @asynccontextmanager
    async def prepare(cls, device: Device, stream: Stream) -> AsyncGenerator[Self]:
        """Context for the preparation of an algorithm; its buffers are freed if that fails."""
        made = cls(device, stream)
        try:
            yield made
        except BaseException:
            await made.free()
            raise

    async def buffer(self, content: np.ndarray) -> Buffer:
        """A buffer with this content. Raises as `Device.upload`."""
        made = await self.device.upload(content, space=self.stream.space)
        self.buffers.append(made)
        return made

    async def free(self) -> None:
        """Free the buffers, once nothing runs. An interrupted call can be repeated."""
        while self.buffers:
            await self.device.free(self.buffers[-1])
            self.buffers.pop()
