"""Killed tasks: the task unit with rows in Python (PREEMPT-7)."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.records.launch import LaunchAction
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.registers import KillScope, PreemptionLevel
from signalbox.tb.testbench.clocked import Participant
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.ends import Sink, Source
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.task_unit.queue_testbench import CLOSE, Queue, QueueTestbench
from signalbox.tb.units.task_unit.task_testbench import (
    ACCEPTED,
    AREA,
    CONFIG,
    LOG_SIZE,
    SYSTEM,
    Task,
)

KILLED = Refusal.KILLED

SWEEP = 20 * CONFIG.rows
"""More cycles than a visit of all rows, queues and lists takes if there are few tasks."""


class EndedKernels(Participant):
    """With nested launches, holds the kernels that wait for their descendants, and visits them
    during each request after a random number of cycles.

    Members
    -------
    visits : number of visits.
    hold : a visit does not end.
    """

    def __init__(self, tb: "KillTestbench", ended: Sink) -> None:
        self.visits, self.hold = 0, False
        self._tb, self._ended = tb, ended
        self._left = 0
        """Cycles left of the visit in progress."""
        self._was = self._waits = self._swept = False
        """`_was`: `sweep_ends` in the last cycle. `_waits`: an ended task was not taken in that
        cycle. `_swept`: the visit ended in that cycle."""
        self._taken = 0
        tb.join(self)

    def drive(self, cycle: int) -> None:
        if self._was and not self.hold:
            self._left -= 1
        self._swept = self._was and self._left == 0
        self._tb.drive(ends=len(self._ended.taken) > self._taken, ends_swept=self._swept)
        self._taken = len(self._ended.taken)

    def sample(self, cycle: int) -> None:
        sweeps = bool(self._tb.get("sweep_ends"))
        if sweeps and not self._was:
            assert not self._waits, "an ended task is on its way"
            self.visits += 1
            self._left = self._tb.random.randint(1, 60)
        assert sweeps or not self._was or self._swept, "stopped too early"
        self._was = sweeps and not self._swept
        self._waits = self._ended.offered and not self._ended.open


class KillTestbench(QueueTestbench):
    """Testbench in which tasks are killed. Warps of a killed row end at once, unless `stuck`; other
    blocks end with probability `rows.end`.

    Members
    -------
    requests : kill requests.
    kernels : with nested launches, kernels that wait for their descendants.
    lost : number of tasks lost from their lists.
    """

    def __init__(self, dut: Any, place: float = 0.3, end: float = 0.0) -> None:
        super().__init__(dut, place, end)
        self.requests = Source(self, "kill_request", then=self._accepted)
        self.kernels = EndedKernels(self, self.ended) if CONFIG.nested else None
        self._visits = 0
        self.stuck = False
        self.lost = 0
        self.drive(calm=1)

    def request(self, scope: KillScope, task: Task) -> None:
        """Request to kill the task, its address space or its context."""
        fields = {"context": task.context, "asid": task.asid, "page": task.page}
        self.requests.put({"scope": scope} | fields)

    def _accepted(self, request: dict[str, Any]) -> None:
        if self.kernels is not None:
            assert self.kernels.visits > self._visits, "ended kernels were not visited"
            self._visits = self.kernels.visits

    async def step(self) -> None:
        await super().step()
        self.lost += self.get("lost")
        for number, row in self.rows.rows.items():
            kills, task = self.get("kill") >> number & 1, self.held.get(number)
            if kills and isinstance(task, Queue):
                task.faulty = True
            if kills and row.running and not self.stuck:
                self.rows.finish(row)

    async def launch_all(self, tasks: Sequence[Task]) -> None:
        for ask in [self.ask(task) for task in tasks]:
            assert await self.did(ask) is ACCEPTED

    async def accepts_again(self, number: int, asid: int) -> None:
        """Launch a task in this space and let everything end; it is not killed."""
        task = Task(number, 5, asid=asid, channel=4, blocks=1)
        await self.launch_all([task])
        self.rows.end = 0.5
        await self.finish()
        assert task.outcome == "ended"

    async def die(self, tasks: Sequence[Task], limit: int) -> None:
        """Step until all these tasks are over, and check that each was killed."""
        await self.until(lambda: all(map(over, tasks)), "all killed", limit)
        assert all(self.killed(tasks))

    def killed(self, tasks: Sequence[Task]) -> list[bool]:
        return [self.verdicts.get(one.number) is KILLED for one in tasks]

    async def run_all(self, tasks: Sequence[Task]) -> None:
        """Run the contexts in turn until all tasks are over."""
        while left := [one.context for one in tasks if not over(one)]:
            await self.enter(left[0])
            await self.until(
                lambda: all(over(one) for one in tasks if one.context == self.get("context")),
                "the context's tasks end",
                40_000,
            )

    async def enter(self, context: int) -> None:
        """Make the running context leave, and another one enter."""
        self.drive(leave=1)
        await self.step()
        await self.until(lambda: self.get("empty"), "the context leaves", 20_000)
        self.drive(active=0, context=context)
        await self.steps(2)
        self.drive(leave=0, active=1)


def over(task: Task) -> bool:
    return task.outcome in ("ended", "failed") and task.row is None


def crowd(count: int, channels: Sequence[int], **fields: Any) -> list[Task]:
    """Tasks of these channels in turn, each with its own address space."""
    return [
        Task(n, priority=5, asid=1 + n, channel=channels[n % len(channels)], blocks=4, **fields)
        for n in range(count)
    ]


@cocotb.test()
async def channel_switched_off(dut: Any) -> None:
    """Tasks of a disabled channel are killed in rows and lists, although no slot becomes free;
    tasks of other channels stay where they are, and run in their order."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(3 * CONFIG.slots, (3, 6))
    await tb.launch_all(tasks)
    await tb.until(lambda: len(tb.held) >= CONFIG.slots, "slots are full")
    tb.switch_off(3)
    await tb.die([one for one in tasks if one.channel == 3], 10_000)
    others = [one for one in tasks if one.channel == 6]
    assert not any(tb.killed(others)) and all(not over(one) for one in others)
    tb.rows.end = 0.5
    await tb.finish()
    assert all(one.outcome == "ended" for one in others)


@cocotb.test()
async def rows_of_others(dut: Any) -> None:
    """`kill` is 1 for the rows of the tasks to be killed, and for no others."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(CONFIG.slots, (3, 6))
    await tb.launch_all(tasks)
    await tb.until(lambda: len(tb.held) == CONFIG.slots, "slots are full")
    named = sum(1 << row for row, one in tb.held.items() if one.channel == 6)
    seen = 0
    tb.switch_off(6)
    for _ in range(2000):
        await tb.step()
        assert not tb.get("kill") & ~named
        seen |= tb.get("kill")
    assert seen == named
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test()
async def overdue(dut: Any) -> None:
    """When a leaving context is overdue, its tasks with blocks on SMs fail. Tasks whose blocks have
    ended do not, and waiting tasks keep waiting (PREEMPT-1)."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(2 * CONFIG.slots, (3, 6))
    await tb.launch_all(tasks)
    rows = tb.rows.rows
    await tb.until(
        lambda: len(tb.held) == CONFIG.slots and all(rows[one].running for one in tb.held),
        "all slots have blocks on SMs",
    )
    await tb.steps(tb.random.randrange(40))
    tb.drive(leave=1)
    await tb.until(lambda: all(row.stopped for row in rows.values()), "all are stopped")
    stuck = [task for number, task in tb.held.items() if number % 2]
    for number in set(tb.held):
        for block in [] if tb.held[number] in stuck else [*rows[number].running]:
            tb.rows.finish(rows[number], block)
    await tb.until(lambda: tb.rows.reported, "the ends of their blocks are reported")
    await tb.step()
    assert len(tb.held) > len(stuck) > 0, "those whose blocks have ended are still in their rows"
    tb.drive(overdue=1)
    await tb.until(lambda: tb.get("empty"), "the context leaves")
    failed = [one for one in tasks if one.outcome == "failed"]
    assert {one.number for one in failed} == {one.number for one in stuck}
    assert {tb.verdicts[one.number] for one in failed} == {Refusal.TIMEOUT}
    tb.drive(active=0, overdue=0)
    await tb.steps(2)
    tb.drive(leave=0, active=1)
    tb.rows.end = 0.5
    await tb.finish()
    assert all(one.outcome == "ended" for one in tasks if one not in failed)


@cocotb.test()
async def overdue_at_wait_for_idle(dut: Any) -> None:
    """At level WFI, no task of a leaving context is stopped before the context is overdue. Then all
    its tasks fail whose blocks have not ended, even those with none on an SM, but some to be
    placed. Waiting tasks keep waiting (PREEMPT-1)."""
    tb = await KillTestbench(dut).start()
    tb.level = PreemptionLevel.WFI
    tb.drive(level=tb.level)
    tasks = crowd(2 * CONFIG.slots, (3, 6))
    tasks[0].blocks = 5000
    await tb.launch_all(tasks)
    rows = tb.rows.rows
    await tb.until(
        lambda: len(tb.held) == CONFIG.slots and all(rows[one].running for one in tb.held),
        "all slots have blocks on SMs",
    )
    tb.drive(leave=1)
    await tb.until(
        lambda: [one.row for one in rows.values() if one.left] == [tasks[0].row], "placed"
    )
    tb.rows.place = 0.0
    stuck = [task for task in tb.held.values() if task is tasks[0] or task.number % 2]
    for number, task in tb.held.items():
        for block in [] if task.number % 2 else [*rows[number].running]:
            tb.rows.finish(rows[number], block)
    await tb.until(lambda: len(tb.held) == len(stuck), "others have ended")
    await tb.steps(400)
    assert [*tb.held.values()] == stuck and not tb.get("empty")
    assert not any(row.stopped for row in rows.values())
    tb.faults = frozenset(task.number for task in stuck)
    tb.drive(overdue=1)
    await tb.until(lambda: tb.get("empty"), "the context leaves")
    failed = [one for one in tasks if one.outcome == "failed"]
    assert {one.number for one in failed} == tb.faults
    assert {tb.verdicts[one.number] for one in failed} == {Refusal.TIMEOUT}
    tb.drive(active=0, overdue=0)
    await tb.steps(2)
    tb.drive(leave=0, active=1)
    tb.rows.place = tb.rows.end = 0.5
    await tb.finish()
    assert all(one.outcome == "ended" for one in tasks if one not in failed)


@cocotb.test()
async def late_row(dut: Any) -> None:
    """A row that opens while the context is overdue is killed, too: nothing keeps the context from
    leaving (PREEMPT-1)."""
    for delay in range(0, 120, 3):
        tb = await KillTestbench(dut, place=1.0).start()
        task = Task(1, priority=5, asid=1, channel=3, blocks=4)
        tb.ask(task)
        await tb.steps(delay)
        tb.drive(leave=1)
        await tb.step()
        tb.drive(overdue=1)
        await tb.until(lambda tb=tb: tb.asks[0].verdict is ACCEPTED, "it is accepted")
        await tb.until(lambda tb=tb: tb.get("empty"), "the context leaves")
        await tb.steps(20)
        assert task.row is None
        assert tb.verdicts.get(1, Refusal.TIMEOUT) is Refusal.TIMEOUT


@cocotb.test()
async def queues(dut: Any) -> None:
    """Queues of a disabled channel are killed, whether they rest, run or wait; queues of other
    channels remain."""
    tb = await KillTestbench(dut).start()
    rest, other = (Queue(n, priority=5, asid=n, channel=2 + n % 2) for n in (1, 2))
    runs = Queue(3, priority=5, asid=3, channel=3, first=3)
    await tb.launch_all([rest, runs, other])
    await tb.until(lambda: runs.row is not None, "it runs")
    fillers = [Task(50 + n, 6, asid=10 + n, blocks=4, channel=7) for n in range(CONFIG.slots)]
    await tb.launch_all(fillers)
    waits = Queue(5, priority=5, asid=5, channel=3, first=2)
    await tb.launch_all([waits])
    tb.switch_off(3)
    await tb.die([rest, runs, waits], 5000)
    assert await tb.append(other, 1) is ACCEPTED
    tb.switch_on(3)
    again = Queue(6, priority=5, asid=6, channel=3)
    await tb.launch_all([again])
    tb.rows.end = 0.5
    for queue in (other, again):
        assert await tb.append(queue, CLOSE) is ACCEPTED
    await tb.finish()
    assert [one.outcome for one in (other, again)] == ["ended", "ended"]


@cocotb.test()
async def progress_of_a_queue(dut: Any) -> None:
    """OUTER_GET of a killed queue does not follow blocks that ended because of the kill, which does
    not delay moves of other queues (ASID-26)."""
    tb = await KillTestbench(dut, place=1.0).start()
    dies, other = (Queue(n, priority=5, asid=n, channel=2 + n, first=5) for n in (1, 2))
    await tb.launch_all([dies, other])
    for queue in (dies, other):
        await tb.until(lambda one=queue: one.row is not None, "it runs")
    rows = [tb.rows.rows[queue.row] for queue in (dies, other)]
    await tb.until(lambda: all(len(row.running) == 5 for row in rows), "blocks run")
    tb.rows.finish(rows[0], 0)
    await tb.until(lambda: tb.freed(dies) == 1, "it follows")
    tb.stuck = True
    tb.switch_off(3)
    await tb.until(lambda: dies.faulty, "it is killed")
    for block in range(1, 4):
        tb.rows.finish(rows[0], block)
        tb.rows.finish(rows[1], block - 1)
        await tb.until(lambda block=block: tb.freed(other) == block, "the other follows", 200)
    tb.stuck = False
    await tb.die([dies], 5000)
    assert tb.freed(dies) == 1
    assert await tb.append(other, CLOSE) is ACCEPTED
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test()
async def woken_queues(dut: Any) -> None:
    """Queues of a disabled channel are killed although all slots are held and others append to them
    at any moment: entries do not bring them back."""
    for delay in range(cocotb.RANDOM_SEED % 40, SWEEP, 40):
        tb = await KillTestbench(dut).start()
        fillers = crowd(CONFIG.slots, (7,))
        numbers = range(CONFIG.slots + 1, CONFIG.slots + 4)  # above the numbers of the others
        queues = [Queue(n, priority=4, asid=n, channel=3) for n in numbers]
        await tb.launch_all([*fillers, *queues])
        await tb.until(lambda tb=tb: len(tb.held) == CONFIG.slots, "slots are full")
        tb.switch_off(3)
        await tb.steps(delay)
        for queue in reversed(queues):
            tb.ask(queue, LaunchAction.INCREMENT_PUT, 1)
        await tb.die(queues, 5000)


@cocotb.test()
async def launches(dut: Any) -> None:
    """A disabled channel launches nothing, whatever the action (ASID-25)."""
    tb = await KillTestbench(dut).start()
    tb.switch_off(4)
    task = Task(1, 5, asid=1, channel=4)
    counted = Task(2, 5, asid=2, channel=4, fields={"dependence": 1})
    for one in (task, counted, Queue(3, 5, asid=3, channel=4)):
        assert await tb.did(tb.ask(one)) is KILLED
    tb.know(counted)
    assert await tb.did(tb.ask(counted, LaunchAction.DECREMENT_DEPENDENCE)) is KILLED
    tb.switch_on(4)
    assert await tb.did(tb.ask(counted, LaunchAction.DECREMENT_DEPENDENCE)) is ACCEPTED
    tb.rows.end = 0.5
    await tb.finish()


SCOPES: dict[str, tuple[KillScope, Callable[[Task, Task], bool]]] = {
    "task": (KillScope.TASK, lambda one, named: one is named),
    "space": (KillScope.SPACE, lambda one, named: one.asid == named.asid),
    "context": (KillScope.CONTEXT, lambda one, named: one.context == named.context),
}


@cocotb.test()
@cocotb.parametrize(scope=list(SCOPES), place=["row", "list"])
async def requested(dut: Any, scope: str, place: str) -> None:
    """A request kills exactly the tasks that it names, and is accepted when they have ended."""
    tb = await KillTestbench(dut).start()
    kind, names = SCOPES[scope]
    tasks = crowd(3 * CONFIG.slots, (3, 6))
    for task in tasks[1::3]:
        task.context = CONFIG.contexts - 1
    await tb.launch_all(tasks)
    mine = [one for one in tasks if one.context == 0]
    await tb.until(lambda: len(tb.held) == min(CONFIG.slots, len(mine)), "slots are full")
    held = next(iter(tb.held.values()))
    waiting = next(one for one in reversed(tasks) if one.row is None)
    named = held if place == "row" else waiting
    victims = [one for one in tasks if names(one, named)]
    tb.request(kind, named)
    await tb.until(lambda: not tb.requests.pending, "the request is accepted", 20_000)
    assert {one.outcome for one in victims} == {"failed"}
    assert tb.killed(tasks) == [one in victims for one in tasks]
    tb.rows.end = 0.5
    await tb.run_all(tasks)
    await tb.finish()
    assert all(one.outcome == "ended" for one in tasks if one not in victims)


@cocotb.test()
async def names_nothing(dut: Any) -> None:
    """A request of an unknown scope, or for a context that the configuration does not have, kills
    nothing."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(2 * CONFIG.slots, (3, 6))
    await tb.launch_all(tasks)
    await tb.until(lambda: len(tb.held) == CONFIG.slots, "slots are full")
    scope = {"scope": max(KillScope) + 1, "asid": tasks[0].asid, "page": tasks[0].page}
    contexts = [{"scope": KillScope.CONTEXT, "context": n} for n in range(CONFIG.contexts, 16)]
    for request in (scope, *contexts):
        tb.requests.put(request)
        await tb.until(lambda: not tb.requests.pending, "the request is accepted", 20_000)
    assert not any(tb.killed(tasks)) and not tb.get("kill")
    tb.rows.end = 0.5
    await tb.finish()
    assert all(one.outcome == "ended" for one in tasks)


class Twin(Task):
    """A task whose record is at the same address as that of task 1, in another space."""

    @property
    def page(self) -> int:
        return Task(1, 0).page


@cocotb.test()
async def same_record_elsewhere(dut: Any) -> None:
    """A request to kill a task names its address space, too: the same record elsewhere is not
    killed."""
    tb = await KillTestbench(dut).start()
    task, twin = Task(1, 5, asid=1, blocks=4), Twin(2, 5, asid=2, blocks=4)
    await tb.launch_all([task, twin])
    await tb.until(lambda: len(tb.held) == 2, "both run")
    tb.request(KillScope.TASK, task)
    await tb.until(lambda: not tb.requests.pending, "the request is accepted")
    tb.rows.end = 0.5
    await tb.finish()
    assert (task.outcome, twin.outcome) == ("failed", "ended")


@cocotb.test()
async def on_its_way_to_a_slot(dut: Any) -> None:
    """A request is accepted only when its last task is over, even if this task was on its way from
    its list to a slot at the end of the sweep. Visits of rows and tasks that get slots take turns,
    and the list is the last one of the sweep, so one of the list's lengths leads to this case."""
    context = CONFIG.contexts - 1
    for count in range(CONFIG.rows - 4, CONFIG.rows + 8):
        tb = await KillTestbench(dut).start()
        tasks = crowd(count, (3,), context=context)
        await tb.launch_all(tasks)
        await tb.enter(context)
        tb.request(KillScope.CONTEXT, tasks[0])
        await tb.until(lambda tb=tb: not tb.requests.pending, "the request is accepted", 20_000)
        assert all(map(over, tasks)), count
        await tb.finish()


@cocotb.test()
async def waits_for_its_blocks(dut: Any) -> None:
    """A request is accepted only when all blocks of its task have ended, however long they take."""
    tb = await KillTestbench(dut).start()
    task, tb.stuck = Task(1, 5, asid=1, blocks=4), True
    await tb.launch_all([task])
    await tb.until(
        lambda: any(len(row.running) == 4 for row in tb.rows.rows.values()), "its blocks run"
    )
    tb.request(KillScope.TASK, task)
    await tb.steps(3 * SWEEP)
    assert tb.get("kill") and tb.requests.pending
    tb.stuck = False
    await tb.until(lambda: not tb.requests.pending, "the request is accepted")
    assert all(tb.killed([task]))
    await tb.finish()


@cocotb.test()
async def launches_during_a_sweep(dut: Any) -> None:
    """Other channels launch while long lists are visited."""
    tb = await KillTestbench(dut, place=0.0).start()
    many = (1 << LOG_SIZE) - CONFIG.rows
    tasks = [Task(n, 5, asid=1, channel=6, blocks=4) for n in range(many + CONFIG.slots - 1)]
    last = Task(1000, 5, asid=2, channel=3, blocks=4)
    await tb.launch_all([*tasks, last])
    tb.switch_off(3)
    others = [Task(2000 + n, 4, asid=3, channel=7, blocks=4) for n in range(10)]
    await tb.launch_all(others)
    assert not over(last)
    await tb.die([last], 200 * many)


@cocotb.test()
async def change_of_context(dut: Any) -> None:
    """A context without rows can leave at any time during a sweep, however long the lists are; a
    visit leads no task into a row."""
    tb = await KillTestbench(dut, place=0.0).start()
    many = (1 << LOG_SIZE) - CONFIG.rows
    tasks = [Task(n, 5, context=1, asid=1, channel=6, blocks=1) for n in range(many)]
    last = Task(1000, 6, context=1, asid=2, channel=3, blocks=1)
    await tb.launch_all([*tasks, last])
    tb.drive(leave=1)
    await tb.until(lambda: tb.get("empty"), "the context has no rows")
    tb.switch_off(3)
    busy = longest = 0
    while not over(last):
        await tb.step()
        busy = 0 if tb.get("empty") else busy + 1
        longest = max(longest, busy)
        assert tb.cycle < 400 * many, "not killed"
    assert longest <= 1, f"the context cannot leave for {longest} cycles"


@cocotb.test()
async def refused_meanwhile(dut: Any) -> None:
    """While a request is in progress, new tasks that it names are refused; afterwards they are
    accepted."""
    tb = await KillTestbench(dut).start()
    task = Task(1, 5, asid=7, channel=3, blocks=4)
    await tb.launch_all([task])
    await tb.until(lambda: bool(tb.held), "it runs")
    await tb.steps(200)
    tb.stuck = True
    tb.request(KillScope.SPACE, task)
    await tb.until(lambda: tb.get("kill") != 0, "killed")
    late = Task(2, 5, asid=7, channel=4, blocks=1)
    assert await tb.did(tb.ask(late)) is KILLED
    late.asid = 1000
    assert tb.requests.pending
    tb.stuck = False
    await tb.until(lambda: not tb.requests.pending, "accepted")
    await tb.accepts_again(3, asid=7)


@cocotb.test()
async def ending_tasks(dut: Any) -> None:
    """A request waits for tasks that are ending, and then for their launches, which are refused: no
    named task comes back after it."""
    tb = await KillTestbench(dut).start()
    chain = Task(1, 5, asid=7, channel=3, blocks=1)
    tb.drive(finishing=1)
    tb.request(KillScope.SPACE, chain)
    await tb.steps(SWEEP)
    tb.drive(calm=0)
    await tb.steps(2)
    tb.drive(finishing=0)
    await tb.steps(SWEEP)
    assert tb.requests.pending
    assert await tb.did(tb.ask(chain)) is KILLED
    chain.asid = 1000
    assert tb.requests.pending
    tb.drive(calm=1)
    await tb.until(lambda: not tb.requests.pending, "the request is accepted", 10)
    await tb.accepts_again(2, asid=7)


@cocotb.test()
async def one_more_end(dut: Any) -> None:
    """Other tasks that end one after another do not delay a request for ever: it waits for the one
    that is ending, and for the one after it, or the two after it with nested launches."""
    tb = await KillTestbench(dut).start()
    behind, number = 2 if CONFIG.nested else 1, 0
    for ends in (1, 1 + behind, 1 + behind):
        tb.drive(finishing=1)
        tb.request(KillScope.SPACE, Task(9, 5, asid=9))
        await tb.steps(SWEEP)
        for _ in range(ends):
            assert tb.requests.pending
            number += 1
            task = Task(number, 5, asid=number, channel=3, blocks=1)
            await tb.launch_all([task])
            tb.rows.end = 0.5
            await tb.until(lambda task=task: over(task), "it ends")
            tb.rows.end = 0.0
            await tb.steps(20)
        assert bool(tb.requests.pending) == (ends <= behind)
        tb.drive(finishing=0)
        await tb.until(lambda: not tb.requests.pending, "the request is accepted", 10)
    await tb.finish()


@cocotb.test(skip=not CONFIG.nested)
async def ended_kernels(dut: Any) -> None:
    """A request waits until the kernels that have ended are visited, however long that takes; a
    task that has ended waits no longer to be taken by then. Other tasks go on meanwhile."""
    tb = await KillTestbench(dut).start()
    kernels, pace = tb.kernels, tb.ended.pace
    assert kernels is not None
    kernels.hold = True
    tasks = [Task(n, 5, asid=n, channel=3, blocks=1) for n in (1, 2)]
    tb.ended.pace = lambda: False
    await tb.launch_all(tasks[:1])
    tb.rows.end = 0.5
    await tb.until(lambda: tb.ended.offered, "it ends")
    tb.request(KillScope.SPACE, tasks[0])
    await tb.steps(SWEEP)
    assert not kernels.visits
    tb.ended.pace = pace
    await tb.until(lambda: kernels.visits == 1, "ended kernels are visited")
    assert tasks[0].outcome == "ended"
    await tb.launch_all(tasks[1:])
    await tb.until(lambda: over(tasks[1]), "another task ends")
    await tb.steps(SWEEP)
    assert tb.requests.pending
    kernels.hold = False
    await tb.until(lambda: not tb.requests.pending, "the request is accepted", 2 * SWEEP)
    assert kernels.visits == 1
    await tb.finish()


@cocotb.test()
@cocotb.parametrize(write=[True, False])
async def lists_without_memory(dut: Any, write: bool) -> None:
    """If the memory of the lists fails, tasks in lists are killed only when they get a slot, or
    lost as without a kill; tasks in rows are killed."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(CONFIG.slots + 2, (6,))
    held, listed = tasks[: CONFIG.slots], tasks[CONFIG.slots :]
    for task in listed:
        task.channel = 3
    await tb.launch_all(tasks)
    await tb.until(lambda: [*tb.held.values()] == held, "slots are full")
    area = range(AREA, AREA + (1 << 20))
    tb.contents.failing = [Failing((SYSTEM, 0), area, MemoryStatus.BUS, write=write)]
    tb.switch_off(3)
    await tb.steps(2 * SWEEP)
    assert not any(map(over, tasks)) and not tb.lost, "although no slot is free"
    tb.switch_off(6)
    await tb.die(tasks if write else held, 10_000)
    await tb.until(lambda: tb.get("idle"), "idle")
    assert tb.lost == (0 if write else len(listed))


@cocotb.test()
@cocotb.parametrize(place=[0, 1, 2], write=[True, False])
async def lists_without_memory_for_a_while(dut: Any, place: int, write: bool) -> None:
    """A task that cannot be read or marked in its list, at any place, is visited again, and the
    request is accepted only when the task is over."""
    tb = await KillTestbench(dut).start()
    tasks = crowd(CONFIG.slots + 3, (3,))
    await tb.launch_all(tasks)
    await tb.until(lambda: len(tb.held) == CONFIG.slots, "slots are full")
    named = [one for one in tasks if one.row is None][place]
    area = range(AREA, AREA + (1 << 20))
    tb.contents.failing = [Failing((SYSTEM, 0), area, MemoryStatus.BUS, write=write)]
    tb.request(KillScope.TASK, named)
    await tb.steps(SWEEP)
    assert tb.requests.pending and not over(named)
    tb.contents.failing = []
    await tb.until(lambda: not tb.requests.pending, "the request is accepted", 20_000)
    assert tb.killed(tasks) == [one is named for one in tasks]
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test()
async def random_kills(dut: Any) -> None:
    """When channels are switched off and requests name tasks at random, these tasks are killed, and
    all others end with every block run once."""
    tb = await KillTestbench(dut, place=0.4, end=0.4).start()
    rng, rounds = tb.random, Rounds(150)
    tasks: list[Task] = []
    condemned: set[int] = set()
    killed, channels = 0, range(2, 8)
    while rounds.more(killed > 30, killed):
        live = [one for one in tasks if not over(one)]
        act = rng.random()
        if act < 0.8:
            tasks += await _launch_some(tb, live, rounds.number, rng.sample(channels, 3))
        elif act < 0.9:
            channel = rng.choice(channels)
            mine = [one for one in live if one.channel == channel]
            tb.switch_off(channel)
            await tb.until(lambda mine=mine: all(map(over, mine)), "the channel ends", 20_000)
            tb.switch_on(channel)
            condemned |= {one.number for one in mine}
        elif live:
            named, (scope, names) = rng.choice(live), rng.choice(list(SCOPES.values()))
            tb.request(scope, named)
            await tb.until(lambda: not tb.requests.pending, "the request is accepted", 20_000)
            mine = [one for one in live if names(one, named)]
            assert all(map(over, mine))
            condemned |= {one.number for one in mine}
        await tb.steps(rng.choice((0, 10, 100)))
        killed = sum(tb.killed(tasks))
        if rng.random() < 0.1:
            await tb.enter(rng.choice((0, CONFIG.contexts - 1)))
    await tb.run_all(tasks)
    await tb.finish()
    for task in tasks:
        assert task.outcome == "ended" or (tb.killed([task])[0] and task.number in condemned), task
    print(f"{killed} of {len(tasks)} tasks killed in {tb.cycle} cycles")


async def _launch_some(
    tb: KillTestbench, live: Sequence[Task], number: int, channels: Sequence[int]
) -> list[Task]:
    """Launch a task on each channel, in address spaces without live tasks."""
    rng = tb.random
    free = sorted(set(range(1, CONFIG.asids)) - {one.asid for one in live})
    tasks = [
        Task(
            10 * number + n,
            priority=rng.choice((1, 5, 5, 9)),
            blocks=rng.randint(1, 6),
            head=rng.random() < 0.2,
            context=rng.choice((0, 0, CONFIG.contexts - 1)),
            asid=asid,
            channel=channel,
        )
        for n, (asid, channel) in enumerate(zip(free, channels, strict=False))
    ]
    await tb.launch_all(tasks)
    return tasks


@cocotb.test()
async def faults_of_others(dut: Any) -> None:
    """A kill request is complete once its own task has ended, although rows of others are killed
    all the time, each before the last one is free."""
    tb = await KillTestbench(dut).start()
    tb.stuck = True
    tasks = crowd(3 * CONFIG.slots, (3,))
    await tb.launch_all(tasks)
    named, others = tasks[0], deque(tasks[1:])
    await tb.until(lambda: running(tb, named), "it runs")
    tb.request(KillScope.TASK, named)
    while tb.requests.pending:
        assert len(others) > 1, "the request waits for the rows of others"
        await tb.until(lambda: running(tb, others[1]), "another one runs")
        for one in (others[0], others[1]):
            tb.faults |= {one.number}
            tb.drive(fault=1 << one.row)
            await tb.step()
            tb.drive(fault=0)
        await tb.steps(200)
        end_all(tb, named)
        end_all(tb, others[0])
        await tb.until(lambda: over(others[0]), "a row is free")
        others.popleft()
    assert tb.killed([named]) == [True]


def running(tb: KillTestbench, task: Task) -> bool:
    """Whether the task has blocks on SMs."""
    return task.row is not None and bool(tb.rows.rows[task.row].running)


def end_all(tb: KillTestbench, task: Task) -> None:
    """All blocks of the task end."""
    if task.row is not None:
        for block in [*tb.rows.rows[task.row].running]:
            tb.rows.finish(tb.rows.rows[task.row], block)
