"""Lists of tasks, compared with deques."""

import os
from collections import defaultdict, deque
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from signalbox.hw.records.compute_control import list_area
from signalbox.hw.records.memory import MemoryStatus
from signalbox.hw.records.placement import task_level
from signalbox.hw.task_unit.task_lists import ListOutcome, list_push
from signalbox.tb.testbench.configs import LISTS
from signalbox.tb.testbench.memory import Bad, Memory, ReadMemory, WriteMemory
from signalbox.tb.testbench.reset import reset
from signalbox.tb.testbench.streams import Fields, Source

CONFIG = LISTS[os.environ["WORK_CONFIG"]]
DONE, FULL, MEMORY = (one.value for one in ListOutcome)
ASID = CONFIG.asids - 1
BASE = 0x1_2345_6000
TIMEOUT = 300
TASK = 1 << 54  # values of the used fields of a task
RESUMED = 1 << 53

Level = tuple[int, int]
"""Context and level."""


class Bench:
    """Testbench with the lists, their memory, and the deques that they must equal."""

    def __init__(self, dut: Any, log_size: int, pace=lambda: True, latency=lambda: 5) -> None:
        self.dut, self.cycle, self.size = dut, 0, 1 << log_size
        self.room = self.size - CONFIG.rows
        self.model: dict[Level, deque[int]] = defaultdict(deque)
        area = {"asid": ASID, "base": BASE >> 12, "log_size": log_size}
        dut.area.value = Fields(list_area(CONFIG)).pack(area)
        contents = Memory()
        self.push_to = Source(dut, "push", list_push(CONFIG), lambda: True)
        self.pop_from = Source(dut, "pop", task_level(CONFIG), lambda: True)
        dut.push__payload.value = 0
        dut.pop__payload.value = 0
        self.read = ReadMemory(dut, CONFIG, contents, pace, latency)
        self.write = WriteMemory(dut, CONFIG, contents, pace, latency)
        self.contents = contents

    async def step(self) -> None:
        await RisingEdge(self.dut.clk)
        self.cycle += 1
        for one in (self.read, self.write, self.push_to, self.pop_from):
            one.step(self.cycle)

    async def push(self, where: Level, task: int, head: bool = False) -> int:
        """Push a task. Returns the outcome."""
        level = where[1] | where[0] << 6
        word = {"where": level, "head": head, "task": task}
        self.push_to.put(0, lambda: word)
        return (await self._answer(self.dut.pushed)) >> 1

    async def pop(self, where: Level) -> tuple[int, int]:
        """Pop a task. Returns outcome and task."""
        word = {"level": where[1], "context": where[0]}
        self.pop_from.put(0, lambda: word)
        answer = (await self._answer(self.dut.popped)) >> 1
        return answer & 3, answer >> 2

    async def _answer(self, strobe: Any) -> int:
        for _ in range(TIMEOUT):
            await self.step()
            answer = int(strobe.value) if strobe.value.is_resolvable else int(strobe.value[0])
            if answer & 1:
                await self.step()
                self.check_waiting()
                return answer
        raise AssertionError("no answer")

    def check_waiting(self) -> None:
        waiting = int(self.dut.waiting.value)
        expected = sum(1 << (c * 64 + level) for (c, level), one in self.model.items() if one)
        assert waiting == expected

    async def pushes(self, where: Level, task: int, head: bool = False) -> None:
        """Push a task, and check the outcome."""
        full = len(self.model[where]) >= (self.size if task & RESUMED else self.room)
        if not full:
            (self.model[where].appendleft if head else self.model[where].append)(task)
        assert await self.push(where, task, head) == (FULL if full else DONE)

    async def pops(self, where: Level) -> None:
        task = self.model[where].popleft()
        assert await self.pop(where) == (DONE, task)


@cocotb.test()
async def order(dut: Any) -> None:
    """Tasks are pushed at the tail in order and at the head before all; levels and contexts are
    separate (ASID-23)."""
    bench = Bench(dut, log_size=6)
    await reset(dut)
    places = [(CONFIG.contexts - 1, 63), (0, 0), (0, 63), (CONFIG.contexts - 1, 5)]
    for number in range(4):
        for index, where in enumerate(places):
            await bench.pushes(where, number << 8 | index, head=number == 2)
    for where in places:
        while bench.model[where]:
            await bench.pops(where)
    assert int(dut.waiting.value) == 0


@cocotb.test()
async def full(dut: Any) -> None:
    """A full list refuses, loses nothing, and does not affect its neighbours; returning tasks find
    room."""
    bench = Bench(dut, log_size=5)
    await reset(dut)
    for where in ((0, 7), (0, 8), (0, 6)):
        for task in range(bench.room + 2):
            await bench.pushes(where, task << 32 & (RESUMED - 1) | where[1], head=task == 2)
        for task in range(CONFIG.rows + 1):
            await bench.pushes(where, RESUMED | task, head=True)
        assert len(bench.model[where]) == bench.size
    for where in ((0, 7), (0, 8), (0, 6)):
        while bench.model[where]:
            await bench.pops(where)


@cocotb.test()
async def longest(dut: Any) -> None:
    """The last list of the largest area is at the right address."""
    bench = Bench(dut, log_size=20)
    await reset(dut)
    where = (CONFIG.contexts - 1, 63)
    await bench.pushes(where, 0x1234)
    number = where[0] * 64 + where[1]
    place = {burst.va for burst in bench.write.log}
    assert len(place) == 1
    low = BASE + number * 8 * bench.size
    assert low <= place.pop() < low + 8 * bench.size
    await bench.pops(where)


@cocotb.test()
async def memory_fails(dut: Any) -> None:
    """A task that cannot be written is not in the list; one that cannot be read is lost and
    reported."""
    bench = Bench(dut, log_size=6)
    await reset(dut)
    everywhere = range(BASE, BASE + (1 << 20))
    for status in (MemoryStatus.BUS, MemoryStatus.FAULT):
        await bench.pushes((0, 1), 11)
        await bench.pushes((0, 1), 12)
        bench.write.bad = [Bad((ASID, 0), status.value, everywhere, True)]
        assert await bench.push((0, 1), 13) == MEMORY
        assert await bench.push((0, 2), 14) == MEMORY
        bench.write.bad = []
        bench.read.bad = [Bad((ASID, 0), status.value, everywhere, False)]
        bench.model[0, 1].popleft()
        assert (await bench.pop((0, 1)))[0] == MEMORY
        bench.read.bad = []
        await bench.pops((0, 1))


@cocotb.test()
async def latency(dut: Any) -> None:
    """An operation takes 8 cycles plus memory's latency."""
    bench = Bench(dut, log_size=6, latency=lambda: 20)
    await reset(dut)
    await bench.step()
    took = []
    for step in (bench.pushes((0, 1), 5), bench.pops((0, 1))):
        begun = bench.cycle
        await step
        took.append(bench.cycle - begun)
    print(f"latency 20: push {took[0]} cycles, pop {took[1]}")
    assert max(took) <= 20 + 13, took


@cocotb.test()
async def random_operations(dut: Any) -> None:
    """Random operations are correct for any speed of memory."""
    rng = Random(cocotb.RANDOM_SEED)
    bench = Bench(
        dut,
        log_size=5,
        pace=lambda: rng.random() < 0.6,
        latency=lambda: rng.randint(0, 9),
    )
    await reset(dut)
    places = [(rng.randrange(CONFIG.contexts), rng.randrange(64)) for _ in range(4)]
    for _ in range(300):
        where = places[0] if rng.random() < 0.6 else rng.choice(places)
        if bench.model[where] and rng.random() < 0.35:
            await bench.pops(where)
        else:
            await bench.pushes(where, rng.randrange(TASK), head=rng.random() < 0.3)
