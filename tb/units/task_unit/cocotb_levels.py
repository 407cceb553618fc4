"""Preemption levels: how tasks leave their slots (PREEMPT-1, PREEMPT-7, PREEMPT-8)."""

from typing import Any

import cocotb

from signalbox.hw.errors import Refusal
from signalbox.hw.registers import PreemptionLevel
from signalbox.tb.models.tasks import FIELDS
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.testbench.masks import mask
from signalbox.tb.units.task_unit.task_testbench import CONFIG, TIMEOUT, Task, TaskTestbench

CILP = PreemptionLevel.CILP
WITH_PLACES = {"skip": not CONFIG.preemption}


async def switch(tb: TaskTestbench, *, to: int, limit: int = 4 * TIMEOUT) -> None:
    """The context leaves, and another becomes active. If it does not leave within `limit` cycles,
    it is overdue."""
    tb.drive(leave=1)
    tb.late = 0
    due = tb.cycle + limit
    await tb.step()
    while not tb.get("empty") and tb.cycle < due:
        await tb.step()
    assert tb.get("empty") or limit < 4 * TIMEOUT, "context has not left"
    tb.drive(overdue=not tb.get("empty"))
    while not tb.get("empty"):
        await tb.step()
        assert tb.cycle < due + 4 * TIMEOUT, "overdue context has not left"
        kill = tb.get("kill")
        tb.faults |= {task.number for row, task in tb.held.items() if kill >> row & 1}
    assert not tb.held
    tb.drive(active=0, overdue=0, context=to)
    await tb.steps(3)
    tb.drive(active=1, leave=0)


async def fill(tb: TaskTestbench, **fields: int) -> list[Task]:
    """Fill all slots with tasks whose records have these fields."""
    tasks = [
        Task(number, priority=5, blocks=20 + number, channel=2 + number % 2, fields=fields)
        for number in range(CONFIG.slots)
    ]
    place, tb.rows.place = tb.rows.place, 0.0
    for task in tasks:
        tb.submit(task)
    await tb.until(lambda: len(tb.running) == CONFIG.slots, "all slots held", 20 * TIMEOUT)
    tb.rows.place = place
    return tasks


async def saved(tb: TaskTestbench, tasks: list[Task]) -> None:
    """Let all blocks of the tasks be placed and none end; then let their context leave."""
    tb.rows.end, tb.rows.place = 0.0, 1.0
    rows = tb.rows.rows.values()
    await tb.until(lambda: not any(row.left for row in rows), "all blocks placed", 4 * TIMEOUT)
    await switch(tb, to=1)
    assert sum(map(len, tb.rows.lists.values())) == sum(task.blocks for task in tasks)


@cocotb.test()
async def wait_for_idle(dut: Any) -> None:
    """At level WFI, tasks end before their context leaves; none is stopped, not even for one of
    higher priority."""
    tb = await TaskTestbench(dut, place=0.1, end=0.1, level=PreemptionLevel.WFI).start()
    running = await fill(tb)
    other, urgent = Task(90, priority=5, blocks=3), Task(91, priority=60, blocks=4)
    tb.submit(other)
    tb.submit(urgent)
    await tb.until(lambda: not tb.offered, "launches accepted")
    await tb.until(lambda: urgent.outcome == "runs", "a slot is free", 20 * TIMEOUT)
    left = {task.outcome for task in running} - {"runs"}
    assert left and left <= {"ended", "closed"}, left
    await switch(tb, to=0)
    assert all(task.outcome in ("ended", "closed") for task in (*running, urgent))
    await tb.finish()


@cocotb.test()
async def wait_for_idle_of_a_fault(dut: Any) -> None:
    """Even at level WFI, a task with a failed warp is stopped."""
    tb = await TaskTestbench(dut, place=0.0, end=0.1, level=PreemptionLevel.WFI).start()
    tasks = await fill(tb)
    tb.faults = frozenset({1})
    assert tasks[1].row is not None
    tb.drive(fault=1 << tasks[1].row)
    await tb.step()
    tb.drive(fault=0)
    tb.rows.place = 0.3
    await tb.finish()
    assert tasks[1].outcome == "failed"
    assert all(task.outcome == "ended" for task in tasks if task is not tasks[1])


@cocotb.test(**WITH_PLACES)
async def saved_blocks_return(dut: Any) -> None:
    """At level CILP, a context leaves although no block ends; its tasks return with all their
    blocks, even tasks that have only saved blocks."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb)
    await saved(tb, tasks)
    assert all(task.resumed for task in tasks)
    await switch(tb, to=0)
    await saved(tb, tasks)
    tb.rows.end = 0.3
    await switch(tb, to=0)
    await tb.finish()
    assert all(task.outcome == "ended" for task in tasks)


@cocotb.test(**WITH_PLACES)
async def resume_position_of_an_earlier_launch(dut: Any) -> None:
    """A task all of whose blocks were placed has no resume position: a position left in its record
    at its launch does not matter when it returns."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb, resume_x=5000)
    await saved(tb, tasks)
    tb.rows.end = 0.3
    await switch(tb, to=0)
    await tb.finish()
    assert all(task.outcome == "ended" for task in tasks)


SOON = 40
"""Maximum cycles from the last slot of an urgent task until the evicted ones have left their rows,
with one block saved per cycle."""


@cocotb.test(**WITH_PLACES)
async def evicted_with_their_blocks(dut: Any) -> None:
    """At level CILP, an evicted task's blocks are saved, so that its row is free soon."""
    tb = await TaskTestbench(dut, place=0.5, end=0.0, level=CILP).start()
    await fill(tb)
    tb.rows.save = 1.0
    rows = tb.rows.rows.values()
    await tb.until(lambda: all(row.placed for row in rows), "each has a block", 4 * TIMEOUT)
    urgent = [Task(100 + number, priority=50, blocks=300 + number) for number in range(3)]
    for task in urgent:
        tb.submit(task)
    await tb.until(lambda: all(task.outcome == "runs" for task in urgent), "urgent ones run")
    await tb.until(lambda: len(tb.rows.lists) == len(urgent), "the others have left", SOON)
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test(**WITH_PLACES)
@cocotb.parametrize(runs=[False, True])
async def unreadable_when_it_returns(dut: Any, runs: bool) -> None:
    """If a task's record is unusable when the task is about to return, its saved blocks are
    dropped; others return. The record changes while the task runs, or when it is in its list."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb)
    bad = tasks[1]
    if runs:
        tb.rows.end = 0.0
        await tb.steps(100)
    else:
        await saved(tb, tasks)
    tb.contents.write((0, 0), bad.page << 8, bytes(256))
    if runs:
        await switch(tb, to=1)
    tb.rows.end = 0.3
    await switch(tb, to=0)
    await tb.finish()
    assert bad.resumed and bad.outcome == "failed" and tb.verdicts[1] is Refusal.MODEL
    assert all(task.outcome == "ended" for task in tasks if task is not bad)


FORM = {"registers": 3, "shared": 1024, "block_x": 33, "barriers": 1}
"""Record fields on which the form of saved blocks depends, each with a changed value."""


@cocotb.test(**WITH_PLACES)
@cocotb.parametrize(name=[*FORM, "program_low"])
async def record_changed_when_it_returns(dut: Any, name: str) -> None:
    """A task with saved blocks fails if its record asks for blocks of another form when the task is
    about to return: they might load state that others have saved (PREEMPT-10). Other fields may
    change."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb)
    changed = tasks[1]
    await saved(tb, tasks)
    place, (low, width) = ((0, 0), changed.page << 8), FIELDS[name]
    record = int.from_bytes(tb.contents.read(*place, 256), "little")
    record &= ~(mask(range(width)) << low)
    tb.contents.write(*place, (record | FORM.get(name, 64) << low).to_bytes(256, "little"))
    tb.rows.end = 0.3
    await switch(tb, to=0)
    await tb.finish()
    fails = [changed] if name in FORM else []
    assert [task for task in tasks if task.outcome == "failed"] == fails
    assert all(tb.verdicts[task.number] is Refusal.MODEL for task in fails)


@cocotb.test(**WITH_PLACES)
async def killed_after_eviction(dut: Any) -> None:
    """A killed task that was evicted with saved blocks ends although none of them can be placed
    (PREEMPT-7)."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb)
    await saved(tb, tasks)
    tb.rows.place, tb.level = 0.0, PreemptionLevel.CTA
    tb.drive(level=tb.level)
    tb.drive(active=1, context=0, leave=0)
    await tb.until(lambda: len(tb.running) == CONFIG.slots, "all slots held", 20 * TIMEOUT)
    urgent = [Task(100 + number, priority=50, blocks=300 + number) for number in range(2)]
    for task in urgent:
        tb.submit(task)
    await tb.until(lambda: all(task.outcome == "runs" for task in urgent), "urgent ones run")
    out = [task for task in tasks if task.outcome != "runs"]
    assert len(out) == len(urgent) and all(task.row is not None for task in out)
    tb.disable(2, 3)
    await tb.until(lambda: all(one.outcome == "failed" for one in tasks), "killed", 4 * TIMEOUT)
    tb.rows.place = tb.rows.end = 0.5
    await tb.finish()


@cocotb.test(**WITH_PLACES)
@cocotb.parametrize(off=[(2, 3), (2,)])
async def killed_in_their_lists(dut: Any, off: tuple[int, ...]) -> None:
    """When channels are disabled, their tasks are killed in their lists and lose their saved
    blocks; others return."""
    tb = await TaskTestbench(dut, level=CILP).start()
    tasks = await fill(tb)
    chosen = [task for task in tasks if task.channel in off]
    await saved(tb, tasks)
    tb.disable(*off)
    await tb.until(lambda: all(task.outcome == "failed" for task in chosen), "killed", 4 * TIMEOUT)
    await tb.steps(20)
    assert len(tb.rows.lists) == len(tasks) - len(chosen)
    tb.rows.end = 0.3
    await switch(tb, to=0)
    await tb.finish()


@cocotb.test(**WITH_PLACES)
async def without_a_save_area(dut: Any) -> None:
    """A context without a save area stops no blocks, whatever its level and records: it leaves when
    its blocks have ended."""
    tb = await TaskTestbench(dut, place=1.0, end=0.0, level=CILP, area=False).start()
    for number, urgency in enumerate((0, 1, 2, 3)):
        tb.submit(Task(number, priority=5, blocks=20 + number, fields={"urgency": urgency}))
    rows = tb.rows.rows
    await tb.until(lambda: len(rows) == 4 and not any(one.left for one in rows.values()), "placed")
    tb.drive(leave=1)
    await tb.steps(400)
    assert not tb.get("empty") and not any(row.saved for row in rows.values())
    tb.rows.end = 0.5
    await tb.finish()


@cocotb.test(**WITH_PLACES)
async def random_levels(dut: Any) -> None:
    """With contexts of any level in turn, some of them overdue, and tasks of any size and priority,
    some of whose channels are disabled at times, each block of the other tasks ends once, and no
    list of saved blocks is lost."""
    tb = await TaskTestbench(dut, place=0.5, end=0.1).start()
    rng, rounds, lists, number = tb.random, Rounds(12), 0, 0
    late = dict.fromkeys(PreemptionLevel, 0)
    while rounds.more(lists > 10 and all(late.values()), (lists, late)):
        tb.level = rng.choice(list(PreemptionLevel))
        tb.drive(level=tb.level)
        tb.rows.end = rng.choice((0.02, 0.1, 0.5)) if tb.level is CILP else 0.5
        for _ in range(rng.randrange(CONFIG.slots)):
            task = Task(
                number,
                priority=rng.choice((0, 5, 20, 63)),
                blocks=1 + number + rng.choice((0, 0, 40)),
                head=rng.random() < 0.2,
                context=rng.randrange(2),
                # With the size, this identifies a task; sizes are the same again 40 tasks later.
                asid=number // 40 % 2 + 2 * rng.randrange(2),
                channel=rng.choice((2, 3, 3)),
                fields={"urgency": rng.randrange(4)},
            )
            number += 1
            tb.submit(task)
            await tb.steps(rng.choice((0, 20, 200)))
        if rng.random() < 0.2:
            tb.disable(2)
        await tb.steps(rng.choice((0, 50, 1000)))
        before = timed_out(tb)
        await switch(tb, to=rng.randrange(2), limit=rng.choice((0, 60, 4 * TIMEOUT, 4 * TIMEOUT)))
        late[tb.level] += timed_out(tb) - before
        tb.disable()
        lists += len(tb.rows.lists)
    tb.rows.place = tb.rows.end = 1.0
    ends = Rounds(2)
    while ends.more(not any(tb.lists.values()), tb.lists):
        await tb.steps(4 * TIMEOUT)
        await switch(tb, to=1 - tb.get("context"))
    await tb.finish()
    failed = [task for task in tb.accepted if task.outcome == "failed"]
    causes = {tb.verdicts[task.number] for task in failed}
    assert causes <= {Refusal.KILLED, Refusal.TIMEOUT}
    print(f"{number} tasks, {len(failed)} failed, {late} late, {lists} times saved blocks")


def timed_out(tb: TaskTestbench) -> int:
    """Number of tasks that have failed because their context was overdue."""
    return list(tb.verdicts.values()).count(Refusal.TIMEOUT)
