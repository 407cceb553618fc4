"""Timeline of a server's run: queues, tasks and blocks of its applications, cycle by cycle.

    write(Path("timeline.pftrace"), journal.entries, events, sms=8)

Each application is a process of Perfetto. Its tracks are: the pointers on its queue, its warps on
the SMs, and its tasks, on as many tracks as run at the same time. The machine is a process, too:
each block slot of an SM shows the owner of its block, and each SM the number of its warps. An arrow
leads from a task to its first block. Kernels launched by kernels are tasks of their parent's
application, from their first block to their last. A stopped block stays until its state is saved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from signalbox.driver.server.journal import Entry, Kind
from signalbox.tb.reports.timeline import WARPS, block_track, sm_track
from signalbox.tb.reports.tracks import Process
from signalbox.tb.simulation.residents import Residents
from signalbox.tb.simulation.trace import (
    BlockStopped,
    Event,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpStarted,
)

__all__ = ["MACHINE", "QUEUE", "process_name", "task_track", "write"]

MACHINE = "machine"
QUEUE = "pointers on the queue"

_LATER = 1 << 62
"""Cycle of an end that has not come yet."""

Values = list[tuple[int, int]]
"""(cycle, value) at each change."""


def process_name(entry: Entry) -> str:
    """Name of an application's process."""
    return f"{entry.application} {entry.name} (process {entry.process})"


def task_track(lane: int) -> str:
    """Name of a track of tasks."""
    return f"tasks {lane}"


@dataclass(eq=False)
class _Task:
    """A task, from its launch to its end. `channel` : -1 for a kernel that a kernel has launched.
    `flow` : number of its arrow."""

    number: int
    launched: int
    channel: int
    record: int
    flow: int
    over: int = _LATER
    outcome: str = "unfinished"
    begun: bool = False


@dataclass(eq=False)
class _Application:
    """An application, and the progress of its work."""

    first: Entry
    gone: int = _LATER
    queued: Values = field(default_factory=list)
    warps: Values = field(default_factory=list)
    tasks: list[_Task] = field(default_factory=list)


@dataclass(eq=False)
class _Block:
    """A block on an SM, while any of its warps is there. `flows` : the arrow from its task, for the
    task's first block."""

    owner: _Application
    task: _Task
    began: int
    flows: list[int]
    warps: set[int] = field(default_factory=set)
    last: int = 0
    stopped: bool = False

    def ended(self, end: int) -> int:
        """Cycle in which its last warp ended; `end` while warps are there."""
        return end if self.warps else self.last


class _Reader:
    """Follows the journal and the trace, in order of their cycles."""

    def __init__(self) -> None:
        self.applications: dict[int, _Application] = {}
        self.blocks: dict[tuple[int, int], list[_Block]] = {}
        self.warps: dict[int, Values] = {}
        self._owners: dict[int, _Application] = {}
        self._holders: dict[int, _Application] = {}
        self._spaces: dict[tuple[int, int], tuple[_Application, _Task]] = {}
        self._channels: dict[tuple[int, int], _Task] = {}
        self._rows: dict[int, tuple[_Application, _Task]] = {}
        self._residents = Residents()
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._flows = 0

    def take(self, event: Entry | Event) -> None:
        """The next event."""
        if isinstance(event, Entry):
            self._entry(event)
            return
        match event:
            case TaskLaunched(cycle, channel, asid, page) if channel in self._owners:
                owner = self._holders[asid] = self._owners[channel]
                task = self._task(owner, cycle, channel, page)
                self._spaces[asid, page] = owner, task
                self._channels[channel, page] = task
            case TaskOpened(cycle, row, asid, page):
                self._opened(cycle, row, asid, page)
            case TaskOver(cycle, channel, page, refusal) if (channel, page) in self._channels:
                task = self._channels.pop((channel, page))
                self._spaces = {at: one for at, one in self._spaces.items() if one[1] is not task}
                task.over, task.outcome = cycle, refusal.name
            case WarpStarted() if event.row in self._rows:
                self._started(event, *self._rows[event.row])
        for warp in self._residents.take(event):
            if block := self._blocks.pop((warp.sm, warp.warp), None):
                block.stopped = isinstance(event, BlockStopped)
                self._left(event.cycle, warp, block)

    def _entry(self, entry: Entry) -> None:
        if entry.kind is Kind.CAME:
            self.applications[entry.application] = _Application(entry)
        one = self.applications[entry.application]
        match entry.kind:
            case Kind.GONE:
                one.gone = entry.cycle
            case Kind.OPENED:
                self._owners[entry.channel] = one
            case Kind.CLOSED:
                self._owners.pop(entry.channel, None)
            case Kind.PUSHED:
                _change(one.queued, entry.cycle, 1)
            case Kind.HANDED_ON | Kind.DROPPED:
                _change(one.queued, entry.cycle, -1)

    def _task(self, owner: _Application, cycle: int, channel: int, page: int) -> _Task:
        self._flows += 1
        task = _Task(len(owner.tasks), cycle, channel, page << 8, self._flows)
        owner.tasks.append(task)
        return task

    def _opened(self, cycle: int, row: int, asid: int, page: int) -> None:
        """A row belongs to another task from now on. For a child this is the first event."""
        known = self._spaces.get((asid, page))
        if known is None and asid in self._holders:
            owner = self._holders[asid]
            known = owner, self._task(owner, cycle, -1, page)
        if known is None:
            self._rows.pop(row, None)
        else:
            self._rows[row] = known

    def _started(self, event: WarpStarted, owner: _Application, task: _Task) -> None:
        there = self.blocks.setdefault((event.sm, event.slot), [])
        last = there[-1] if there else None
        if last is None or event.index == 0 or last.stopped or last.task is not task:
            there.append(_Block(owner, task, event.cycle, [] if task.begun else [task.flow]))
            task.begun = True
        there[-1].warps.add(event.warp)
        self._blocks[event.sm, event.warp] = there[-1]
        _change(owner.warps, event.cycle, 1)
        _change(self.warps.setdefault(event.sm, []), event.cycle, 1)

    def _left(self, cycle: int, warp: WarpStarted, block: _Block) -> None:
        block.warps.discard(warp.warp)
        block.last = cycle
        if block.task.channel < 0:
            block.task.over, block.task.outcome = cycle, "launched by a kernel"
        _change(block.owner.warps, cycle, -1)
        _change(self.warps[warp.sm], cycle, -1)


def _change(values: Values, cycle: int, by: int) -> None:
    """Add a change to a counter."""
    values.append((cycle, (values[-1][1] if values else 0) + by))


def write(file: Path, entries: Sequence[Entry], events: Iterable[Event], *, sms: int) -> None:
    """Write the timeline of a machine with `sms` SMs. Both lists are in order of their cycles."""
    reader, end = _Reader(), 0
    for event in merge(entries, events, key=attrgetter("cycle")):
        reader.take(event)
        end = event.cycle
    trace, numbers = Trace(), iter(range(1, 1 << 62))
    for pid, one in enumerate(reader.applications.values(), 2):
        _application(Process(trace, numbers, pid, process_name(one.first)), one, end)
    _machine(Process(trace, numbers, 1, MACHINE), reader, sms, end)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(trace.SerializeToString())


def _application(process: Process, one: _Application, end: int) -> None:
    life = process.track("connected")
    process.slice(life, one.first.cycle, min(one.gone, end), one.first.name)
    process.counter(QUEUE, one.queued)
    process.counter(WARPS, one.warps)
    for lane, tasks in enumerate(_lanes(one.tasks)):
        track = process.track(task_track(lane))
        for task in tasks:
            notes = {"channel": task.channel, "record": hex(task.record), "outcome": task.outcome}
            name = f"task {task.number}"
            process.slice(track, task.launched, min(task.over, end), name, notes, [task.flow])


def _lanes(tasks: Sequence[_Task]) -> list[list[_Task]]:
    """The tasks on as few tracks as possible, without overlaps on a track."""
    lanes: list[list[_Task]] = []
    for task in tasks:
        free = (lane for lane in lanes if lane[-1].over <= task.launched)
        lane = next(free, None)
        if lane is None:
            lanes.append([task])
        else:
            lane.append(task)
    return lanes


def _machine(process: Process, reader: _Reader, sms: int, end: int) -> None:
    for sm in range(sms):
        group = process.track(sm_track(sm))
        process.counter(WARPS, reader.warps.get(sm, []), group)
        for slot, blocks in _slots(reader, sm):
            track = process.track(block_track(slot), group)
            for block in blocks:
                first = block.owner.first
                notes = {"task": block.task.number, "stopped": str(block.stopped)}
                name = f"{first.application} {first.name}"
                process.slice(track, block.began, block.ended(end), name, notes, block.flows)


def _slots(reader: _Reader, sm: int) -> Iterator[tuple[int, list[_Block]]]:
    for (number, slot), blocks in sorted(reader.blocks.items()):
        if number == sm:
            yield slot, blocks
