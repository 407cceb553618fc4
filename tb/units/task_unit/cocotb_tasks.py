"""The task unit, with rows and memory in Python, compared with a model of lists and slots."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.testbench.ends import always
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.task_unit.task_testbench import (
    ACCEPTED,
    CONFIG,
    LOG_SIZE,
    TIMEOUT,
    Task,
    TaskTestbench,
)


@cocotb.test()
async def into_free_slots(dut: Any) -> None:
    """While slots are free, a launch goes directly to a slot; ended tasks are passed on
    (ASID-24)."""
    tb = await TaskTestbench(dut).start()
    for number in range(CONFIG.slots):
        tb.submit(Task(number, priority=number % 64, blocks=number + 1))
    await tb.until(lambda: not tb.offered, "launches accepted")
    assert all(task.outcome != "waits" for task in tb.accepted)
    await tb.finish()
    assert tb.get("kill") == 0


@cocotb.test()
async def highest_list_first(dut: Any) -> None:
    """Waiting tasks get slots by level, in order within a level, tasks inserted at the head first
    (ASID-23)."""
    tb = await TaskTestbench(dut, place=0.0).start()
    for number in range(CONFIG.slots):
        tb.submit(Task(number, priority=63, blocks=number + 1))
    for number, priority in enumerate((5, 7, 5, 7, 0, 62, 7, 5)):
        tb.submit(Task(100 + number, priority=priority, blocks=50 + number, head=number in (6, 7)))
    await tb.until(lambda: not tb.offered, "launches accepted")
    assert len(tb.running) == CONFIG.slots and tb.best() == 62
    tb.rows.place = 0.5
    await tb.finish()


@cocotb.test()
async def eviction_and_resume(dut: Any) -> None:
    """A higher task takes the slot of the lowest, which later continues where it stopped; no block
    is lost or run twice (ASID-24, ASID-25)."""
    tb = await TaskTestbench(dut, place=0.0, end=0.5).start()
    low = [
        Task(number, priority=min(1 + number, 49), blocks=40 + number)
        for number in range(CONFIG.slots)
    ]
    for task in low:
        tb.submit(task)
    await tb.until(lambda: len(tb.running) == CONFIG.slots, "all slots held", 20 * TIMEOUT)
    tb.rows.place = 0.3
    await tb.steps(40)
    urgent = [Task(100 + number, priority=50, blocks=300 + number) for number in range(2)]
    for task in urgent:
        tb.submit(task)
    await tb.until(lambda: all(task.outcome == "runs" for task in urgent), "urgent ones run")
    assert low[0].stops == 1 and low[1].stops == 1 and sum(task.stops for task in low) == 2
    await tb.finish()
    assert low[0].resumed and low[1].resumed


@cocotb.test()
async def equal_priority_evicts_nobody(dut: Any) -> None:
    tb = await TaskTestbench(dut, place=0.05).start()
    for number in range(CONFIG.slots + 3):
        tb.submit(Task(number, priority=9, blocks=2 + number))
    await tb.finish()
    assert not any(task.stops for task in tb.accepted)


@cocotb.test()
async def refused(dut: Any) -> None:
    """An illegal launch is reported to its channel and affects no other (HOST-10)."""
    tb = await TaskTestbench(dut).start()
    low = 0x10_0000 + 200 << 8
    tb.contents.failing = [Failing((0, 0), range(low, low + 256), MemoryStatus.FAULT, write=False)]
    cases = [
        (Task(200, priority=3), Refusal.FAULT),
        (Task(201, priority=3, fields={"registers": 0}), SkedCheck.REGISTER_COUNT),
        (Task(202, priority=3, fields={"major": 2}), Refusal.MODEL),
        (Task(203, priority=3, blocks=7), ACCEPTED),
    ]
    for task, _ in cases:
        tb.submit(task)
    await tb.finish()
    for task, verdict in cases:
        assert tb.verdicts[task.number] is verdict, task


@cocotb.test()
async def record_changes_while_it_waits(dut: Any) -> None:
    """A record corrupted after its launch ends only its own task."""
    tb = await TaskTestbench(dut, place=0.0).start()
    for number in range(CONFIG.slots):
        tb.submit(Task(number, priority=9, blocks=2 + number))
    victim, other = Task(100, priority=8, blocks=90), Task(101, priority=8, blocks=91)
    tb.submit(victim)
    tb.submit(other)
    await tb.until(lambda: not tb.offered, "launches accepted")
    tb.contents.write((0, 0), victim.page << 8, bytes(256))
    tb.rows.place = 0.5
    await tb.finish()
    assert victim.outcome == "failed" and tb.verdicts[100] is Refusal.MODEL
    assert other.outcome == "ended"


@cocotb.test()
async def full_list(dut: Any) -> None:
    """A full list refuses tasks; other lists have room, and evicted tasks find room."""
    tb = await TaskTestbench(dut, place=0.02).start()
    for number in range(CONFIG.slots):
        tb.submit(Task(number, priority=4, blocks=200 + number))
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(room + 2):
        tb.submit(Task(300 + number, priority=4, blocks=1 + number % 3))
    tb.submit(Task(999, priority=5, blocks=190))
    await tb.until(lambda: not tb.offered, "launches accepted", 20 * TIMEOUT)
    refused = [n for n, verdict in tb.verdicts.items() if verdict is Refusal.FULL]
    assert refused == [300 + room, 300 + room + 1]
    tb.rows.place = tb.rows.end = 1.0
    await tb.finish()


@cocotb.test()
async def ends_that_nobody_takes(dut: Any) -> None:
    """Ends of tasks that nobody takes wait for each other; none is lost (ASID-24)."""
    tb = await TaskTestbench(dut, place=1.0, end=1.0).start()
    tb.ended.pace = lambda: False
    for number in range(CONFIG.slots):
        tb.submit(Task(number, priority=5, blocks=number + 1))
    await tb.until(lambda: not tb.offered, "launches accepted")
    await tb.steps(300)
    assert len(tb.held) == CONFIG.slots - 1, "one end waits, the other tasks keep their rows"
    tb.ended.pace = always
    await tb.finish()
    assert all(task.outcome == "ended" for task in tb.accepted)


@cocotb.test()
async def room_for_the_evicted(dut: Any) -> None:
    """Tasks inserted at the head of a full list do not take the places of returning tasks."""
    tb = await TaskTestbench(dut, place=0.0).start()
    slots, room = CONFIG.slots, (1 << LOG_SIZE) - CONFIG.rows
    for number in range(slots + room):
        tb.submit(Task(number, priority=4, blocks=200 + number))
    await tb.until(lambda: not tb.offered, "launches accepted", 20 * TIMEOUT)
    for turn in range(3):
        urgent = [Task(1000 + 100 * turn + n, priority=50, blocks=20 + n) for n in range(slots)]
        for task in urgent:
            tb.submit(task)
        tb.rows.end = 1.0
        await tb.until(
            lambda those=urgent: all(one.outcome == "runs" for one in those),
            "urgent ones run",
            20 * TIMEOUT,
        )
        heads = [Task(2000 + 100 * turn + n, priority=4, blocks=3, head=True) for n in range(slots)]
        for task in heads:
            tb.submit(task)
        tb.rows.place = 1.0
        await tb.until(
            lambda those=urgent: all(one.outcome == "ended" for one in those),
            "urgent ones end",
            20 * TIMEOUT,
        )
        tb.rows.place = 0.0
        await tb.until(lambda: not tb.offered, "launches accepted", 20 * TIMEOUT)
    for one in tb.tasks.values():
        assert one.outcome != "failed", one
    tb.rows.place = 1.0
    await tb.finish()
    assert all(task.outcome == "ended" for task in tb.accepted)


@cocotb.test(skip=CONFIG.contexts == 1)
async def contexts(dut: Any) -> None:
    """No task runs before its context is active; when a context leaves, so do its tasks, which
    continue when it returns (ASID-21)."""
    tb = await TaskTestbench(dut, place=0.3).start()
    tb.drive(active=0)
    for number in range(6):
        tb.submit(Task(number, priority=number, blocks=30 + number, context=number % 2))
    await tb.until(lambda: not tb.offered, "launches accepted")
    await tb.steps(200)
    assert not tb.held
    for turn in range(8):
        tb.drive(active=1)
        await tb.steps(100)
        tb.drive(leave=1)
        tb.late = 0
        await tb.step()
        await tb.until(lambda: tb.get("empty"), "context has left")
        assert not tb.held
        tb.drive(active=0, context=1 - tb.get("context"))
        await tb.steps(5)
        tb.drive(leave=0)
        print(f"turn {turn}: {[task.outcome for task in tb.accepted]}")
    for _ in range(4):
        tb.drive(active=1)
        await tb.steps(1500)
        tb.drive(leave=1)
        tb.late = 0
        await tb.step()
        await tb.until(lambda: tb.get("empty"), "context has left")
        tb.drive(active=0, context=1 - tb.get("context"))
        await tb.step()
        tb.drive(leave=0)
    await tb.finish()
    assert any(task.resumed for task in tb.accepted)


@cocotb.test()
async def faults(dut: Any) -> None:
    """A task with a failed warp is stopped, its blocks are killed, and it fails; others
    continue."""
    tb = await TaskTestbench(dut, place=0.0, end=0.1).start()
    tasks = [Task(number, priority=5, blocks=20 + number) for number in range(CONFIG.slots)]
    for task in tasks:
        tb.submit(task)
    await tb.until(lambda: len(tb.running) == CONFIG.slots, "all slots held")
    tb.rows.place = 0.2
    bad = tasks[1]
    tb.faults = frozenset({1})
    assert bad.row is not None
    tb.drive(fault=1 << bad.row)
    await tb.step()
    tb.drive(fault=0)
    await tb.steps(3)
    assert tb.get("kill") == 1 << bad.row
    await tb.finish()
    assert bad.outcome == "failed" and tb.verdicts[1] is Refusal.KERNEL
    assert len(bad.done) < bad.blocks and tb.get("kill") == 0
    assert all(task.outcome == "ended" for task in tasks if task is not bad)


@cocotb.test()
async def random_tasks(dut: Any) -> None:
    """Random priorities and sizes, launched at any time and partly evicted, are handled
    correctly."""
    tb = await TaskTestbench(dut, place=0.5, end=0.4).start()
    rng, stops, rounds = tb.random, 0, Rounds(5 * CONFIG.slots)
    while rounds.more(stops > 0, stops):
        task = Task(
            rounds.number,
            priority=rng.choice((0, 1, 5, 5, 20, 63)),
            blocks=1 + rounds.number + rng.randrange(2) * 100,
            head=rng.random() < 0.2,
            fields={"placement": rng.randrange(4), "urgency": rng.randrange(4)},
            # With the size, this identifies a task; sizes are the same again 100 tasks later.
            asid=(rounds.number // 100 % 2 + 2 * rng.randrange(2)) % min(CONFIG.asids, 4),
        )
        tb.submit(task)
        await tb.steps(rng.choice((0, 0, 20, 200)))
        stops = sum(task.stops for task in tb.accepted)
    await tb.finish()
    print(f"{sum(task.stops for task in tb.accepted)} evictions")
