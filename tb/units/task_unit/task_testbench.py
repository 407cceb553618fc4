"""Testbench of the task unit, with a model of lists and slots."""

import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.config import Config
from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.placement import SAVE_PAGE_BITS, Policy
from signalbox.hw.registers import PreemptionLevel
from signalbox.hw.task_unit.task_unit import TaskUnit
from signalbox.tb.models.tasks import record
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import TASKS
from signalbox.tb.testbench.contents import Contents
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.servers import ReadServer, WriteServer
from signalbox.tb.units.task_unit.rows import Opened, Rows

__all__ = ["ACCEPTED", "CONFIG", "LOG_SIZE", "TIMEOUT", "Task", "TaskTestbench", "Verdict"]

CONFIG: Config = TASKS[os.environ["WORK_CONFIG"]]
SYSTEM = 0
"""Address space of the lists."""
AREA = 0x4000_0000
LOG_SIZE = max(7, (2 * CONFIG.slots + CONFIG.rows).bit_length())
"""Lists have room for at least twice as many tasks as there are slots."""
TIMEOUT = 4000

Verdict = Refusal | SkedCheck
"""A failed check, or any other reason, or `ACCEPTED`."""
ACCEPTED = Refusal.NONE


@dataclass
class Task:
    """A task of the test, and its state."""

    number: int
    priority: int
    blocks: int = 3
    head: bool = False
    context: int = 0
    asid: int = 0
    channel: int = min(3, CONFIG.channels - 1)
    fields: dict[str, int] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    placed: int = 0
    outcome: str = "new"
    row: int | None = None
    stops: int = 0
    resumed: bool = False
    depth: int = 1

    @property
    def page(self) -> int:
        return 0x10_0000 + self.number

    @property
    def pointer(self) -> dict[str, int]:
        """The pointer of its launch."""
        return {"page": self.page, "asid": self.asid, "channel": self.channel, "depth": self.depth}

    @property
    def disabled(self) -> int:
        """SMs that take none of its blocks, one bit each."""
        every = (1 << CONFIG.sms) - 1
        return 37 * self.number % every if CONFIG.sm_masks else 0

    @property
    def word(self) -> int:
        sides = {"grid_x": self.blocks, "grid_y": 1, "grid_z": 1}
        shape = {"block_x": 32, "block_y": 1, "block_z": 1, "registers": 4}
        shape["mask_low"] = self.disabled
        return record(
            **{"major": 3, "group": self.priority, "head": self.head} | sides | shape | self.fields
        )


_DRAIN, _SAVE = 1, 2
"""Urgencies of a record."""


class TaskTestbench(Testbench):
    """The unit and its environment. As the unit does one thing at a time, events of rows are
    compared with the model of lists and slots when they occur.

    Members
    -------
    lists : tasks of each list, by context and level.
    held : tasks by row.
    running : rows that hold slots.
    tasks : by address space and page.
    offered : launches without an answer.
    faults : numbers of tasks with a failed warp.
    off : disabled channels.
    write_delay : further cycles of each write.
    stops : its tasks may have blocks of lower priority stopped.
    save_area : whether the context has a save area.
    late : number of tasks that got a slot after their context had to leave; at most one may be in
        progress.
    """

    timeout = TIMEOUT

    def __init__(
        self,
        dut: Any,
        place: float = 0.3,
        end: float = 0.3,
        level: PreemptionLevel = PreemptionLevel.CTA,
        *,
        area: bool = True,
    ) -> None:
        super().__init__(dut, component(TaskUnit, CONFIG))
        self.automatic, self.level = self.random.choice(list(Policy)), level
        self.stops, self.save_area = self.random.randrange(2), area
        self.drive(
            area={"asid": SYSTEM, "base": AREA >> 12, "log_size": LOG_SIZE},
            active=1,
            automatic=self.automatic,
            level=level,
            saves=self.stops,
            save_area=1 << self.random.randrange(SAVE_PAGE_BITS) if area else 0,
        )
        self.disable()
        # Rows first: an open for a launch comes in the cycle of its answer.
        self.rows = Rows(self, CONFIG, place, end)
        self.rows.opened, self.rows.stopped = self._opened, self._stopped
        self.rows.closed = self._closed
        self.contents = Contents()
        pace, delay = self.share(0.9), self.between(1, 6)
        beats = 256 // CONFIG.beat_bytes
        ReadServer(self, self.contents, pace, delay, limit=beats)
        self.write_delay = 0
        WriteServer(self, self.contents, pace, lambda: delay() + self.write_delay)
        self.launch = Source(self, "launch")
        self.ended = Sink(self, "ended", pace, self._ended)
        Sink(self, "failed", pace, self._failed)
        self.lists: dict[tuple[int, int], deque[Task]] = defaultdict(deque)
        self.held: dict[int, Task] = {}
        self.running: set[int] = set()
        self.tasks: dict[tuple[int, int], Task] = {}
        self.offered: deque[Task] = deque()
        self.accepted: list[Task] = []
        self.verdicts: dict[int, Verdict] = {}
        self.faults: frozenset[int] = frozenset()
        self.off: frozenset[int] = frozenset()
        self.late = 0

    # -- events -----------------------------------------------------------------------------------

    def know(self, task: Task) -> None:
        """Write the task's record."""
        self.tasks[task.asid, task.page] = task
        self.contents.write((task.asid, 0), task.page << 8, task.word.to_bytes(256, "little"))

    def submit(self, task: Task) -> None:
        """Launch a task."""
        self.know(task)
        self.offered.append(task)
        self.launch.put({"context": task.context, "task": task.pointer})

    def disable(self, *channels: int) -> None:
        """Disable these channels, and enable all others."""
        self.off = frozenset(channels)
        self.drive(on=((1 << CONFIG.channels) - 1) & ~mask(channels))

    async def step(self) -> None:
        await super().step()
        answer = self.get("launched")
        if answer["valid"]:
            self._launched(_verdict(answer), answer["nothing"])

    async def finish(self) -> None:
        """Step until the unit is idle, and check that nothing is left (no false idle)."""
        await self.until(lambda: not self.offered, "launches accepted", 40 * TIMEOUT)
        await self.steps(3)
        await self.until(lambda: self.get("idle"), "idle", 40 * TIMEOUT)
        assert not any(self.lists.values()) and not self.held, "idle while tasks are held"
        assert not self.rows.lists, "saved blocks are lost"
        for task in self.accepted:
            assert task.outcome in ("ended", "failed"), task
            if task.outcome == "ended":
                assert sorted(task.done) == list(range(task.blocks)), task

    # -- expectations -----------------------------------------------------------------------------

    def _named(self, pointer: dict[str, int]) -> Task:
        task = self.tasks[pointer["asid"], pointer["page"]]
        assert pointer["channel"] == task.channel and pointer["depth"] == task.depth
        return task

    def best(self) -> int:
        """The highest level of the context with a task in its list; -1 if there is none."""
        context = self.get("context")
        return max(
            (level for (c, level), one in self.lists.items() if one and c == context), default=-1
        )

    def _opened(self, row: Opened) -> None:
        assert self.get("active")
        self.late += self.get("leave")
        assert self.late <= 1, "slots are filled after the context was asked to leave"
        assert len(self.running) < CONFIG.slots, "more tasks than slots"
        best, context = self.best(), self.get("context")
        fresh = self.offered[0] if self.offered else None
        listed = self.lists[context, best][0] if best >= 0 else None
        ahead = fresh and self._is(row, fresh) and fresh.priority > best
        if listed and self._is(row, listed) and not ahead:
            task = self.lists[context, best].popleft()
        else:
            assert fresh and self._is(row, fresh), "not the first of the highest list"
            assert fresh.priority > best and fresh.context == context, "others come first"
            task = fresh
        assert row.priority == task.priority
        asked = task.fields.get("placement", 0)
        policy = Policy(asked - 1) if asked else self.automatic
        assert row.policy is policy, "not as requested (ASID-32)"
        urgency = task.fields.get("urgency", 0)
        stops = urgency == _SAVE or (self.stops and urgency != _DRAIN)
        allowed = CONFIG.preemption and self.save_area
        assert row.stops == bool(stops and allowed), "not as requested (PREEMPT-5)"
        assert row.disabled == task.disabled, "not for the requested SMs"
        assert not row.left or row.next == task.placed, "does not continue where it stopped"
        task.outcome, task.row = "runs", row.row
        self.held[row.row] = task
        self.running.add(row.row)

    def _is(self, row: Opened, task: Task) -> bool:
        """Whether the row belongs to the task; identified by ASID and size where necessary."""
        return row.asid == task.asid and row.grid[0] == task.blocks

    def _stopped(self, row: Opened) -> None:
        assert row.row in self.running, "stopped without a slot"
        task = self.held[row.row]
        faulty = task.number in self.faults or task.channel in self.off
        assert faulty or self.level is not PreemptionLevel.WFI, "stopped before its end"
        if not self.get("leave") and not faulty:
            assert len(self.running) == CONFIG.slots, "stopped although a slot is free"
            lowest = min(self.held[one].priority for one in self.running)
            assert self.held[row.row].priority == lowest < self.best(), "stopped for nothing"
        self.running.discard(row.row)
        self.held[row.row].stops += 1
        self.held[row.row].outcome = "returns" if row.left else "leaves"

    def _launched(self, verdict: Verdict, nothing: int) -> None:
        task = self.offered.popleft()
        self.verdicts[task.number] = verdict
        if verdict is not ACCEPTED:
            task.outcome = "refused"
            return
        self.accepted.append(task)
        if task.outcome == "new":
            where = self.lists[task.context, task.priority]
            (where.appendleft if task.head else where.append)(task)
            task.outcome = "waits"

    def _ended(self, got: dict[str, Any]) -> None:
        task = self._named(got["task"])
        assert got["context"] == task.context, "of another context"
        self._ends(task)

    def _failed(self, got: dict[str, Any]) -> None:
        task = self._named(got["task"])
        self.verdicts[task.number] = _verdict(got)
        self._fails(task)

    def _ends(self, task: Task) -> None:
        assert task.outcome in ("runs", "leaves", "returns", "closed"), task
        task.outcome = "ended"

    def _fails(self, task: Task) -> None:
        if task.row is None:  # it was first in its list, and could not be read or was killed
            where = self.lists[task.context, task.priority]
            assert where[0] is task or self.verdicts[task.number] is Refusal.KILLED
            where.remove(task)
        task.outcome = "failed"

    def _closed(self, row: Opened) -> None:
        task = self.held.pop(row.row)
        self.running.discard(row.row)
        task.done += row.ended
        task.placed += len(row.placed)
        task.row = None
        if task.outcome == "returns" or (task.outcome == "leaves" and row.kept):
            task.outcome, task.resumed = "waits", True
            self.lists[self.get("context"), task.priority].appendleft(task)
        elif task.outcome in ("runs", "leaves"):
            task.outcome = "closed"  # its end may be reported later


def _verdict(word: dict[str, Any]) -> Verdict:
    refusal, check = word["verdict"]["refusal"], word["verdict"]["check"]
    if refusal is Refusal.CHECK:
        return check
    assert check is SkedCheck.NONE
    return refusal
