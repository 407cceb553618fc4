"""Kernels that are launched by other kernels (NEST-10)."""

from signalbox.driver.compute.launch import KernelLaunch
from signalbox.driver.compute.program import Program
from signalbox.driver.compute.task_memory import TaskMemory
from signalbox.driver.memory.physical import MemoryUseError

__all__ = ["Child", "NestingError"]


class NestingError(ValueError):
    """The machine has no nested launches, or the kernel cannot be launched by others."""


class Child:
    """A kernel with its arguments, ready to be launched by kernels. Created by `Stream.child`, and
    registered in `known` by the address of its record until it is freed.

    As an argument of a kernel it stands for the address of its task record, which the instruction
    `launch` takes; a freed child raises `MemoryUseError`. Kernels may launch it again only after it
    is complete, because the machine may save the position of an evicted kernel in the record.

    Members
    -------
    program : the loaded kernel.
    record : virtual address of the task record.
    grid, block : sizes.
    """

    def __init__(
        self,
        program: Program,
        memory: TaskMemory,
        launch: KernelLaunch,
        known: "dict[int, Child]",
    ) -> None:
        self.program, self.record, self._memory = program, memory.va, memory
        self.grid, self.block, self._known = launch.grid, launch.block, known
        self._freed = False
        known[self.record] = self

    def __str__(self) -> str:
        return f"child {self.program.kernel.name!r} (record {self.record:#x})"

    def __index__(self) -> int:
        if self._freed:
            raise MemoryUseError(f"{self} was freed")
        return self.record

    def free(self) -> None:
        """Free record and arguments, once all kernels that may launch it have ended. Raises
        `MemoryUseError` if they are already freed."""
        if self._freed:
            raise MemoryUseError(f"{self} is freed twice")
        self._freed = True
        self._known.pop(self.record, None)
        self._memory.free()
