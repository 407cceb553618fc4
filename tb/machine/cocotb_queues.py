"""Queue tasks, dependence counters and limited slots, by methods of channels (HOST-9, ASID-26)."""

from dataclasses import replace
from typing import Any

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause, Refusal
from signalbox.hw.methods import HostMethod
from signalbox.tb.machine.tasks import (
    PCAS_A,
    SIGNALING2_B,
    SUBCHANNEL,
    Computer,
    Task,
    launch,
    mark,
    spin,
)
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.simulation.trace import BlockPlaced, TaskOpened, TaskOver
from signalbox.tb.testbench.jobs import JOBS

LIMIT: dict[str, Any] = {"timeout_time": 30, "timeout_unit": "ms"}
SLOT_COUNT = 0x2B0
INCREMENT_PUT, DECREMENT_DEPENDENCE = 6, 7
ACTION = {"increment": 0, "decrement": 4}
"""DEPENDENT_QMD0_ACTION."""
IS_QUEUE = {"is_queue": 1, "queue_size": 16}


def append(task: Task, start: int, count: int) -> Pushbuffer:
    """Append entries to a queue; without any, close it."""
    span = start | count << 24
    return (
        Pushbuffer()
        .inc(SUBCHANNEL, PCAS_A, task.record_at >> 8, span)
        .inc(SUBCHANNEL, SIGNALING2_B, INCREMENT_PUT)
    )


def decrement(task: Task) -> Pushbuffer:
    return (
        Pushbuffer()
        .inc(SUBCHANNEL, PCAS_A, task.record_at >> 8)
        .inc(SUBCHANNEL, SIGNALING2_B, DECREMENT_DEPENDENCE)
    )


def behind(task: Task, action: str) -> dict[str, int]:
    """Record fields of a task that performs `action` on another task at its end."""
    return {"more": task.record_at >> 8 << 480 | 1 << 512 | ACTION[action] << 513}


@cocotb.test(**LIMIT)
async def queue_fed_by_another_channel(dut: Any) -> None:
    """One channel launches a queue and waits for its end; another channel of the same space appends
    and closes. The kernel's results are correct (ASID-26)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0, 1)
    owner, feeder = await computer.channel(0, 1), await computer.channel(1, 1)
    blocks = JOBS[0].grid[0]
    queue = space.task(JOBS[0], **IS_QUEUE)
    owner.segment(launch(queue))
    owner.segment(Pushbuffer().release(mark(owner), 1))
    await owner.kick()
    for start in range(blocks):
        await feeder.submit(append(queue, start, 1))
        await tb.until_idle(feeder)
    assert (await owner.status())["TASKS"] == 1, "it is open"
    assert not int(tb.word(mark(owner)))
    await feeder.submit(append(queue, blocks, 0))
    await tb.until_word(mark(owner), 1)
    queue.check()
    found = int.from_bytes(space.read(queue.record_at + 4, 4), "little")
    assert found == blocks, "OUTER_GET"
    placed = await tb.events(BlockPlaced)
    assert len(placed) == blocks
    await computer.finish(owner, feeder)


@cocotb.test(**LIMIT)
async def refused_appends(dut: Any) -> None:
    """An illegal INCREMENT_PUT halts only its own channel, reports the reason and can be
    skipped."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0, 1)
    owner, feeder = await computer.channel(0, 1), await computer.channel(1, 1)
    queue, grid = space.task(spin(10), **IS_QUEUE), space.task(spin(10))
    await owner.submit(launch(queue))
    await tb.until_idle(owner)
    cases = [
        (grid, append(grid, 0, 1), Cause.TASK_QUEUE, 0),
        (queue, append(queue, 1, 1), Cause.TASK_CHECK, 27),
        (queue, append(queue, 0, 17), Cause.TASK_CHECK, 20),
    ]
    for task, commands, cause, check in cases:
        await feeder.submit(commands)
        halt = await feeder.until_halted(cause)
        assert (halt.va, halt.method, halt.data) == (task.record_at, SIGNALING2_B, INCREMENT_PUT)
        assert (await tb.control.read_channel_fields(1, "CAUSE"))["SKEDCHECK"] == check
        await feeder.skip()
    await feeder.submit(append(queue, 0, 0))
    await computer.finish(owner, feeder)
    assert await tb.control.read("TASKS") == 1


@cocotb.test(**LIMIT)
async def tasks_feed_queues(dut: Any) -> None:
    """The end of a task appends an entry to a queue, or decrements a dependence counter; a task
    with several predecessors starts after the last one (HOST-10)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    queue = space.task(spin(5), **IS_QUEUE)
    last = space.task(JOBS[0], dependence=3)
    feeders = [space.task(spin(10), **behind(queue, "increment")) for _ in range(3)]
    before = [space.task(spin(300 * n), **behind(last, "decrement")) for n in (1, 2)]
    for task in (queue, *feeders, *before):
        channel.segment(launch(task))
    channel.segment(decrement(last))
    await channel.kick()
    await tb.until(lambda: space.read(queue.record_at + 4, 1)[0] == 3, "three entries done")
    await channel.submit(append(queue, 3, 0).release(mark(channel), 1))
    await tb.until_word(mark(channel), 1)
    last.check()
    (opened,) = await tb.events(TaskOpened, page=last.record_at >> 8)
    for task in before:
        (over,) = await tb.events(TaskOver, page=task.record_at >> 8, refusal=Refusal.NONE)
        cocotb.log.info("opened %d cycles after the end", opened.cycle - over.cycle)
        assert over.cycle < opened.cycle, "opened before the last task it waited for ended"
    await computer.finish(channel)


@cocotb.test(**LIMIT)
async def slots_of_a_context(dut: Any) -> None:
    """SET_CWD_SLOT_COUNT limits the number of tasks of the context in slots; 0 stands for all slots
    (HOST-9)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    tasks = [space.task(replace(spin(1000), grid=(1, 1, 1))) for _ in range(6)]
    for limit, most in ((1, 1), (2, 2), (3, 3), (0, 4), (5, 4)):
        await channel.submit(Pushbuffer().inc(SUBCHANNEL, SLOT_COUNT, limit))
        for task in tasks:
            channel.segment(launch(task))
        await channel.kick()
        await computer.finish(channel)
        at = [event.cycle for event in (await tb.events(BlockPlaced))[-len(tasks) :]]
        assert at[most - 1] - at[0] < 1000, (limit, at)
        assert all(late - early > 1000 for early, late in zip(at, at[most:], strict=False)), at


@cocotb.test(**LIMIT)
async def owner_is_switched_off(dut: Any) -> None:
    """A queue is killed when the channel that launched it is disabled: the task after the queue
    does not run, and no wait of other channels hangs (ASID-26, PREEMPT-7)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb, 2)
    one, two = await computer.space(1, 0), await computer.space(2, 1, context=1)
    owner = await computer.channel(0, 1)
    other = await computer.channel(1, 2, context=1)
    last = one.task(JOBS[0])
    follows = last.record_at >> 8 << 480 | 1 << 512 | 1 << 513
    queue = one.task(spin(5), **IS_QUEUE, more=follows)
    await owner.submit(launch(queue))
    await tb.until_idle(owner)
    await owner.submit(append(queue, 0, 3))
    await tb.until_idle(owner)
    long = two.task(spin(3000))
    other.segment(launch(long))
    other.segment(Pushbuffer().host(HostMethod.WFI, 1).release(mark(other), 1))
    await other.kick()
    await tb.wait(2000)
    assert not int(tb.word(mark(other))), "a queue is open"
    await owner.write("CONTROL", ENABLE=0)
    await tb.until_word(mark(other), 1)
    await owner.until_inactive(50_000)
    for va, words in last.job.results.items():
        assert not any(one.read(va, words.nbytes)), "the task after it has run"
    assert int.from_bytes(one.read(queue.record_at + 4, 4), "little") == 3
    await computer.finish(other)
    assert await tb.control.read("TASKS") == 2
