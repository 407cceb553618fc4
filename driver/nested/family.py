"""What algorithms with nested launches have in common: their children and status."""

from collections.abc import AsyncGenerator
from collections.abc import Mapping as Values
from contextlib import asynccontextmanager

import numpy as np

from signalbox.driver.compute.child import Child
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.workspace import Workspace
from signalbox.driver.runtime.stream import Argument, Stream
from signalbox.hw.errors import Refusal

__all__ = ["STATUS", "Family", "LaunchRefused"]

STATUS = """
    ldc   r24, [STATUS]
    ldc   r25, [STATUS + 4]
    stg   [r24], r23
"""
"""Stores r23, an answer of `launch`, as status."""


class LaunchRefused(RuntimeError):
    """A kernel could not launch one of its children, so the result is not complete.

    Members
    -------
    answer : the answer to the last one that was refused: the `Refusal`, and the number of its
        check << 8.
    """

    def __init__(self, answer: int) -> None:
        reasons = {one.value: one.name for one in Refusal}
        name = reasons.get(answer & 0xFF, f"answer {answer:#x}")
        super().__init__(f"a kernel could not launch one of its children: {name}")
        self.answer = answer


class Family(Workspace):
    """Children and buffers of one algorithm on a stream. `status` is a word of memory in which
    kernels store answers other than 0 to their launches."""

    status: Buffer

    def __init__(self, device: Device, stream: Stream) -> None:
        super().__init__(device, stream)
        self._children: list[Child] = []

    @classmethod
    @asynccontextmanager
    async def prepare(cls, device: Device, stream: Stream) -> "AsyncGenerator[Family]":
        """See `Workspace.prepare`. Raises as `Device.upload`."""
        async with super().prepare(device, stream) as family:
            family.status = await family.buffer(np.zeros(1, np.uint32))
            yield family

    async def child(
        self, kernel: Kernel, grid: int, block: int, args: Values[str, Argument]
    ) -> Child:
        """Prepare a child; see `Stream.child`. STATUS is an argument of all kernels."""
        made = await self.stream.child(kernel, grid, block, {**args, "STATUS": self.status})
        self._children.append(made)
        return made

    async def run(self, kernel: Kernel, block: int, args: Values[str, Argument]) -> None:
        """Launch the root, one block, and wait for it and all its descendants. Raises
        `LaunchRefused`, and as `Stream.launch` and `Task.synchronize`."""
        self.status.write(bytes(4))
        task = await self.stream.launch(kernel, 1, block, {**args, "STATUS": self.status})
        await task.synchronize()
        if answer := int(self.status.read(np.uint32, 1)[0]):
            raise LaunchRefused(answer)

    async def free(self) -> None:
        """Free records and buffers, once nothing runs."""
        for child in self._children:
            child.free()
        await super().free()
