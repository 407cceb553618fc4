"""Tasks that were launched, and how each has ended (HOST-10)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver.fence import Fence
from driver.program import Program
from driver.taskerror import TaskError, TaskLost
from driver.taskmemory import TaskMemory

if TYPE_CHECKING:
    from driver.stream import Stream

__all__ = ["Task", "Tasks"]


@dataclass(eq=False)
class Task:
    """One launch. Made by `Stream.launch`.

    Members
    -------
    name : of its kernel. record : virtual address of its record.
    stream : where it was launched; the channel in which it was is `channel`.
    failure : why it is over without being complete.
    """

    program: Program
    stream: "Stream"
    memory: TaskMemory
    fence: Fence
    failure: TaskError | TaskLost | None = None

    def __post_init__(self) -> None:
        self.channel = self.stream.channel
        self.record = self.memory.va
        self._value = self.fence.submitted
        self._behind: tuple[Fence, int] | None = None
        self._ended, self._time = False, 0

    def __str__(self) -> str:
        return f"task {self.name!r} (record {self.record:#x}) of {self.stream}"

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
        if not self.over and self._behind is None:
            await self.stream.record_fence()
        await self.stream.device.wait_for(lambda: self.over, (self.channel,))
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
        self.memory.free()
        self.stream.device.fences(self.stream.space).give(self.fence)


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
