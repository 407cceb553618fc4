"""Outcome of a workload's run: when each copy and kernel ran, and in which address spaces."""

from dataclasses import dataclass

from signalbox.driver.workload.repairs import FaultRecord
from signalbox.driver.workload.specs import Workload

__all__ = ["ChildRecord", "CopyRecord", "KernelRecord", "Result", "SpaceRecord", "WorkRecord"]


@dataclass(frozen=True, kw_only=True)
class WorkRecord:
    """Outcome of a copy or kernel. Times are in cycles from the start of the run.

    Members
    -------
    name, index : series, and index in it.
    stream, channel, priority : where and how it ran.
    requested : time of the request according to the file.
    submitted : time of the doorbell.
    ready : the later of `submitted` and the end of the last dependency.
    completed : time of its end.
    behind : (series, index) of the other work that it waits for because of a NULL stream, in the
        order of these waits.
    """

    name: str
    index: int
    stream: str
    channel: int
    priority: int
    requested: int
    submitted: int
    ready: int
    completed: int
    behind: tuple[tuple[str, int], ...] = ()

    @property
    def latency(self) -> int:
        """Cycles from `ready` to `completed`."""
        return self.completed - self.ready


@dataclass(frozen=True, kw_only=True)
class CopyRecord(WorkRecord):
    """A copy of `size` bytes; `completed` is when its last byte was written."""

    size: int


@dataclass(frozen=True, kw_only=True)
class KernelRecord(WorkRecord):
    """A kernel launched by the driver, with the parameters of its launch.

    Members
    -------
    completed : time of the event after the kernel; for a flat algorithm, of the task's own end.
    asid, page : its task record is at virtual address `page` << 8 of address space `asid`.
    cancelled : whether it was cancelled, because it had not ended by `KernelSpec.cancel_at`.
    step : number of a kernel of a flat algorithm, from 1 on; 0 for others.
    """

    kernel: str
    asid: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    page: int
    cancelled: bool = False
    step: int = 0


@dataclass(frozen=True, kw_only=True)
class ChildRecord:
    """A kernel that other kernels may launch, any number of times. Its task record is at virtual
    address `page` << 8 of address space `asid`. `title` : its name in the file, with its index in a
    series; "" for kernels of an algorithm."""

    title: str
    kernel: str
    asid: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    page: int


@dataclass(frozen=True)
class SpaceRecord:
    """An address space of streams, or of the task lists.

    Members
    -------
    addresses : (first, last) virtual addresses of the streams' memory, ascending; none for the
        task lists.
    """

    name: str
    asid: int
    addresses: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Result:
    """A finished and verified run. Times in records count from machine cycle `start`. `kernels` are
    those that the driver launched, `children` those that kernels may launch."""

    workload: Workload
    policy: str
    records: tuple[CopyRecord, ...]
    start: int
    spaces: tuple[SpaceRecord, ...] = ()
    faults: tuple[FaultRecord, ...] = ()
    kernels: tuple[KernelRecord, ...] = ()
    children: tuple[ChildRecord, ...] = ()

    @property
    def total_cycles(self) -> int:
        """Cycles from the start to the end of the last copy or kernel."""
        return max((record.completed for record in (*self.records, *self.kernels)), default=0)

    @property
    def total_bytes(self) -> int:
        """Total bytes copied."""
        return sum(record.size for record in self.records)

    def of(self, name: str) -> list[CopyRecord]:
        """Records of the series of copies called `name`, in order."""
        return [record for record in self.records if record.name == name]

    def title(self, record: WorkRecord) -> str:
        """Name of a copy or kernel, with its index if it is one of a series, and its step if it is
        a kernel of a flat algorithm."""
        series = any(spec.name == record.name and spec.count > 1 for spec in self.workload.work)
        name = f"{record.name}[{record.index}]" if series else record.name
        return f"{name}.{record.step}" if isinstance(record, KernelRecord) and record.step else name

    def completion_order(self) -> list[str]:
        """Titles of all copies in the order of their ends."""
        return [self.title(record) for record in sorted(self.records, key=lambda r: r.completed)]
