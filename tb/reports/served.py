"""Timeline of a server's run: queues, tasks and blocks of its applications, cycle by cycle.

    write(Path("timeline.pftrace"), journal.entries, events, sms=8)

Each application is a process of Perfetto. Its tracks are: the pointers on its queue, its warps on
the SMs, and its tasks, on as many tracks as tasks run at the same time. The machine is a process,
too. It has a track per block slot, with the owners of the blocks, and a track per SM, with the
number of its warps. An arrow leads from a task to its first block.

Children are tasks of their parent's application, from the launch on. The launch is a slice inside
that of the parent's block; from it the arrow leads to the child's first block. A stopped block
stays in its slot until its state is saved.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from operator import attrgetter
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from signalbox.driver.server.journal import Entry, Kind
from signalbox.hw.errors import Refusal
from signalbox.tb.reports.timeline import WARPS, block_track, sm_track
from signalbox.tb.reports.tracks import Process
from signalbox.tb.simulation.residents import Residents
from signalbox.tb.simulation.trace import (
    Answered,
    Asked,
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
    """A task, from its launch to its end.

    Members
    -------
    launched : cycle in which the launch began; for a child, in which the parent requested it.
    channel : channel of the task, or of the task launched by the driver from which it descends.
    page : page of the task's record, which identifies the task until its end.
    flow : id of the arrow to the first block.
    parent : task that launched this one; None if the driver did.
    over : cycle of the end.
    begun : whether a block of the task has begun.
    number : number among the tasks of the application.
    """

    launched: int
    channel: int
    asid: int
    page: int
    flow: int
    parent: "_Task | None" = None
    over: int = _LATER
    outcome: str = "unfinished"
    begun: bool = False
    number: int = -1

    @property
    def name(self) -> str:
        """Name of the task in the timeline."""
        return f"task {self.number}"


@dataclass(eq=False)
class _Launch:
    """A launch by a block, requested in cycle `start` and answered in cycle `end`. `before` : owner
    and task that the record belonged to until the request, if that task was not over."""

    start: int
    child: _Task
    owner: "_Application"
    before: "tuple[_Application, _Task] | None"
    end: int = _LATER
    refusal: Refusal = Refusal.NONE

    @property
    def refused(self) -> bool:
        """Whether the machine has refused the launch."""
        return self.refusal is not Refusal.NONE

    @property
    def name(self) -> str:
        """Name of the child, or reason of the refusal."""
        if self.refused:
            return f"refused launch: {self.refusal.name}"
        return f"launch of {self.child.name}"


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
    """A block on an SM, from its first to its last warp there. `flows` : for the first block of a
    task, the arrow from the task."""

    owner: _Application
    task: _Task
    began: int
    flows: list[int]
    warps: set[int] = field(default_factory=set)
    launches: list[_Launch] = field(default_factory=list)
    last: int = 0
    stopped: bool = False

    def ended(self, end: int) -> int:
        """Cycle in which the last warp ended; `end` while warps are on the SM."""
        return end if self.warps else self.last


class _Reader:
    """Follows the journal and the trace, in order of their cycles."""

    def __init__(self) -> None:
        self.applications: dict[int, _Application] = {}
        self.blocks: dict[tuple[int, int], list[_Block]] = {}
        self.warps: dict[int, Values] = {}
        self._owners: dict[int, _Application] = {}
        self._spaces: dict[tuple[int, int], tuple[_Application, _Task]] = {}
        self._channels: dict[tuple[int, int], _Task] = {}
        self._rows: dict[int, tuple[_Application, _Task]] = {}
        self._asking: dict[tuple[int, int], _Launch] = {}
        self._residents = Residents()
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._flows = 0

    def take(self, event: Entry | Event) -> None:
        """Process the next event."""
        if isinstance(event, Entry):
            self._entry(event)
            return
        match event:
            case TaskLaunched(cycle, channel, asid, page) if channel in self._owners:
                self._flows += 1
                self._begin(self._owners[channel], _Task(cycle, channel, asid, page, self._flows))
            case TaskOpened(_, row, asid, page):
                self._opened(row, asid, page)
            case TaskOver(cycle, channel, page, refusal) if (channel, page) in self._channels:
                task = self._channels[channel, page]
                self._forget(task)
                task.over, task.outcome = cycle, refusal.name
            case Asked(cycle, sm, slot, row, page) if row in self._rows:
                self._asked(cycle, (sm, slot), *self._rows[row], page)
            case Answered(cycle, sm, slot, refusal) if (sm, slot) in self._asking:
                self._answered(cycle, self._asking.pop((sm, slot)), refusal)
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

    def _begin(self, owner: _Application, task: _Task) -> None:
        """Begin a task of an application."""
        owner.tasks.append(task)
        self._register(owner, task)

    def _register(self, owner: _Application, task: _Task) -> None:
        """From now on the page of this task's record stands for this task."""
        self._spaces[task.asid, task.page] = owner, task
        self._channels[task.channel, task.page] = task

    def _forget(self, task: _Task) -> None:
        """The page of this task's record no longer stands for this task. No effect if it already
        stands for another."""
        if self._channels.get((task.channel, task.page)) is task:
            del self._channels[task.channel, task.page], self._spaces[task.asid, task.page]

    def _asked(
        self, cycle: int, at: tuple[int, int], owner: _Application, parent: _Task, page: int
    ) -> None:
        """The block in a slot of an SM requests a launch. The child is registered at once, as it
        may get a row before the answer."""
        self._flows += 1
        child = _Task(cycle, parent.channel, parent.asid, page, self._flows, parent)
        launch = _Launch(cycle, child, owner, self._spaces.get((parent.asid, page)))
        self._asking[at] = launch
        self.blocks[at][-1].launches.append(launch)
        self._begin(owner, child)

    def _answered(self, cycle: int, launch: _Launch, refusal: Refusal) -> None:
        launch.end, launch.refusal = cycle, refusal
        if launch.refused:
            child = launch.child
            launch.owner.tasks.remove(child)
            self._forget(child)
            if launch.before is not None:
                self._remains(*launch.before, child)

    def _remains(self, owner: _Application, before: _Task, refused: _Task) -> None:
        """After a refused launch, the record belongs to the task `before` as it did before. If an
        end of the record's task was seen meanwhile, it was the end of `before`."""
        if before.over == _LATER:
            before.over, before.outcome = refused.over, refused.outcome
        if before.over == _LATER:
            self._register(owner, before)

    def _opened(self, row: int, asid: int, page: int) -> None:
        """From now on the row stands for the task of this record."""
        known = self._spaces.get((asid, page))
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
        _change(block.owner.warps, cycle, -1)
        _change(self.warps[warp.sm], cycle, -1)


def _change(values: Values, cycle: int, by: int) -> None:
    """Add a change to a counter."""
    values.append((cycle, (values[-1][1] if values else 0) + by))


def write(file: Path, entries: Sequence[Entry], events: Iterable[Event], *, sms: int) -> None:
    """Write the timeline of a machine with `sms` SMs. `entries` and `events` are in order of their
    cycles."""
    reader, end = _Reader(), 0
    for event in merge(entries, events, key=attrgetter("cycle")):
        reader.take(event)
        end = event.cycle
    for one in reader.applications.values():
        for number, task in enumerate(one.tasks):
            task.number = number
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
            notes: dict[str, object] = {
                "channel": task.channel,
                "record": hex(task.page << 8),
                "launched by": "the driver" if task.parent is None else task.parent.name,
                "outcome": task.outcome,
            }
            flows = [task.flow] if task.parent is None else []
            process.slice(track, task.launched, min(task.over, end), task.name, notes, flows)


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
                until = block.ended(end)
                process.slice(track, block.began, until, name, notes, block.flows)
                for launch in block.launches:
                    flows = [] if launch.refused else [launch.child.flow]
                    cycles = launch.start, min(launch.end, until)
                    process.slice(track, *cycles, launch.name, flows=flows)


def _slots(reader: _Reader, sm: int) -> Iterator[tuple[int, list[_Block]]]:
    for (number, slot), blocks in sorted(reader.blocks.items()):
        if number == sm:
            yield slot, blocks
