"""Model of queues: appended entries, and blocks that may run for them."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from signalbox.hw.records.launch import LaunchAction
from signalbox.tb.testbench.strobe import Strobe
from signalbox.tb.units.task_unit.rows import ENDLESS, Opened
from signalbox.tb.units.task_unit.task_testbench import (
    ACCEPTED,
    CONFIG,
    TIMEOUT,
    Task,
    TaskTestbench,
    Verdict,
)

__all__ = ["CLOSE", "Ask", "Queue", "QueueTestbench"]

WINDOW = CONFIG.queue_window

CLOSE = 0
"""Number of appended entries that closes a queue."""


@dataclass
class Queue(Task):
    """A queue task. `blocks` is not used."""

    size: int = 8
    per_block: int = 1
    first: int = 0
    """Entries present at the launch."""
    put: int = 0
    closed: bool = False
    taken: int = 0
    """Blocks given to rows."""
    faulty: bool = False
    """It was killed or had a fault: its remaining blocks may end early."""
    processed: int = 0
    """Entries before its oldest unfinished block; for a faulty queue, as of the kill or fault."""
    freed: int = 0
    """OUTER_GET as last seen."""
    awaited: deque[tuple[int, int]] = field(default_factory=deque)
    """Values that OUTER_GET must reach, each with the cycle in which its block ended."""

    def __post_init__(self) -> None:
        self.put = self.first

    @property
    def word(self) -> int:
        log = self.per_block.bit_length() - 1
        self.fields = {"is_queue": 1, "queue_size": self.size, "entries_log": log} | self.fields
        self.fields["inner_put"] = self.first
        self.blocks = 1
        return super().word

    @property
    def total(self) -> int:
        """Number of blocks for the entries so far."""
        return -(-self.put // self.per_block) if self.closed else self.put // self.per_block

    def entries(self, blocks: int) -> int:
        """Entries of the first `blocks` blocks."""
        return min(blocks * self.per_block, self.put)


@dataclass
class Ask:
    """A request, and its answer."""

    task: Task
    action: LaunchAction = LaunchAction.SCHEDULE
    count: int = 0
    verdict: Verdict | None = None


class QueueTestbench(TaskTestbench):
    """Testbench in which each task has its own address space, which identifies its rows. OUTER_GET
    of each queue is checked in every cycle: it never goes back and never passes an unfinished
    block, and it follows the oldest one.

    Members
    -------
    asks : all requests so far.
    limit : strobe that limits the slots of a context.
    most : maximum number of tasks in slots.
    limit_of_lag : most cycles from the end of a queue's oldest block to OUTER_GET in memory; not
        checked while the memory fails.
    lag : the longest so far.
    """

    limit_of_lag = 3000
    lag = 0

    def __init__(self, dut: Any, place: float = 0.3, end: float = 0.3) -> None:
        super().__init__(dut, place, end)
        self.rows.added = self._added
        self.limit = Strobe(self, "limit")
        self.asks: list[Ask] = []
        self.most = CONFIG.slots
        self._on = (1 << CONFIG.channels) - 1

    def ask(
        self,
        task: Task,
        action: LaunchAction = LaunchAction.SCHEDULE,
        count: int = 0,
        start: int | None = None,
        behind: bool = False,
    ) -> Ask:
        """Make a request after the earlier ones. Writes the record of a task to be scheduled."""
        ask = Ask(task, action, count)
        if action is LaunchAction.SCHEDULE:
            self.know(task)
        self.asks.append(ask)

        def word() -> dict[str, Any]:
            put = task.put if isinstance(task, Queue) and start is None else start or 0
            span = {"start": put % (1 << 24), "count": count, "behind": behind}
            return {
                "context": task.context,
                "task": task.pointer,
                "action": action,
                "span": span,
            }

        self.launch.put(word)
        return ask

    def know(self, task: Task) -> None:
        assert task.asid < CONFIG.asids
        super().know(task)

    async def did(self, ask: Ask) -> Verdict:
        """Wait for the verdict."""
        await self.until(lambda: ask.verdict is not None, f"answer to {ask.action}")
        assert ask.verdict is not None
        return ask.verdict

    async def append(self, queue: Queue, count: int, **kind: Any) -> Verdict:
        """Append entries, or close the queue. Returns the verdict."""
        return await self.did(self.ask(queue, LaunchAction.INCREMENT_PUT, count, **kind))

    def switch_off(self, channel: int) -> None:
        """Disable a channel."""
        self._on &= ~(1 << channel)
        self.drive(on=self._on)

    def switch_on(self, channel: int) -> None:
        """Enable a channel."""
        self._on |= 1 << channel
        self.drive(on=self._on)

    def freed(self, queue: Task) -> int:
        """OUTER_GET in memory."""
        found = self.contents.read((queue.asid, 0), (queue.page << 8) + 4, 4)
        return int.from_bytes(found, "little")

    async def step(self) -> None:
        await super().step()
        for task in self.tasks.values():
            if isinstance(task, Queue) and task.outcome not in ("new", "refused"):
                self._follow(task)

    def _follow(self, queue: Queue) -> None:
        """Compare OUTER_GET with the oldest unfinished block."""
        found = self.freed(queue)
        row = self.rows.rows.get(-1 if queue.row is None else queue.row)
        if not queue.faulty:
            queue.processed = queue.entries(row.oldest if row else len(queue.done))
        oldest = queue.processed
        assert queue.taken <= queue.total, "blocks without entries"
        assert queue.freed <= found, "OUTER_GET goes back"
        assert found <= oldest, "OUTER_GET passes an unfinished block"
        queue.freed, awaited = found, queue.awaited
        if oldest > (awaited[-1][1] if awaited else found):
            awaited.append((self.cycle, oldest))
        while awaited and awaited[0][1] <= found:
            since, _ = awaited.popleft()
            self.lag = max(self.lag, self.cycle - since)
        if queue.faulty or queue.outcome == "failed" or self.contents.failing:
            awaited.clear()
        if awaited:
            assert self.cycle - awaited[0][0] <= self.limit_of_lag, "OUTER_GET does not follow"

    # -- expectations -----------------------------------------------------------------------------

    def _full(self, queue: Queue) -> bool:
        """Whether the window of its row has no room for further blocks."""
        return queue.taken * queue.per_block >= self.freed(queue) + WINDOW * queue.per_block

    def _launched(self, verdict: Verdict, nothing: int) -> None:
        ask = next(one for one in self.asks if one.verdict is None)
        task, ask.verdict = ask.task, verdict
        if verdict is not ACCEPTED:
            return
        if not nothing:
            assert ask.action is not LaunchAction.INCREMENT_PUT
            self.accepted.append(task)
        if isinstance(task, Queue):
            task.put += ask.count
            closes = ask.action is LaunchAction.INCREMENT_PUT and ask.count == CLOSE
            task.closed = task.closed or closes
            runs = task.row is not None and not self.rows.rows[task.row].stopped
            if runs and not task.faulty:
                assert task.taken == task.total or self._full(task), "entries without a block"

    def _opened(self, row: Opened) -> None:
        assert sum(not one.stopped for one in self.rows.rows.values()) <= self.most, "more slots"
        waiting = (one for one in self.tasks.values() if one.row is None)
        over = ("ended", "failed")
        task = next(t for t in waiting if t.asid == row.asid and t.outcome not in over)
        assert row.priority == task.priority
        if isinstance(task, Queue):
            assert row.grid == ENDLESS and row.next == task.taken, "the queue does not continue"
            before = task.taken
            task.taken += row.left
            most = min(task.total, before + WINDOW)
            assert task.taken == most, "blocks without entries, or too few"
        else:
            assert row.next == len(task.done)
        task.row, self.held[row.row] = row.row, task
        task.outcome = "runs"

    def _added(self, row: Opened, blocks: int) -> None:
        task = self.held[row.row]
        assert isinstance(task, Queue)
        task.taken += blocks

    def _stopped(self, row: Opened) -> None:
        task = self.held[row.row]
        task.stops += 1
        if isinstance(task, Queue):
            task.taken = row.next

    def _closed(self, row: Opened) -> None:
        task = self.held.pop(row.row)
        task.row = None
        task.done += row.placed

    def _ends(self, task: Task) -> None:
        assert task.outcome != "ended"
        assert not isinstance(task, Queue) or task.closed, "ends although it is open"
        task.outcome = "ended"

    def _fails(self, task: Task) -> None:
        task.outcome = "failed"

    async def finish(self) -> None:
        """Step until the unit is idle, and check that everything was done, once."""
        await self.until(lambda: all(ask.verdict is not None for ask in self.asks), "answers")
        await self.steps(3)
        await self.until(lambda: self.get("idle"), "idle", 40 * TIMEOUT)
        assert not self.held
        for task in self.accepted:
            assert task.outcome in ("ended", "failed"), task
            if task.outcome == "ended":
                blocks = task.total if isinstance(task, Queue) else task.blocks
                assert task.done == list(range(blocks)), task
                assert not isinstance(task, Queue) or self.freed(task) == task.put, task

    async def rest(self, queue: Queue) -> None:
        """Step until the queue has done all its work and holds no slot."""
        await self.until(
            lambda: queue.row is None and len(queue.done) == queue.total, f"{queue.number} rests"
        )
