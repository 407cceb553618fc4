"""Lists of tasks, compared with deques."""

import os
from collections import defaultdict, deque
from typing import Any

import cocotb

from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import task_pointer
from signalbox.hw.task_unit.task_lists import ListOutcome, ListVisit, TaskLists, second_word
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import LISTS
from signalbox.tb.testbench.contents import Contents, Failing
from signalbox.tb.testbench.ends import Source
from signalbox.tb.testbench.masks import mask
from signalbox.tb.testbench.record import Record
from signalbox.tb.testbench.servers import ReadServer, WriteServer

CONFIG = LISTS[os.environ["WORK_CONFIG"]]
DONE, FULL, MEMORY, NONE = ListOutcome
ASID = CONFIG.asids - 1
BASE = 0x1_2345_6000
TASK = 1 << 54  # values of the used fields of a task
RESUMED = 1 << 53
DROPPED = 1 << 62
SAVED = 1 << 63
POINTER = Record(task_pointer)

Level = tuple[int, int]
"""Context and level."""


class ListsTestbench(Testbench):
    """The lists, their memory, and the deques that they must equal.

    Members
    -------
    size, room : places of a list, and places for tasks other than returning ones.
    contents, write : memory, and its server of writes.
    model : tasks of each list.
    pending : list being visited, and its tasks still to be visited.
    """

    timeout = 300

    def __init__(
        self, dut: Any, log_size: int, share: float = 1.0, latency: tuple[int, int] = (5, 5)
    ) -> None:
        """`share`, `latency` : pace and latency of the memory."""
        super().__init__(dut, component(TaskLists, CONFIG))
        self.size = 1 << log_size
        self.room = self.size - CONFIG.rows
        self.model: dict[Level, deque[int]] = defaultdict(deque)
        self.pending: tuple[Level, deque[int]] = ((0, 0), deque())
        self.drive(area={"asid": ASID, "base": BASE >> 12, "log_size": log_size})
        self.contents = Contents()
        self._push, self._pop = Source(self, "push"), Source(self, "pop")
        self._visit = Source(self, "visit")
        pace, delay = self.share(share), self.between(*latency)
        ReadServer(self, self.contents, pace, delay)
        self.write = WriteServer(self, self.contents, pace, delay)

    async def push(self, where: Level, task: int, head: bool = False) -> ListOutcome:
        """Push a task. Returns the outcome."""
        self._push.put({"where": _level(where), "head": head, "task": task, **_second(task)})
        return (await self._answer("pushed"))["outcome"]

    async def pop(self, where: Level) -> tuple[ListOutcome, dict[str, int]]:
        """Pop a task. Returns outcome and task."""
        self._pop.put(_level(where))
        return self._found(await self._answer("popped"))

    def _found(self, answer: dict[str, Any]) -> tuple[ListOutcome, dict[str, int]]:
        """Outcome and task. Checks the task's second word."""
        if answer["outcome"] is DONE and CONFIG.preemption:
            expected, word = _second(POINTER.pack(answer["task"]))["second"], answer["second"]
            assert word["saved"] == expected["saved"] or not answer["task"]["saved"]
            assert word.get("kin") == expected.get("kin")
        return answer["outcome"], answer["task"]

    async def _answer(self, name: str) -> dict[str, Any]:
        await self.step()
        await self.until(lambda: self.get(name)["valid"], name)
        answer = self.get(name)
        await self.step()
        self.check_waiting()
        return answer

    def check_waiting(self) -> None:
        expected = mask(c * CONFIG.levels + level for (c, level), one in self.model.items() if one)
        assert self.get("waiting") == expected

    async def pushes(self, where: Level, task: int, head: bool = False) -> None:
        """Push a task, and check the outcome."""
        full = len(self.model[where]) >= (self.size if task & RESUMED else self.room)
        if not full:
            (self.model[where].appendleft if head else self.model[where].append)(task)
        assert await self.push(where, task, head) is (FULL if full else DONE)

    async def pops(self, where: Level) -> None:
        """Pop a task, and check that it is the first."""
        task = self._take(where)
        assert await self.pop(where) == (DONE, POINTER.unpack(task))

    def _take(self, where: Level) -> int:
        task = self.model[where].popleft()
        listed, left = self.pending
        if listed == where and left and left[0] == task:
            left.popleft()
        self._clear(where)
        return task

    def _clear(self, where: Level) -> None:
        """A list that contains only dropped tasks is empty."""
        if all(task & DROPPED for task in self.model[where]):
            self.model[where].clear()
            if self.pending[0] == where:
                self.pending[1].clear()

    async def visit(self, where: Level, step: ListVisit) -> tuple[ListOutcome, dict[str, int]]:
        """Take a step of a visit. Returns outcome and task."""
        self._visit.put({"where": _level(where), "step": step})
        answer = await self._answer("visited")
        return self._found(answer) if step is not ListVisit.DROP else (answer["outcome"], {})

    async def visits(self, where: Level, *, first: bool) -> int | None:
        """Visit the first or the next task, and check it. Returns the task, or None if there is
        none."""
        if first:
            self.pending = where, deque(self.model[where])
        where, left = self.pending
        task = left.popleft() if left else None
        outcome, found = await self.visit(where, ListVisit.FIRST if first else ListVisit.NEXT)
        assert outcome is (NONE if task is None else DONE)
        assert task is None or found == POINTER.unpack(task)
        return task

    async def drops(self, task: int) -> None:
        """Drop the task just visited."""
        where, _ = self.pending
        tasks = self.model[where]
        tasks[tasks.index(task)] = task | DROPPED
        self._clear(where)
        assert (await self.visit(where, ListVisit.DROP))[0] is DONE


def _second(task: int) -> dict[str, dict[str, dict[str, int]]]:
    """The second word of a task in these tests; empty without preemption."""
    if not CONFIG.preemption:
        return {}
    place, low = task % TASK % CONFIG.save_places, task % TASK
    form = {"barrier": low & 1, "warps": low % 65, "registers": low % 256, "shared": low % 229}
    word = {"saved": {"save_place": place, "placed": task >> 5 & 1, "form": form}}
    if CONFIG.nested:
        has = task & (SAVED | RESUMED) or POINTER.unpack(task)["depth"] > 1
        kin = {"known": 1, "kernel": task % TASK % CONFIG.nested_kernels}
        word["kin"] = kin if has else {"known": 0, "kernel": 0}
    return {"second": word}


def _level(where: Level) -> dict[str, int]:
    return {"context": where[0], "level": where[1]}


@cocotb.test()
async def order(dut: Any) -> None:
    """Tasks pushed at the tail keep their order, and tasks pushed at the head precede all others;
    levels and contexts are separate (ASID-23)."""
    tb = await ListsTestbench(dut, log_size=6).start()
    places = [(CONFIG.contexts - 1, 63), (0, 0), (0, 63), (CONFIG.contexts - 1, 5)]
    for number in range(4):
        for index, where in enumerate(places):
            await tb.pushes(where, number << 8 | index, head=number == 2)
    for where in places:
        while tb.model[where]:
            await tb.pops(where)
    assert tb.get("waiting") == 0


@cocotb.test()
async def full(dut: Any) -> None:
    """A full list refuses tasks, loses none, and does not affect its neighbours; returning tasks
    find room."""
    tb = await ListsTestbench(dut, log_size=6).start()
    for where in ((0, 7), (0, 8), (0, 6)):
        for task in range(tb.room + 2):
            await tb.pushes(where, task << 32 & (RESUMED - 1) | where[1], head=task == 2)
        for task in range(CONFIG.rows + 1):
            await tb.pushes(where, RESUMED | task, head=True)
        assert len(tb.model[where]) == tb.size
    for where in ((0, 7), (0, 8), (0, 6)):
        while tb.model[where]:
            await tb.pops(where)


@cocotb.test()
async def longest(dut: Any) -> None:
    """The last list of the largest area is at the right address."""
    tb = await ListsTestbench(dut, log_size=20).start()
    where = (CONFIG.contexts - 1, CONFIG.levels - 1)
    await tb.pushes(where, 0x1234)
    number = where[0] << CONFIG.level_bits | where[1]
    place = {burst.va for burst in tb.write.bursts}
    assert len(place) == 1
    low = BASE + number * CONFIG.list_entry_bytes * tb.size
    assert low <= place.pop() < low + CONFIG.list_entry_bytes * tb.size
    await tb.pops(where)


@cocotb.test()
async def memory_fails(dut: Any) -> None:
    """A task that cannot be written is not in the list; a task that cannot be read is lost and
    reported."""
    tb = await ListsTestbench(dut, log_size=6).start()
    everywhere = range(BASE, BASE + (1 << 20))
    for status in (MemoryStatus.BUS, MemoryStatus.FAULT):
        await tb.pushes((0, 1), 11)
        await tb.pushes((0, 1), 12)
        tb.contents.failing = [Failing((ASID, 0), everywhere, status, write=True)]
        assert await tb.push((0, 1), 13) is MEMORY
        assert await tb.push((0, 2), 14) is MEMORY
        tb.contents.failing = [Failing((ASID, 0), everywhere, status, write=False)]
        tb.model[0, 1].popleft()
        assert (await tb.pop((0, 1)))[0] is MEMORY
        tb.contents.failing = []
        await tb.pops((0, 1))


@cocotb.test()
async def dropped(dut: Any) -> None:
    """A visit reads the tasks of a list in order; dropped tasks keep their places until they are
    popped, and a list of dropped tasks is empty (PREEMPT-7)."""
    tb = await ListsTestbench(dut, log_size=6).start()
    where = (CONFIG.contexts - 1, 9)
    assert await tb.visits(where, first=True) is None
    for task in range(1, 6):
        await tb.pushes(where, task)
    await tb.pushes((0, 10), 77)
    for number in range(5):
        task = await tb.visits(where, first=number == 0)
        assert task == number + 1
        if task in (1, 4):
            await tb.drops(task)
    assert await tb.visits(where, first=False) is None
    for _ in range(4):
        await tb.pops(where)
    assert list(tb.model[where]) == [5]
    await tb.pushes(where, 6)
    for first in (True, False):
        task = await tb.visits(where, first=first)
        assert task is not None
        await tb.drops(task)
    assert not tb.model[where] and await tb.visits(where, first=False) is None
    await tb.pushes(where, 7)
    await tb.pops(where)
    await tb.pops((0, 10))


@cocotb.test()
async def visited_under_way(dut: Any) -> None:
    """Tasks may be pushed and popped between the steps of a visit: it reads each task that was in
    the list when it began and still is, and no other."""
    tb = await ListsTestbench(dut, log_size=6).start()
    where = (0, 20)
    for task in range(1, 5):
        await tb.pushes(where, task)
    assert await tb.visits(where, first=True) == 1
    await tb.pushes(where, 5)
    await tb.pushes(where, 6 | RESUMED, head=True)
    for _ in range(3):
        await tb.pops(where)
    assert await tb.visits(where, first=False) == 3
    await tb.pops(where)
    assert await tb.visits(where, first=False) == 4
    assert await tb.visits(where, first=False) is None
    assert list(tb.model[where]) == [4, 5]


@cocotb.test()
async def emptied_under_way(dut: Any) -> None:
    """A visit ends when only dropped tasks are left in its list."""
    tb = await ListsTestbench(dut, log_size=6).start()
    where = (0, 20)
    for task in range(1, 4):
        await tb.pushes(where, task)
    assert await tb.visits(where, first=True) == 1
    for task in (2, 3):
        assert await tb.visits(where, first=False) == task
        await tb.drops(task)
    assert await tb.visits(where, first=True) == 1
    await tb.pops(where)
    assert not tb.model[where]
    await tb.pushes(where, 9)
    assert await tb.visits(where, first=False) is None
    await tb.pops(where)


@cocotb.test()
async def visits_without_memory(dut: Any) -> None:
    """A visit passes over a task that cannot be read; a task that cannot be dropped stays."""
    tb = await ListsTestbench(dut, log_size=6).start()
    where, everywhere = (0, 3), range(BASE, BASE + (1 << 20))
    for task in range(1, 4):
        await tb.pushes(where, task)
    tb.contents.failing = [Failing((ASID, 0), everywhere, MemoryStatus.BUS, write=False)]
    assert (await tb.visit(where, ListVisit.FIRST))[0] is MEMORY
    tb.contents.failing = [Failing((ASID, 0), everywhere, MemoryStatus.BUS, write=True)]
    outcome, task = await tb.visit(where, ListVisit.NEXT)
    assert (outcome, task) == (DONE, POINTER.unpack(2))
    assert (await tb.visit(where, ListVisit.DROP))[0] is MEMORY
    tb.contents.failing = []
    assert (await tb.visit(where, ListVisit.NEXT))[1] == POINTER.unpack(3)
    for _ in range(3):
        await tb.pops(where)


@cocotb.test()
async def latency(dut: Any) -> None:
    """An operation takes at most 13 cycles plus memory's latency, including steps of the
    testbench."""
    tb = await ListsTestbench(dut, log_size=6, latency=(20, 20)).start()
    await tb.step()
    took = []
    for step in (tb.pushes((0, 1), 5), tb.pops((0, 1))):
        begun = tb.cycle
        await step
        took.append(tb.cycle - begun)
    print(f"latency 20: push {took[0]} cycles, pop {took[1]}")
    assert max(took) <= 20 + 13, took


@cocotb.test()
async def random_operations(dut: Any) -> None:
    """Random operations are correct with random memory latencies and pauses."""
    tb = await ListsTestbench(dut, log_size=6, share=0.6, latency=(0, 9)).start()
    rng = tb.random
    places = [(rng.randrange(CONFIG.contexts), rng.randrange(CONFIG.levels)) for _ in range(4)]
    for _ in range(300):
        where = places[0] if rng.random() < 0.6 else rng.choice(places)
        act = rng.random()
        if tb.model[where] and act < 0.3:
            await tb.pops(where)
        elif act < 0.5:
            task = await tb.visits(where, first=act < 0.33)
            if task is not None and not task & DROPPED and rng.random() < 0.7:
                await tb.drops(task)
        else:
            saved = SAVED * CONFIG.preemption * rng.randrange(2)
            await tb.pushes(where, rng.randrange(TASK) | saved, head=rng.random() < 0.3)


@cocotb.test(skip=not CONFIG.preemption)
async def second_words(dut: Any) -> None:
    """Saved blocks are in a second word behind their task. If it cannot be written, the task is not
    in the list; if it cannot be read, the task is lost; as with the first word. A dropped task
    keeps its second word."""
    tb = await ListsTestbench(dut, log_size=6, latency=(20, 20)).start()
    where, task = (0, 3), SAVED | RESUMED | 37
    begun = tb.cycle
    await tb.pushes(where, task)
    took = tb.cycle - begun
    await tb.pushes(where, 38)
    first = BASE + 3 * 16 * tb.size
    content = tb.contents.read((ASID, 0), first, 16 * tb.size)
    at = content.index(task.to_bytes(8, "little"))
    word = int.from_bytes(content[at + 8 : at + 16], "little")
    assert word == Record(second_word(CONFIG)).pack(_second(task)["second"])
    print(f"latency 20: push with saved blocks {took} cycles")
    assert took <= 2 * 20 + 16
    assert await tb.visits(where, first=True) == task
    await tb.drops(task)
    assert (await tb.pop(where))[1]["dropped"]
    tb.model[where].popleft()
    await tb.pops(where)
    for write in (True, False):
        if not write:
            await tb.pushes(where, task)
        tb.contents.failing = [
            Failing((ASID, 0), range(at + 8, at + 16), MemoryStatus.BUS, write=write)
            for at in range(first, first + 16 * tb.size, 16)
        ]
        if write:
            assert await tb.push(where, task) is MEMORY
            await tb.pushes(where, 39)
            await tb.pops(where)
        else:
            tb.model[where].clear()
            assert (await tb.pop(where))[0] is MEMORY
        tb.contents.failing = []
    await tb.pushes(where, task)
    await tb.pops(where)
