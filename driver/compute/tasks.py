"""Launched tasks and their outcome (HOST-10)."""

from collections.abc import Callable, Iterator
from typing import Protocol

from signalbox.driver.compute.local_memory import LocalMemory
from signalbox.driver.compute.program import Program
from signalbox.driver.compute.task_memory import TaskMemory
from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.task_error import TaskError, TaskLost
from signalbox.driver.memory.fence import Fence, FencePool

__all__ = ["CANCEL_CYCLES", "Task", "Tasks", "Waiter"]

CANCEL_CYCLES = 100_000
"""Default patience of `Task.cancel`, in cycles."""


class Waiter(Protocol):
    """The stream and channel of a task, as needed to wait for its end. `str` gives its name."""

    async def fence(self) -> None:
        """Submit a fence after the task."""
        ...

    async def wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until `done()`. Raises `ChannelError` if the task's channel halts."""
        ...

    async def check(self) -> None:
        """Raise the `ChannelError` that halts the task's channel, if any."""
        ...

    async def cancel(self, task: "Task", patience: int) -> None:
        """Kill the task, wherever it is. `patience` and errors as for `Stream.cancel`."""
        ...


class Task:
    """One launch. Created by `Launcher.prepare`, for `Stream.launch`.

    Members
    -------
    program : the loaded kernel.
    memory : record and arguments.
    fence : released on completion.
    record : virtual address of the task record.
    failure : why the task ended without completing, or None.
    below : error of the descendant that failed first, or None.
    nested : whether it may launch others.
    launched : whether its launch is on a channel, so that only the task's end frees its memory.
    cancelled : whether it is to be killed; the channel then continues after it without an error.
    """

    def __init__(
        self,
        program: Program,
        memory: TaskMemory,
        fence: Fence,
        fences: FencePool,
        local: LocalMemory | None = None,
        *,
        nested: bool = False,
    ) -> None:
        self.program, self.memory, self.fence, self.local = program, memory, fence, local
        self.record = memory.va
        self.failure: TaskError | TaskLost | None = None
        self.below: TaskError | None = None
        self.nested = nested
        self.launched = self.cancelled = False
        self._fences = fences
        self._waiter: Waiter | None = None
        self._value = fence.submitted
        self._behind: tuple[Fence, int] | None = None
        self._ended, self._time = False, 0
        self._keepers = 0

    def __str__(self) -> str:
        place = "" if self._waiter is None else f" of {self._waiter}"
        return f"task {self.name!r} (record {self.record:#x}){place}"

    def submitted(self, waiter: Waiter) -> None:
        """Note that the task is being submitted; `waiter` is used to wait for its end."""
        self._waiter = waiter

    def discard(self) -> None:
        """Free memory and fence, which the machine must not be using."""
        self.memory.free()
        self._fences.give(self.fence)

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.program.kernel.name

    @property
    def over(self) -> bool:
        """Whether the task is known to have ended, completed or not."""
        if self._ended or self.failure is not None or self._complete:
            return True
        return self._behind is not None and self._behind[0].reached(self._behind[1])

    @property
    def ended(self) -> bool:
        """Whether its end has been noted. Its memory is then free, unless it is kept."""
        return self._ended

    @property
    def _complete(self) -> bool:
        return self.fence.reached(self._value)

    def query(self) -> bool:
        """Whether the task has ended, with all its descendants. Raises `TaskError` or `TaskLost` if
        the task or a descendant is known to have failed: see `synchronize`."""
        if not self.over:
            return False
        self.end()
        if (failure := self.failure or self.below) is not None:
            raise failure
        return True

    async def synchronize(self) -> None:
        """Wait until the task has ended, with all its descendants. Raises `ChannelError` if its
        channel halts for any reason, `TaskError` or `TaskLost` if the task or a descendant failed.
        """
        waiter = self._waiter
        assert waiter is not None, "it was submitted"
        if not self.over:
            await self.fence_behind()
        await waiter.wait_for(lambda: self.over)
        if self.nested and not self._ended:
            await waiter.check()
        self.query()

    async def cancel(self, *, patience: int = CANCEL_CYCLES) -> None:
        """Kill the task, if it has not ended, and its descendants (`Launcher.kill_tree`). Returns
        once the task has ended; `synchronize` then raises a `TaskError`, and the stream continues
        after the task. `patience` and errors as for `Stream.cancel`."""
        waiter = self._waiter
        assert waiter is not None, "it was submitted"
        await waiter.cancel(self, patience)

    @property
    def time_ns(self) -> int:
        """PTIMER of its completion, in ns; 0 before that, or if the task failed."""
        if self._ended:
            return self._time
        return self.fence.time_ns if self._complete else 0

    def keep(self) -> None:
        """Keep the task's memory, so that its record identifies it, until a matching `give`."""
        self._keepers += 1

    @property
    def kept(self) -> bool:
        """Whether there is a `keep` without a matching `give`."""
        return self._keepers > 0

    def give(self) -> None:
        """End a `keep`; the last one frees the memory, if the task has ended."""
        self._keepers -= 1
        if self._ended and not self._keepers:
            self.discard()

    async def fence_behind(self) -> None:
        """Submit a fence after the task, unless there is one, so that `over` becomes true even if
        the task fails without a record of its error."""
        waiter = self._waiter
        if waiter is not None and self._behind is None:
            await waiter.fence()

    def fenced(self, fence: Fence, value: int) -> None:
        """Note that `fence` is released with `value` after the task has ended."""
        self._behind = self._behind or (fence, value)

    def end(self) -> None:
        """Note that the task has ended, and free its memory. A task that has neither completed nor
        failed counts as lost."""
        if self._ended:
            return
        if self.failure is None and not self._complete:
            self.failure = TaskLost(self.name, self.record)
        self._time = self.time_ns
        self._ended = True
        if not self._keepers:
            self.discard()


class Tasks:
    """Tasks of one channel that may still be running, in order of launch."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        """In order of launch."""
        return iter([*self._tasks.values()])

    def launched(self, task: Task) -> None:
        """Add a submitted task, and drop those that have ended."""
        self.reap()
        self._tasks[task.record] = task
        task.launched = True

    def fenced(self, fence: Fence, value: int) -> None:
        """Note that `fence` is released with `value` after all current tasks have ended."""
        for task in self._tasks.values():
            task.fenced(fence, value)

    def find(self, record: int) -> Task | None:
        """The task with a record at this address, or None."""
        return self._tasks.get(record)

    def of(self, error: ChannelError) -> Task | None:
        """The task that has failed, or that has a failed descendant; None if there is none."""
        return self.find(error.root if isinstance(error, TaskError) else error.va)

    def failed(self, error: TaskError) -> None:
        """Note the failure of a task or of a descendant of one, or that its launch was skipped."""
        task = self.of(error)
        if task is not None and error.parents:
            task.below = task.below or error
        elif task is not None and not task.over:
            task.failure = error

    def reap(self) -> None:
        """End the leading tasks that are over."""
        for record, task in list(self._tasks.items()):
            if not task.over:
                return
            task.end()
            del self._tasks[record]

    def end(self) -> None:
        """End all tasks, once the channel is disabled and idle."""
        for task in self._tasks.values():
            task.end()
        self._tasks.clear()
