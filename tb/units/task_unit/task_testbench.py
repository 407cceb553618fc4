"""Testbench of the task unit, with a model of lists and slots."""

import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.config import Config
from signalbox.hw.records.compute_control import list_area
from signalbox.hw.records.launch import task_ended, task_failure, task_launch, task_launched
from signalbox.hw.records.placement import Policy, task_pointer
from signalbox.tb.models.tasks import record
from signalbox.tb.testbench.configs import TASKS
from signalbox.tb.testbench.memory import Memory, ReadMemory, WriteMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Fields, Sink, Source
from signalbox.tb.units.task_unit.rows import Opened, Rows

__all__ = ["CONFIG", "LOG_SIZE", "POINTER", "TIMEOUT", "Bench", "Task", "begin"]

CONFIG: Config = TASKS[os.environ["WORK_CONFIG"]]
SYSTEM = 0
"""Address space of the lists."""
AREA = 0x4000_0000
LOG_SIZE = 7
TIMEOUT = 4000
POINTER = Fields(task_pointer)
ANSWER = Fields(task_launched)


@dataclass
class Task:
    """A task of the test, and its state."""

    number: int
    priority: int
    blocks: int = 3
    head: bool = False
    context: int = 0
    asid: int = 0
    channel: int = 3
    fields: dict[str, int] = field(default_factory=dict)
    done: list[int] = field(default_factory=list)
    outcome: str = "new"
    row: int | None = None
    stops: int = 0
    resumed: bool = False

    @property
    def page(self) -> int:
        return 0x10_0000 + self.number

    @property
    def pointer(self) -> dict[str, int]:
        """The pointer of its launch."""
        return {"page": self.page, "asid": self.asid, "channel": self.channel, "depth": 1}

    @property
    def word(self) -> int:
        sides = {"grid_x": self.blocks, "grid_y": 1, "grid_z": 1}
        shape = {"block_x": 32, "block_y": 1, "block_z": 1, "registers": 4}
        return record(
            **{"major": 3, "group": self.priority, "head": self.head} | sides | shape | self.fields
        )


class Bench:
    """The unit and its environment. Events of rows are compared with the model of lists and slots
    at that time, as the unit does one thing at a time."""

    def __init__(self, dut: Any, rng: Random, place: float = 0.3, end: float = 0.3) -> None:
        self.dut, self.rng, self.cycle = dut, rng, 0
        area = {"asid": SYSTEM, "base": AREA >> 12, "log_size": LOG_SIZE}
        dut.area.value = Fields(list_area(CONFIG)).pack(area)
        dut.context.value = self.context = 0
        dut.active.value = self.active = 1
        dut.leave.value = self.leave = 0
        self.automatic = rng.choice(list(Policy)).value
        dut.automatic.value = self.automatic
        dut.fault.value = 0
        dut.limit.value = 0
        dut.on.value = (1 << CONFIG.channels) - 1
        dut.launch__payload.value = 0
        dut.port__stopped__payload.value = 0
        self.contents = Memory()

        def pace() -> bool:
            return rng.random() < 0.9

        def latency() -> int:
            return rng.randint(0, 6)

        beats = 256 // CONFIG.beat_bytes
        self.read = ReadMemory(dut, CONFIG, self.contents, pace, latency, limit=beats)
        self.write = WriteMemory(dut, CONFIG, self.contents, pace, latency)
        self.launch = Source(dut, "launch", task_launch(CONFIG), lambda: True)
        self.takes_ends = True
        """Whether ended tasks are accepted."""
        self.ended = Sink(dut, "ended", task_ended(CONFIG), lambda: self.takes_ends and pace())
        self.failed = Sink(dut, "failed", task_failure, pace)
        self.rows = Rows(dut, CONFIG, rng, place, end)
        self.rows.opened, self.rows.stopped = self._opened, self._stopped
        self.rows.closed = self._closed
        self.lists: dict[tuple[int, int], deque[Task]] = defaultdict(deque)
        self.held: dict[int, Task] = {}
        """Tasks by row."""
        self.running: set[int] = set()
        """Rows that hold slots."""
        self.tasks: dict[tuple[int, int], Task] = {}
        self.offered: deque[Task] = deque()
        self.accepted: list[Task] = []
        self.verdicts: dict[int, int] = {}
        self.answer: dict[str, int] = {}
        """Answer to the last launch."""

    # -- events -----------------------------------------------------------------------------------

    def submit(self, task: Task) -> None:
        """Launch a task."""
        self.tasks[task.asid, task.page] = task
        self.contents.write((task.asid, 0), task.page << 8, task.word.to_bytes(256, "little"))
        self.offered.append(task)
        word = {
            "context": task.context,
            "task": POINTER.pack(task.pointer),
        }
        self.launch.put(0, lambda: word)

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        # Rows first: an open for a launch comes in the cycle of its answer.
        self.rows.step(self.cycle)
        for one in (self.read, self.write, self.launch):
            one.step(self.cycle)
        self.answer = ANSWER.unpack(int(self.dut.launched.value))
        if self.answer["valid"]:
            self._launched(self.answer["verdict"])
        if (got := self.ended.step()) is not None:
            task = self._named(POINTER.unpack(got["task"]))
            assert got["context"] == task.context, "of another context"
            self._ends(task, "ended")
        if (got := self.failed.step()) is not None:
            task = self._named(POINTER.unpack(got["task"]))
            self.verdicts[task.number] = got["verdict"]
            self._fails(task)

    async def until(self, done, what: str, timeout: int = TIMEOUT) -> None:
        for _ in range(timeout):
            if done():
                return
            await self.step()
        raise AssertionError(f"not in {timeout} cycles: {what}")

    async def finish(self) -> None:
        """Step until the unit is idle; then nothing may be left (no false idle)."""
        await self.until(lambda: not self.offered, "launches accepted", 40 * TIMEOUT)
        for _ in range(3):
            await self.step()
        await self.until(lambda: int(self.dut.idle.value), "idle", 40 * TIMEOUT)
        assert not any(self.lists.values()) and not self.held, "idle while tasks are held"
        for task in self.accepted:
            assert task.outcome in ("ended", "failed"), task
            if task.outcome == "ended":
                assert sorted(task.done) == list(range(task.blocks)), task

    # -- expectations -----------------------------------------------------------------------------

    def _named(self, pointer: dict[str, int]) -> Task:
        task = self.tasks[pointer["asid"], pointer["page"]]
        assert pointer["channel"] == task.channel and pointer["depth"] == 1
        return task

    def _best(self) -> int:
        """The highest level of the context with a task in its list; -1 if there is none."""
        levels = [level for (c, level), one in self.lists.items() if one and c == self.context]
        return max(levels, default=-1)

    def _opened(self, row: Opened) -> None:
        assert self.active
        self.late += self.leave
        assert self.late <= 1, "slots are filled after the context was asked to leave"
        assert len(self.running) < CONFIG.slots, "more tasks than slots"
        best = self._best()
        fresh = self.offered[0] if self.offered else None
        listed = self.lists[self.context, best][0] if best >= 0 else None
        if listed and self._is(row, listed) and not (fresh and self._is(row, fresh)):
            task = self.lists[self.context, best].popleft()
        else:
            assert fresh and self._is(row, fresh), "not the first of the highest list"
            assert fresh.priority > best and fresh.context == self.context, "others come first"
            task = fresh
        assert row.priority == task.priority
        asked = task.fields.get("placement", 0)
        assert row.policy == (asked - 1 if asked else self.automatic), "not as requested (ASID-32)"
        self._check_place(task, row)
        task.outcome, task.row = "runs", row.row
        self.held[row.row] = task
        self.running.add(row.row)

    def _is(self, row: Opened, task: Task) -> bool:
        """ASID and size identify a task, where necessary."""
        return row.asid == task.asid and row.grid[0] == task.blocks

    def _check_place(self, task: Task, row: Opened) -> None:
        assert row.next == len(task.done), "does not continue where it stopped"

    def _stopped(self, row: Opened) -> None:
        assert row.row in self.running, "stopped without a slot"
        faulty = self.held[row.row].number in self.faults
        if not self.leave and not faulty:
            assert len(self.running) == CONFIG.slots, "stopped although a slot is free"
            lowest = min(self.held[one].priority for one in self.running)
            assert self.held[row.row].priority == lowest < self._best(), "stopped for nothing"
        self.running.discard(row.row)
        self.held[row.row].stops += 1
        self.held[row.row].outcome = "returns" if row.left else "leaves"

    def _launched(self, verdict: int) -> None:
        task = self.offered.popleft()
        self.verdicts[task.number] = verdict
        if verdict:
            task.outcome = "refused"
            return
        self.accepted.append(task)
        if task.outcome == "new":
            where = self.lists[task.context, task.priority]
            (where.appendleft if task.head else where.append)(task)
            task.outcome = "waits"

    def _ends(self, task: Task, outcome: str) -> None:
        assert task.outcome in ("runs", "leaves", "returns", "closed"), task
        task.outcome = outcome

    def _fails(self, task: Task) -> None:
        if task.row is None:  # it was first in its list and could not be read
            assert self.lists[self.context, task.priority].popleft() is task
        task.outcome = "failed"

    def _closed(self, row: Opened) -> None:
        task = self.held.pop(row.row)
        self.running.discard(row.row)
        task.done += row.placed
        task.row = None
        if task.outcome == "returns":
            task.outcome, task.resumed = "waits", True
            self.lists[self.context, task.priority].appendleft(task)
        elif task.outcome in ("runs", "leaves"):
            task.outcome = "closed"  # its end may be reported later

    faults: frozenset[int] = frozenset()
    """Tasks with a failed warp."""
    late = 0
    """Number of tasks that got a slot after their context had to leave; at most one may be in
    progress."""


async def begin(dut: Any, **kind: float) -> Bench:
    bench = Bench(dut, Random(cocotb.RANDOM_SEED), **kind)
    await reset(dut)
    return bench
