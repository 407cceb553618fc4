"""Common part of algorithms with nested launches: children and status."""

from collections.abc import AsyncGenerator
from collections.abc import Mapping as Values
from contextlib import asynccontextmanager

import numpy as np

from signalbox.driver.compute.child import Child
from signalbox.driver.compute.tasks import Task
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
"""Stores r23, the answer to a `launch`, at address STATUS."""


class LaunchRefused(RuntimeError):
    """A kernel could not launch one of its children, so the result is not complete.

    Members
    -------
    answer : answer to the last refused launch: the `Refusal`, plus the number of the failed
        check << 8.
    """

    def __init__(self, answer: int) -> None:
        reasons = {one.value: one.name for one in Refusal}
        name = reasons.get(answer & 0xFF, f"answer {answer:#x}")
        super().__init__(f"a kernel could not launch one of its children: {name}")
        self.answer = answer


class Family(Workspace):
    """Children and buffers of one algorithm on a stream.

    Members
    -------
    status : buffer of one word. Kernels store the answer to a refused launch there; 0 without one.
    children : kernels prepared to be launched by other kernels.
    """

    status: Buffer

    def __init__(self, device: Device, stream: Stream) -> None:
        super().__init__(device, stream)
        self.children: list[Child] = []

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
        """Prepare a child. Raises as `Stream.child`. Its arguments are `args` and the address of
        `status`, as STATUS."""
        made = await self.stream.child(kernel, grid, block, {**args, "STATUS": self.status})
        self.children.append(made)
        return made

    async def launch(
        self,
        kernel: Kernel,
        block: int,
        args: Values[str, Argument],
        *,
        priority: int | None = None,
    ) -> Task:
        """Launch the root as one block of `block` threads. Its arguments are as for `child`. The
        task is complete when the root and all its descendants are. Raises as `Stream.launch`."""
        self.status.write(bytes(4))
        args = {**args, "STATUS": self.status}
        return await self.stream.launch(kernel, 1, block, args, priority=priority)

    async def finish(self, task: Task) -> None:
        """Wait until the task of a root is complete. Raises as `check` and `Task.synchronize`."""
        await task.synchronize()
        self.check()

    def check(self) -> None:
        """Raise `LaunchRefused` if a launch by one of the kernels was refused. Call it once the
        root is complete."""
        if answer := int(self.status.read(np.uint32, 1)[0]):
            raise LaunchRefused(answer)

    async def free(self) -> None:
        """Free the records of the children and the buffers, once nothing runs. An interrupted call
        can be repeated."""
        while self.children:
            self.children.pop().free()
        await super().free()
