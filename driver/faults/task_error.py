"""Why a channel halted for a task, in words (HOST-10): the kernel, its record, what was wrong."""

from dataclasses import dataclass, fields

from signalbox.driver.faults.channel_error import ChannelError
from signalbox.driver.faults.warp_fault import WarpFault
from signalbox.hw.qmd import SkedCheck

__all__ = ["TaskError", "TaskLost"]

_CHECKS = {
    SkedCheck.LOCAL_MEMORY: "it asks for local memory, which this machine lacks",
    SkedCheck.REGISTER_COUNT: "registers per thread outside 1 … 255",
    SkedCheck.THREADS: "a block of more than 1024 threads",
    SkedCheck.PROGRAM: "the program is not on a multiple of 8",
    SkedCheck.SHARED_MEMORY: "a block needs more shared memory than an SM has",
    SkedCheck.DIMENSION_ZERO: "a grid or a block without extent",
    SkedCheck.REGISTERS: "a block needs more registers than an SM has",
    SkedCheck.QUEUE_GET_PUT: "more entries in a queue than it has room for, or it is closed",
    SkedCheck.QUEUE_SIZE: "the size of a queue: a power of two, not less than a block takes",
    SkedCheck.RESUME: "it goes on outside its grid",
    SkedCheck.SPAN: "entries that do not follow those before them were appended to a queue",
    SkedCheck.WARPS: "a block needs more warps than an SM has",
    SkedCheck.DEPENDENCE: "the dependence counter",
}


@dataclass
class TaskError(ChannelError):
    """A channel halted since a task was refused, or failed.

    Members
    -------
    kernel : name of the kernel; empty for a task that was not launched by `Stream.launch`.
    check : what is wrong with the record, by its public number; NONE with other causes.
    warp : the warp that could not go on; None with other causes, or when the machine told only of
        other tasks'.
    place : where its instruction comes from, in words, if known.
    """

    kernel: str = ""
    check: SkedCheck = SkedCheck.NONE
    warp: WarpFault | None = None
    place: str = ""

    @classmethod
    def of(
        cls, error: ChannelError, kernel: str, check: int, warp: WarpFault | None, place: str
    ) -> "TaskError":
        """What `error` is about."""
        known = SkedCheck(check) if check in set(SkedCheck) else SkedCheck.NONE
        values = {field.name: getattr(error, field.name) for field in fields(ChannelError)}
        return cls(**values, kernel=kernel, check=known, warp=warp, place=place)

    @property
    def record(self) -> int:
        """Virtual address of the task's record."""
        return self.va

    @property
    def details(self) -> list[str]:
        """See `ChannelError.details`."""
        named = f"task {self.kernel!r}" if self.kernel else "a task"
        parts = [f"{named} (record {self.record:#x})"]
        if self.check is not SkedCheck.NONE:
            parts.append(f"SKEDCHECK {self.check.value} {self.check.name}: {_CHECKS[self.check]}")
        if self.warp is not None:
            parts.append(self.warp.text(self.place))
        return parts


@dataclass
class TaskLost(Exception):
    """Nothing tells how a task has ended: it failed while more errors of its channel were waiting
    than the machine keeps, its channel was closed, or the machine lost it."""

    kernel: str
    record: int

    def __str__(self) -> str:
        return (
            f"task {self.kernel!r} (record {self.record:#x}) is over without its release: it "
            "failed, was stopped with its channel, or was lost"
        )
