"""The task unit, with rows and memory in Python, compared with a model of lists and slots."""

from typing import Any

import cocotb

from signalbox.hw.records.launch import Refusal
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.memory import Bad
from signalbox.tb.units.task_unit.task_testbench import CONFIG, LOG_SIZE, TIMEOUT, Task, begin


@cocotb.test()
async def into_free_slots(dut: Any) -> None:
    """While slots are free, a launch goes directly to a slot; ended tasks are passed on
    (ASID-24)."""
    bench = await begin(dut)
    for number in range(CONFIG.slots):
        bench.submit(Task(number, priority=number % 64, blocks=number + 1))
    await bench.until(lambda: not bench.offered, "launches accepted")
    assert all(task.outcome != "waits" for task in bench.accepted)
    await bench.finish()
    assert int(dut.kill.value) == 0


@cocotb.test()
async def highest_list_first(dut: Any) -> None:
    """Waiting tasks get slots by level, in order within a level, head insertion first (ASID-23)."""
    bench = await begin(dut, place=0.0)
    for number in range(CONFIG.slots):
        bench.submit(Task(number, priority=63, blocks=number + 1))
    for number, priority in enumerate((5, 7, 5, 7, 0, 62, 7, 5)):
        bench.submit(
            Task(100 + number, priority=priority, blocks=50 + number, head=number in (6, 7))
        )
    await bench.until(lambda: not bench.offered, "launches accepted")
    assert len(bench.running) == CONFIG.slots and bench._best() == 62
    bench.rows.place = 0.5
    await bench.finish()


@cocotb.test()
async def eviction_and_resume(dut: Any) -> None:
    """A higher task takes the slot of the lowest, which later continues where it stopped; no block
    is lost or run twice (ASID-24, ASID-25)."""
    bench = await begin(dut, place=0.0, end=0.5)
    low = [
        Task(number, priority=min(1 + number, 49), blocks=40 + number)
        for number in range(CONFIG.slots)
    ]
    for task in low:
        bench.submit(task)
    await bench.until(lambda: len(bench.running) == CONFIG.slots, "all slots held", 20 * TIMEOUT)
    bench.rows.place = 0.3
    for _ in range(40):
        await bench.step()
    urgent = [Task(100 + number, priority=50, blocks=300 + number) for number in range(2)]
    for task in urgent:
        bench.submit(task)
    await bench.until(lambda: all(task.outcome == "runs" for task in urgent), "urgent ones run")
    assert low[0].stops == 1 and low[1].stops == 1 and sum(task.stops for task in low) == 2
    await bench.finish()
    assert low[0].resumed and low[1].resumed


@cocotb.test()
async def equal_priority_evicts_nobody(dut: Any) -> None:
    bench = await begin(dut, place=0.05)
    for number in range(CONFIG.slots + 3):
        bench.submit(Task(number, priority=9, blocks=2 + number))
    await bench.finish()
    assert not any(task.stops for task in bench.accepted)


@cocotb.test()
async def refused(dut: Any) -> None:
    """An illegal launch is reported to its channel and affects no other (HOST-10)."""
    bench = await begin(dut)
    low = 0x10_0000 + 200 << 8
    bench.read.bad = [Bad((0, 0), MemoryStatus.FAULT.value, range(low, low + 256), False)]
    cases = [
        (Task(200, priority=3), Refusal.FAULT.value),
        (Task(201, priority=3, fields={"registers": 0}), Refusal.CHECK.value | 6 << 4),
        (Task(202, priority=3, fields={"major": 2}), Refusal.MODEL.value),
        (Task(203, priority=3, blocks=7), 0),
    ]
    for task, _ in cases:
        bench.submit(task)
    await bench.finish()
    for task, verdict in cases:
        assert bench.verdicts[task.number] == verdict, task


@cocotb.test()
async def record_changes_while_it_waits(dut: Any) -> None:
    """A record corrupted after its launch ends only its own task."""
    bench = await begin(dut, place=0.0)
    for number in range(CONFIG.slots):
        bench.submit(Task(number, priority=9, blocks=2 + number))
    victim, other = Task(100, priority=8, blocks=90), Task(101, priority=8, blocks=91)
    bench.submit(victim)
    bench.submit(other)
    await bench.until(lambda: not bench.offered, "launches accepted")
    bench.contents.write((0, 0), victim.page << 8, bytes(256))
    bench.rows.place = 0.5
    await bench.finish()
    assert victim.outcome == "failed" and bench.verdicts[100] == Refusal.MODEL.value
    assert other.outcome == "ended"


@cocotb.test()
async def full_list(dut: Any) -> None:
    """A full list refuses; others have room, and so do evicted tasks."""
    bench = await begin(dut, place=0.02)
    for number in range(CONFIG.slots):
        bench.submit(Task(number, priority=4, blocks=200 + number))
    room = (1 << LOG_SIZE) - CONFIG.rows
    for number in range(room + 2):
        bench.submit(Task(300 + number, priority=4, blocks=1 + number % 3))
    bench.submit(Task(999, priority=5, blocks=190))
    await bench.until(lambda: not bench.offered, "launches accepted", 20 * TIMEOUT)
    refused = [n for n, verdict in bench.verdicts.items() if verdict == Refusal.FULL.value]
    assert refused == [300 + room, 300 + room + 1]
    bench.rows.place = bench.rows.end = 1.0
    await bench.finish()


@cocotb.test()
async def ends_that_nobody_takes(dut: Any) -> None:
    """Tasks that end one after another wait for each other; none is lost (ASID-24)."""
    bench = await begin(dut, place=1.0, end=1.0)
    bench.takes_ends = False
    for number in range(CONFIG.slots):
        bench.submit(Task(number, priority=5, blocks=number + 1))
    await bench.until(lambda: not bench.offered, "launches accepted")
    for _ in range(300):
        await bench.step()
    assert len(bench.held) == CONFIG.slots - 1, "one end waits, the other tasks keep their rows"
    bench.takes_ends = True
    await bench.finish()
    assert all(task.outcome == "ended" for task in bench.accepted)


@cocotb.test()
async def room_for_the_evicted(dut: Any) -> None:
    """Tasks inserted at the head of a full list do not take the places of returning tasks."""
    bench = await begin(dut, place=0.0)
    slots, room = CONFIG.slots, (1 << LOG_SIZE) - CONFIG.rows
    for number in range(slots + room):
        bench.submit(Task(number, priority=4, blocks=200 + number))
    await bench.until(lambda: not bench.offered, "launches accepted", 20 * TIMEOUT)
    for turn in range(3):
        urgent = [Task(1000 + 100 * turn + n, priority=50, blocks=20 + n) for n in range(slots)]
        for task in urgent:
            bench.submit(task)
        bench.rows.end = 1.0
        await bench.until(
            lambda those=urgent: all(one.outcome == "runs" for one in those),
            "urgent ones run",
            20 * TIMEOUT,
        )
        heads = [Task(2000 + 100 * turn + n, priority=4, blocks=3, head=True) for n in range(slots)]
        for task in heads:
            bench.submit(task)
        bench.rows.place = 1.0
        await bench.until(
            lambda those=urgent: all(one.outcome == "ended" for one in those),
            "urgent ones end",
            20 * TIMEOUT,
        )
        bench.rows.place = 0.0
        await bench.until(lambda: not bench.offered, "launches accepted", 20 * TIMEOUT)
    for one in bench.tasks.values():
        assert one.outcome != "failed", one
    bench.rows.place = 1.0
    await bench.finish()
    assert all(task.outcome == "ended" for task in bench.accepted)


@cocotb.test()
async def contexts(dut: Any) -> None:
    """Nothing runs before its context is active; when a context leaves, so do its tasks, which
    continue when it returns (ASID-21)."""
    if CONFIG.contexts == 1:
        return
    bench = await begin(dut, place=0.3)
    dut.active.value = bench.active = 0
    for number in range(6):
        bench.submit(Task(number, priority=number, blocks=30 + number, context=number % 2))
    await bench.until(lambda: not bench.offered, "launches accepted")
    for _ in range(200):
        await bench.step()
    assert not bench.held
    for turn in range(8):
        dut.active.value = bench.active = 1
        for _ in range(100):
            await bench.step()
        dut.leave.value = bench.leave = 1
        bench.late = 0
        await bench.step()
        await bench.until(lambda: int(dut.empty.value), "context has left")
        assert not bench.held
        dut.active.value = bench.active = 0
        dut.context.value = bench.context = 1 - bench.context
        for _ in range(5):
            await bench.step()
        dut.leave.value = bench.leave = 0
        print(f"turn {turn}: {[task.outcome for task in bench.accepted]}")
    for _ in range(4):
        dut.active.value = bench.active = 1
        for _ in range(1500):
            await bench.step()
        dut.leave.value = bench.leave = 1
        bench.late = 0
        await bench.step()
        await bench.until(lambda: int(dut.empty.value), "context has left")
        dut.active.value = bench.active = 0
        dut.context.value = bench.context = 1 - bench.context
        await bench.step()
        dut.leave.value = bench.leave = 0
    await bench.finish()
    assert any(task.resumed for task in bench.accepted)


@cocotb.test()
async def faults(dut: Any) -> None:
    """A task with a failed warp is stopped, its blocks are killed, and it fails; others
    continue."""
    bench = await begin(dut, place=0.0, end=0.1)
    tasks = [Task(number, priority=5, blocks=20 + number) for number in range(CONFIG.slots)]
    for task in tasks:
        bench.submit(task)
    await bench.until(lambda: len(bench.running) == CONFIG.slots, "all slots held")
    bench.rows.place = 0.2
    bad = tasks[1]
    bench.faults = frozenset({1})
    assert bad.row is not None
    dut.fault.value = 1 << bad.row
    await bench.step()
    dut.fault.value = 0
    for _ in range(3):
        await bench.step()
    assert int(dut.kill.value) == 1 << bad.row
    await bench.finish()
    assert bad.outcome == "failed" and bench.verdicts[1] == Refusal.KERNEL.value
    assert len(bad.done) < bad.blocks and int(dut.kill.value) == 0
    assert all(task.outcome == "ended" for task in tasks if task is not bad)


@cocotb.test()
async def random_tasks(dut: Any) -> None:
    """Random priorities and sizes, launched at any time and partly evicted, are handled
    correctly."""
    bench = await begin(dut, place=0.5, end=0.4)
    rng, stops, rounds = bench.rng, 0, Rounds(5 * CONFIG.slots)
    while rounds.more(stops > 0, stops):
        task = Task(
            rounds.number,
            priority=rng.choice((0, 1, 5, 5, 20, 63)),
            blocks=1 + rounds.number + rng.randrange(2) * 100,
            head=rng.random() < 0.2,
            fields={"placement": rng.randrange(4)},
            asid=rng.randrange(min(CONFIG.asids, 4)),
        )
        bench.submit(task)
        for _ in range(rng.choice((0, 0, 20, 200))):
            await bench.step()
        stops = sum(task.stops for task in bench.accepted)
    await bench.finish()
    print(f"{sum(task.stops for task in bench.accepted)} evictions")
