"""Errors of tasks, which halt their channel; and tasks with an unknown outcome (HOST-10)."""

from dataclasses import dataclass, fields

from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.warp_fault import WarpFault
from signalbox.hw.qmd import SkedCheck

__all__ = ["Ancestor", "TaskError", "TaskLost"]

_CHECKS = {
    SkedCheck.LOCAL_MEMORY_LOW: "size LOW of the local memory is not a multiple of 16",
    SkedCheck.LOCAL_MEMORY_HIGH: "size HIGH of the local memory is not a multiple of 16",
    SkedCheck.LOCAL_MEMORY: "the channel has no area of local memory large enough",
    SkedCheck.REGISTER_COUNT: "registers per thread outside 1 … 255",
    SkedCheck.THREADS: "a block of more than 1024 threads",
    SkedCheck.PROGRAM: "the program address is not a multiple of 8",
    SkedCheck.SHARED_MEMORY: "a block needs more shared memory than an SM has",
    SkedCheck.THREAD_DIMENSION_ZERO: "a dimension of the block is 0",
    SkedCheck.REGISTERS: "a block needs more registers than an SM has",
    SkedCheck.QUEUE_GET_PUT: "a queue has more entries than it can hold, or is closed",
    SkedCheck.QUEUE_SIZE: "the size of a queue is not a power of two, or less than a block takes",
    SkedCheck.RESUME: "its resume point is outside its grid",
    SkedCheck.SPAN: "entries appended to a queue do not follow the earlier ones",
    SkedCheck.WARPS: "a block needs more warps than an SM has",
    SkedCheck.DEPENDENCE: "the dependence counter",
}


@dataclass(frozen=True)
class Ancestor:
    """A kernel with a failed or refused descendant. `kernel` is its name, empty if unknown;
    `record` is the virtual address of its task record."""

    kernel: str
    record: int

    def __str__(self) -> str:
        return f"{self.kernel!r} (record {self.record:#x})" if self.kernel else f"{self.record:#x}"


@dataclass
class TaskError(ChannelError):
    """A channel has halted because a task was refused or failed.

    Members
    -------
    kernel : name of the kernel; empty if the driver has not loaded it.
    check : failed check of the record, by its public number; NONE for other causes.
    warp : the warp that faulted; None for other causes, or if the machine recorded only warps of
        other tasks.
    place : source line of the faulting instruction, as text; empty if unknown.
    parents : the kernels above it, nearest first, up to the kernel launched by the host; empty for
        a task of the host (NEST-10).
    """

    kernel: str = ""
    check: SkedCheck = SkedCheck.NONE
    warp: WarpFault | None = None
    place: str = ""
    parents: tuple[Ancestor, ...] = ()

    @classmethod
    def of(cls, error: ChannelError, check: int, warp: WarpFault | None) -> "TaskError":
        """Build a `TaskError` from `error`, the failed check and the faulting warp."""
        known = SkedCheck(check) if check in set(SkedCheck) else SkedCheck.NONE
        values = {field.name: getattr(error, field.name) for field in fields(ChannelError)}
        return cls(**values, check=known, warp=warp)

    @property
    def record(self) -> int:
        """Virtual address of the task's record."""
        return self.va

    @property
    def root(self) -> int:
        """Virtual address of the record of the host's task to which the failed task belongs."""
        return self.parents[-1].record if self.parents else self.record

    @property
    def details(self) -> list[str]:
        """See `ChannelError.details`."""
        named = f"task {self.kernel!r}" if self.kernel else "a task"
        above = "".join(f", launched by {one}" for one in self.parents)
        parts = [f"{named} (record {self.record:#x}){above}"]
        if self.check is not SkedCheck.NONE:
            parts.append(f"SKEDCHECK {self.check.value} {self.check.name}: {_CHECKS[self.check]}")
        if self.warp is not None:
            parts.append(self.warp.text(self.place))
        return parts


@dataclass
class TaskLost(Exception):
    """A task has ended, but its outcome is unknown: it failed while the machine could record no
    more errors of its channel, its channel was closed, or the machine lost it."""

    kernel: str
    record: int

    def __str__(self) -> str:
        return (
            f"task {self.kernel!r} (record {self.record:#x}) has ended without its release: it "
            "failed, was stopped with its channel, or was lost"
        )
