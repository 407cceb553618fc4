"""Common part of the flat algorithms: the host launches all kernels, in steps."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from signalbox.driver.compute.tasks import Task
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.nested.workspace import Workspace
from signalbox.driver.runtime.stream import Argument

__all__ = ["Flat", "FlatLaunch"]


@dataclass(frozen=True)
class FlatLaunch:
    """A launched kernel: its task, number of blocks, and number of threads per block."""

    task: Task
    blocks: int
    threads: int


class Flat(ABC):
    """A flat algorithm. The `start` of a subclass begins a run. Each `step` launches kernels, until
    the host has to read a result before it can launch more.

    Members
    -------
    workspace : its device, stream and buffers.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    @abstractmethod
    async def step(self, *, priority: int | None = None) -> list[FlatLaunch]:
        """Launch the next kernels; call it once all earlier ones have ended. Returns none if the
        algorithm is complete. `priority` and errors are those of `Stream.launch`."""

    async def launch(
        self,
        kernel: Kernel,
        blocks: int,
        threads: int,
        args: Mapping[str, Argument],
        *,
        priority: int | None,
        overlap: bool = False,
    ) -> FlatLaunch:
        """Launch a kernel; see `Stream.launch`. Raises as it does."""
        task = await self.workspace.stream.launch(
            kernel, blocks, threads, args, priority=priority, overlap=overlap
        )
        return FlatLaunch(task, blocks, threads)

    async def free(self) -> None:
        """Free its memory, results included, once nothing runs."""
        await self.workspace.free()
