"""Tasks that were launched, and how each has ended (HOST-10)."""

from collections.abc import Callable
from typing import Protocol

from signalbox.driver.compute.program import Program
from signalbox.driver.compute.task_memory import TaskMemory
from signalbox.driver.faults.task_error import TaskError, TaskLost
from signalbox.driver.memory.fence import Fence, FencePool

__all__ = ["Task", "Tasks", "Waiter"]


class Waiter(Protocol):
    """Where a task was submitted, as far as waiting for its end goes. `str` names the place."""

    async def fence(self) -> None:
        """Submit a fence behind the task."""
        ...

    async def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until `done()`. Raises `ChannelError` when the task's channel has halted."""
        ...


class Task:
    """One launch. Made by `Stream.launch`.

    Members
    -------
    program : its kernel, in its address space. record : virtual address of its record.
    failure : why it is over without being complete.
    """

    def __init__(
        self, program: Program, memory: TaskMemory, fence: Fence, fences: FencePool
    ) -> None:
        self.program, self.memory, self.fence = program, memory, fence
        self.record = memory.va
        self.failure: TaskError | TaskLost | None = None
        self._fences = fences
        self._waiter: Waiter | None = None
        self._value = fence.submitted
        self._behind: tuple[Fence, int] | None = None
        self._ended, self._time = False, 0

    def __str__(self) -> str:
        place = "" if self._waiter is None else f" of {self._waiter}"
        return f"task {self.name!r} (record {self.record:#x}){place}"

    def submitted(self, waiter: Waiter) -> None:
        """It is being submitted; `waiter` waits for its end."""
        self._waiter = waiter

    def discard(self) -> None:
        """Give its memory and its fence back; the machine does not use them, or never did."""
        self.memory.free()
        self._fences.give(self.fence)

    @property
    def name(self) -> str:
        """Name of its kernel."""
        return self.program.kernel.name

    @property
    def over(self) -> bool:
        """Whether it has ended, complete or not, as far as the driver knows."""
        if self._ended or self.failure is not None or self._complete:
            return True
        return self._behind is not None and self._behind[0].reached(self._behind[1])

    @property
    def _complete(self) -> bool:
        return self.fence.reached(self._value)

    def query(self) -> bool:
        """Whether it is over. Raises `TaskError` or `TaskLost` when it failed."""
        if not self.over:
            return False
        self.end()
        if self.failure is not None:
            raise self.failure
        return True

    async def synchronize(self) -> None:
        """Wait until it is over. Raises `ChannelError` when its channel halted, for this task or
        something else; `TaskError` or `TaskLost` when the task has failed."""
        waiter = self._waiter
        assert waiter is not None, "it was submitted"
        if not self.over and self._behind is None:
            await waiter.fence()
        await waiter.wait_for(lambda: self.over)
        self.query()

    @property
    def time_ns(self) -> int:
        """PTIMER of its end; 0 while it is not over, or when it failed."""
        if self._ended:
            return self._time
        return self.fence.time_ns if self._complete else 0

    def fenced(self, fence: Fence, value: int) -> None:
        """`fence` is released with `value` after its end."""
        self._behind = self._behind or (fence, value)

    def end(self) -> None:
        """It is over: its memory is given back."""
        if self._ended:
            return
        if self.failure is None and not self._complete:
            self.failure = TaskLost(self.name, self.record)
        self._time = self.time_ns
        self._ended = True
        self.discard()


class Tasks:
    """Those of one channel that may not be over, in the order of their launches."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def launched(self, task: Task) -> None:
        """A task was submitted. What is over by now is forgotten."""
        self.reap()
        self._tasks[task.record] = task

    def fenced(self, fence: Fence, value: int) -> None:
        """A fence was submitted that is released when all of them are over."""
        for task in self._tasks.values():
            task.fenced(fence, value)

    def find(self, record: int) -> Task | None:
        """The task of a record."""
        return self._tasks.get(record)

    def failed(self, error: TaskError) -> None:
        """A task failed, or its launch was given up."""
        task = self.find(error.record)
        if task is not None and not task.over:
            task.failure = error

    def reap(self) -> None:
        """End the first ones, as far as they are over."""
        for record, task in list(self._tasks.items()):
            if not task.over:
                return
            task.end()
            del self._tasks[record]

    def end(self) -> None:
        """The channel is switched off and at rest."""
        for task in self._tasks.values():
            task.end()
        self._tasks.clear()
