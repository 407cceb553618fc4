"""Compute channels on the whole machine: launches, waits for tasks, errors (HOST-9, HOST-10)."""

from itertools import pairwise
from typing import Any

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.errors import Cause, CoreCause, Refusal
from signalbox.hw.methods import HostMethod
from signalbox.hw.registers import Wait
from signalbox.tb.machine.tasks import (
    OBJECT,
    PCAS_A,
    SIGNALING2_B,
    SIGNALING_B,
    SUBCHANNEL,
    Computer,
    Task,
    launch,
    mark,
    spin,
)
from signalbox.tb.machine.testbench import MachineTestbench, in_order
from signalbox.tb.simulation.trace import (
    BlockPlaced,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpEnded,
    WarpStarted,
)
from signalbox.tb.testbench.jobs import JOBS
from signalbox.tb.testbench.sample import fewer, some

LIMIT = {"timeout_time": 30, "timeout_unit": "ms"}

WAIT_FOR_IDLE = 0x110
INLINE_A, INLINE_B, INLINE_DATA = 0x318, 0x31C, 0x320
REPORT_A, REPORT_D = 0x1B00, 0x1B0C
SM_CLIENT, GPC = 0, 0
"""`client_type` of SMs in fault records, and `gpc` of the first SMs."""


def report(address: int, payload: int, operation: int) -> Pushbuffer:
    """SET_REPORT_SEMAPHORE with its arguments."""
    values = address >> 32, address & 0xFFFF_FFFF, payload, operation
    return Pushbuffer().inc(SUBCHANNEL, REPORT_A, *values)


def compute(method: int, value: int = 0) -> Pushbuffer:
    """One compute method."""
    return Pushbuffer().inc(SUBCHANNEL, method, value)


@cocotb.test(**LIMIT)
async def kernels_of_four_spaces(dut: Any) -> None:
    """Results of every kernel (in Icarus half of them) are in memory when a release after them is
    visible. Each runs from a channel with its own address space, at the same virtual addresses,
    four at once (HOST-9, ASID-20, ASID-27)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    actions = ((SIGNALING_B, 3), (SIGNALING_B, 2), (SIGNALING2_B, 2), (SIGNALING2_B, 3))
    chosen = some(JOBS, 2)
    for start in range(0, len(chosen), len(actions)):
        channels, tasks = [], []
        for index, job in enumerate(chosen[start : start + len(actions)]):
            space = await computer.space(index + 1, index)
            channel = await computer.channel(index, index + 1)
            channels.append(channel)
            tasks.append(space.task(job, group=index))
            channel.segment(launch(tasks[-1], *actions[index]))
            channel.segment(Pushbuffer().release(mark(channel), 7))
        for channel in channels:
            await channel.kick()
        for channel in channels:
            await tb.until_word(mark(channel), 7, 50_000)
            assert (await channel.status())["TASKS"] == 0
            assert await channel.read("TASKS") == 1
        computer.check(tasks)
    counted = {name: await tb.control.read(name) for name in ("LAUNCHES", "TASKS", "BLOCKS")}
    assert counted["LAUNCHES"] == counted["TASKS"] == len(chosen)
    blocks = sum(job.grid[0] * job.grid[1] * job.grid[2] for job in chosen)
    assert counted["BLOCKS"] == blocks <= await tb.control.read("WARPS")
    assert (await tb.control.read_fields("TASK_STATE"))["IDLE"]


@cocotb.test(**LIMIT)
async def cycles_of_sms(dut: Any) -> None:
    """SM_CYCLES grows by the number of SMs with blocks in each cycle, as the trace shows them, and
    stands still while all SMs are idle."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space, sms = await computer.space(1, 0), await tb.control.read("SMS")
    channel = await computer.channel(0, 1)
    for blocks in (1, sms, 2 * sms):
        before, began = await tb.control.read("SM_CYCLES"), tb.now()
        await channel.submit(launch(space.task(spin(1000, blocks))))
        await computer.finish(channel)
        await tb.wait(50)
        counted = await tb.control.read("SM_CYCLES") - before
        placed = [one for one in await tb.events(BlockPlaced) if one.cycle >= began]
        ended = [one for one in await tb.events(WarpEnded) if one.cycle >= began]
        busy = 0
        for sm in {one.sm for one in placed}:
            first = min(one.cycle for one in placed if one.sm == sm)
            busy += max(one.cycle for one in ended if one.sm == sm) - first
        used = len({one.sm for one in placed})
        assert used == min(blocks, sms) and busy > 1000 * used
        assert 0 <= counted - busy < 20 * used, (counted, busy)
        assert await tb.control.read("SM_CYCLES") == before + counted


@cocotb.test(**LIMIT)
async def what_waits_for_tasks(dut: Any) -> None:
    """WFI, SET_REFERENCE, WAIT_FOR_IDLE, reports, releases with WFI and copies wait for the
    channel's tasks; launches, acquires and releases without WFI do not."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    await channel.submit(Pushbuffer().set_object())
    task, base = space.task(spin(700)), mark(channel, 8)
    there = mark(channel, 1)
    waits = {
        "WFI": Pushbuffer().wait_own(),
        "SET_REFERENCE": Pushbuffer().host(HostMethod.SET_REFERENCE, 5),
        "WAIT_FOR_IDLE": compute(WAIT_FOR_IDLE),
        "REPORT": report(there, 1, 1 << 28),
        "RELEASE": Pushbuffer().release(there, 2),
        "COPY": Pushbuffer().copy(base + 64, base, 16),
        "MEMBAR": Pushbuffer().host(HostMethod.FB_FLUSH),
    }
    for name, commands in waits.items():
        channel.segment(launch(task))
        channel.segment(commands)
        channel.segment(Pushbuffer().release(mark(channel), 1, wfi=False))
        await channel.kick()
        await tb.until_waits(channel, Wait.TASKS)
        assert tb.word(mark(channel)) == 0 and (await channel.status())["TASKS"] == 1, name
        await tb.until_word(mark(channel), 1)
        assert (await channel.status())["TASKS"] == 0, name
        tb.set_word(mark(channel), 0)
    goes = (
        launch(task),
        Pushbuffer().acquire(there, 2),
        Pushbuffer().release(there, 3, wfi=False),
        Pushbuffer().non_stall_interrupt(),
        compute(0x298),
    )
    for commands in (launch(task), *goes):
        channel.segment(commands)
    channel.segment(Pushbuffer().release(mark(channel), 1, wfi=False))
    await channel.kick()
    await tb.until_word(mark(channel), 1)
    status = await channel.status()
    assert status["TASKS"] == 2 and status["ACTIVE"], status
    await computer.finish(channel)


@cocotb.test(**LIMIT)
async def inline_records(dut: Any) -> None:
    """A record loaded by methods is in memory before its launch; dwords that were not loaded do not
    change; each channel has its own (HOST-9)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    tasks, channels = [], []
    for index in range(2):
        space = await computer.space(index + 1, index)
        channel = await computer.channel(index, index + 1)
        task = space.task(JOBS[index])
        words = space.read(task.record_at, 256)
        space.write(task.record_at, b"\xee" * 4 + bytes(248) + b"\xdd" * 4)
        page = task.record_at >> 8
        commands = Pushbuffer().inc(SUBCHANNEL, INLINE_A, 0, page)
        for number in range(1, 63):
            word = int.from_bytes(words[4 * number : 4 * number + 4], "little")
            commands.inc(SUBCHANNEL, INLINE_DATA + 4 * number, word)
        channel.segment(commands)
        channel.segment(launch(task))
        tasks.append((task, words))
        channels.append(channel)
    for channel in channels:
        await channel.kick()
    await computer.finish(*channels)
    for task, words in tasks:
        task.check()
        there = task.space.read(task.record_at, 256)
        assert there[4:252] == words[4:252]
        assert there[:4] == b"\xee" * 4 and there[252:] == b"\xdd" * 4
    channel, (task, _) = channels[0], tasks[0]
    await channel.submit(
        Pushbuffer()
        .inc(SUBCHANNEL, INLINE_A, 0, 0x77_0000, 0xABCD)
        .inc(SUBCHANNEL, WAIT_FOR_IDLE, 0)
    )
    halt = await channel.until_halted(Cause.INLINE_FAULT)
    assert halt.va == 0x7700_0000 and halt.method == WAIT_FOR_IDLE
    await channel.skip()
    await channel.submit(launch(task))
    await computer.finish(channel)


@cocotb.test(**LIMIT)
async def inline_record_repaired(dut: Any) -> None:
    """A loaded record whose page is not mapped is written when its launch is repeated, and dropped
    when the launch is skipped, or replaced by a method of another object at the same offset
    (HOST-9)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    for number, ends in enumerate(("repeated", "skipped", "replaced")):
        place = 0x77_0000_0000 + 0x2000 * number
        task = space.task(JOBS[0])
        record = space.read(task.record_at, 256)
        words = [int.from_bytes(record[at : at + 4], "little") for at in range(0, 256, 4)]
        commands = Pushbuffer().inc(SUBCHANNEL, INLINE_A, 0, place >> 8)
        for at, word in enumerate(words):
            commands.inc(SUBCHANNEL, INLINE_DATA + 4 * at, word)
        await channel.submit(commands.raw(*launch(Task(JOBS[0], space, place)).dwords))
        halt = await channel.until_halted(Cause.INLINE_FAULT)
        assert (halt.va, halt.method) == (place, SIGNALING_B)
        space.write(place, bytes(256))
        if ends == "replaced":
            await channel.replace(SIGNALING_B, subchannel=SUBCHANNEL + 1)
            await channel.until_halted(Cause.OBJECT_UNBOUND)
        if ends == "repeated":
            await channel.clear()
        else:
            await channel.skip()
            await channel.submit(launch(task))
        await computer.finish(channel)
        task.check()
        assert space.read(place, 256) == (record if ends == "repeated" else bytes(256))


@cocotb.test(**LIMIT)
async def launches_by_age(dut: Any) -> None:
    """While the engine is busy with launches of one channel, launches of other channels follow in
    the order of their doorbells, after those of a channel with a higher priority (HOST-9)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, *range(4))
    for order, priorities in (((2, 1, 0), {}), ((1, 0, 2), {2: 9})):
        channels = [await computer.channel(n, 1, priority=priorities.get(n, 0)) for n in range(4)]
        busy = channels[3]
        for _ in range(12):
            busy.segment(launch(space.task(spin(1))))
        for index in order:
            channels[index].segment(launch(space.task(spin(1))))
        began = tb.now()
        for channel in (busy, *(channels[index] for index in order)):
            await channel.kick()
        await computer.finish(*channels)
        launches = [one for one in await tb.events(TaskLaunched) if one.cycle >= began]
        found = [one.channel for one in launches if one.channel != busy.index]
        assert [one.channel for one in launches][-1] == busy.index, "the engine was not busy"
        assert found == sorted(order, key=lambda index: -priorities.get(index, 0)), found


@cocotb.test(**LIMIT)
async def reports(dut: Any) -> None:
    """SET_REPORT_SEMAPHORE works with four words, one word, reductions in the compute class's
    encoding, interrupts, and errors of the semaphore unit."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    one, four = mark(channel, 1), mark(channel, 2)
    tb.set_word(one + 4, 0x1234)
    commands = report(one, 5, 1 << 28)
    for op, payload in ((0, 7), (2, 100), (5, 0x64), (6, 3)):
        commands.raw(*report(one, payload, 1 << 3 | op << 9 | 1 << 28).dwords)
    commands.raw(*report(four, 9, 1 << 20).dwords)
    await channel.submit(commands)
    await computer.finish(channel)
    assert tb.word(one) == (100 & 0x64) | 3 and tb.word(one + 4) == 0x1234
    assert tb.word(four) == 9 and tb.word(four + 8, 8) > 0
    assert await tb.control.read("INTR_NOTIFY_LO") == 1
    await tb.control.write("INTR_NOTIFY_LO", 1)
    await channel.submit(compute(REPORT_D, 3))
    await computer.finish(channel)
    assert await tb.control.read("INTR_NOTIFY_LO") == 1
    await channel.submit(report(0x7700_0000, 9, 0))
    halt = await channel.until_halted(Cause.SEM_FAULT)
    assert (halt.va, halt.method) == (0x7700_0000, REPORT_D)
    await channel.skip()
    await channel.submit(report(one, 9, 1))
    await channel.until_halted(Cause.COMPUTE_MODE)
    await channel.skip()
    await tb.until_idle(channel)


@cocotb.test(**LIMIT)
async def refused_launches(dut: Any) -> None:
    """A record that cannot be read, has another version, or contains an illegal combination halts
    its channel; the error identifies record and check, and the launch can be retried. Other
    channels continue (HOST-10, ASID-5)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0, 1)
    channel, other = await computer.channel(0, 1), await computer.channel(1, 1)
    lasts = space.task(spin(10_000))
    await other.submit(launch(lasts))
    nowhere = Task(JOBS[0], space, 0x77_0000_0000)
    cases: list[tuple[Task, Cause, int]] = [
        (nowhere, Cause.TASK_FAULT, 0),
        (space.task(JOBS[0], major=2), Cause.TASK_MODEL, 0),
        (space.task(JOBS[0], block_x=0), Cause.TASK_CHECK, 16),
        (space.task(JOBS[0], registers=0), Cause.TASK_CHECK, 6),
        (space.task(JOBS[0], shared=8192), Cause.TASK_CHECK, 14),
        (space.task(JOBS[0], registers=200, block_x=96), Cause.TASK_CHECK, 19),
        (space.task(JOBS[0], registers=4, block_x=256), Cause.TASK_CHECK, 34),
    ]
    for task, cause, check in cases:
        await channel.submit(launch(task))
        halt = await channel.until_halted(cause)
        assert (halt.va, halt.method, halt.data) == (task.record_at, SIGNALING_B, 2), halt
        why = await tb.control.read_channel_fields(0, "CAUSE")
        assert why["SKEDCHECK"] == check, (why, cause)
        assert (await channel.status())["TASKS"] == 0
        await channel.skip()
    bad, good = cases[2][0], space.task(JOBS[0])
    await channel.submit(launch(bad))
    await channel.until_halted(Cause.TASK_CHECK)
    space.write(bad.record_at, space.read(good.record_at, 256))
    await channel.clear()
    await computer.finish(channel)
    good.check()
    for commands in (
        compute(SIGNALING2_B, 4),
        compute(SIGNALING2_B, 15),
        compute(INLINE_A, 1),
    ):
        await channel.submit(commands)
        await channel.until_halted(Cause.COMPUTE_MODE)
        await channel.skip()
    status = await other.status()
    assert status["TASKS"] == 1 and not status["HALTED"]
    await computer.finish(other)


@cocotb.test(**LIMIT)
async def failing_tasks(dut: Any) -> None:
    """A task with a failed warp halts its own channel, like a failed copy. Registers show SM,
    instruction and address, the fault record identifies the SM, and results of others are correct
    (ASID-5)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    first, second = await computer.space(1, 0), await computer.space(2, 1)
    channel, other = await computer.channel(0, 1), await computer.channel(1, 2)
    bad, also = (first.task(job, memory=False) for job in JOBS[:2])
    good = [second.task(JOBS[0]) for _ in range(fewer(3, 3))]
    for task in good:
        other.segment(launch(task))
    channel.segment(launch(bad))
    channel.segment(launch(also))
    channel.segment(Pushbuffer().release(mark(channel), 1))
    await channel.kick()
    await other.kick()
    await channel.until_halted(Cause.TASK_KERNEL)
    while (await channel.status())["TASKS"]:
        pass
    halt = await channel.halt()
    assert halt.more and not halt.valid and halt.method == PCAS_A
    assert halt.va in {bad.record_at, also.record_at} and halt.data == halt.va >> 8
    assert (await tb.control.read_fields("TASK_STATUS"))["WARP_FAULT"]
    fault = await tb.control.read_fields("WARP_FAULT")
    assert fault["ASID"] == 1 and fault["CAUSE"] == CoreCause.MEMORY_FAULT.value, fault
    record = [await tb.control.read(f"FAULT_RECORD_{n}") for n in range(8)]
    word = sum(value << 32 * n for n, value in enumerate(record))
    client, kind, gpc = word >> 232 & 0x7F, word >> 244 & 1, word >> 248 & 0x1F
    assert (kind, gpc) == (SM_CLIENT, GPC) and client in range(2), (client, kind, gpc)
    at = await tb.control.read64("WARP_FAULT_AT")
    assert at >> 32 == 1, hex(at)
    await channel.clear()
    again = await channel.until_halted(Cause.TASK_KERNEL)
    assert {halt.va, again.va} == {bad.record_at, also.record_at}
    assert tb.word(mark(channel)) == 0
    await channel.clear()
    await tb.until_word(mark(channel), 1)
    await tb.control.write("TASK_STATUS", WARP_FAULT=1)
    assert not (await tb.control.read_fields("TASK_STATUS"))["WARP_FAULT"]
    await computer.finish(other)
    computer.check(good)


@cocotb.test(**LIMIT)
async def contexts(dut: Any) -> None:
    """Two contexts with one address space each run in turn, with correct results. A context that
    cannot be read is marked broken, raises the interrupt, and continues after its repair
    (ASID-21)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    await tb.control.write("CONTEXT_SLICE", 200)
    await tb.control.write("INTR_ENABLE", ERROR=1, TASK=1)
    spaces = [await computer.space(1 + n, n, context=n) for n in range(2)]
    channels = [await computer.channel(n, 1 + n, context=n) for n in range(2)]
    tasks = [space.task(job) for space, job in zip(spaces, (JOBS[0], JOBS[2]), strict=True)]
    for channel, task in zip(channels, tasks, strict=True):
        channel.segment(launch(task))
    for channel in channels:
        await channel.kick()
    await computer.finish(*channels)
    computer.check(tasks)
    await channels[0].submit(launch(tasks[0]))
    await computer.finish(channels[0])
    await computer.write_context(1, "INSTANCE_HI", 0xFF)
    late = spaces[1].task(JOBS[0])
    await channels[1].submit(launch(late))
    await tb.until(lambda: dut.irq.value == 1, "interrupt of a broken context")
    assert await tb.control.read("CONTEXT_BROKEN") == 2
    assert (await channels[1].status())["TASKS"] == 1
    await computer.write_context(1, "INSTANCE_HI", 0)
    await tb.control.write("CONTEXT_BROKEN", 2)
    await computer.finish(channels[1])
    late.check()
    assert dut.irq.value == 0
    await channels[0].open(asid=1, context=5)
    await channels[0].submit(OBJECT)
    await channels[0].submit(launch(tasks[0]))
    await channels[0].until_halted(Cause.COMPUTE_MODE)


def depends(task: Task) -> int:
    """Record bits that make a task launch another at its end."""
    return (task.record_at >> 8) % (1 << 32) << 480 | 1 << 512 | 1 << 513


@cocotb.test(**LIMIT)
async def dependent_tasks(dut: Any) -> None:
    """WFI also waits for a task launched by the end of the channel's task (HOST-10)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    last = space.task(spin(800))
    first = space.task(spin(10), more=depends(last))
    channel.segment(launch(first))
    channel.segment(Pushbuffer().release(mark(channel), 1))
    await channel.kick()
    await tb.until_word(mark(channel), 1)
    assert await channel.read("TASKS") == 2
    assert (await channel.status())["TASKS"] == 0


@cocotb.test(**LIMIT)
async def refused_dependent_tasks(dut: Any) -> None:
    """An illegal task launched by the end of another halts the channel with an error that
    identifies the task and its fault. The channel can continue after it."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    for wrong, check in (({"registers": 0}, 6), ({"block_x": 0}, 16)):
        bad = space.task(JOBS[0], **wrong)
        await channel.submit(launch(space.task(spin(10), more=depends(bad))))
        halt = await channel.until_halted(Cause.TASK_CHECK)
        assert (halt.va, halt.valid, halt.more) == (bad.record_at, False, False)
        why = await tb.control.read_channel_fields(0, "CAUSE")
        assert why["SKEDCHECK"] == check
        await channel.clear()
        await computer.finish(channel)


@cocotb.test(**LIMIT)
async def resumption_keeps_the_wait(dut: Any) -> None:
    """A channel that is halted by a task and resumed while its semaphore operation in memory is
    outstanding still waits for that operation, and does not begin it again."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    bad = space.task(JOBS[0], registers=0)
    await channel.submit(launch(space.task(spin(3000), more=depends(bad))))
    await tb.until_idle(channel)
    dut.memory.write_latency.value = 9000
    await channel.submit(Pushbuffer().add(mark(channel), 1))
    await tb.until_waits(channel, Wait.FENCE)
    await channel.until_halted(Cause.TASK_CHECK)
    assert (await channel.status())["WAIT"] == Wait.FENCE.value
    await channel.clear()
    assert (await channel.status())["WAIT"] == Wait.FENCE.value
    dut.memory.write_latency.value = 2
    await computer.finish(channel)
    # Time for a second operation, which the channel would not wait for.
    await tb.wait(1000)
    assert tb.word(mark(channel)) == 1


@cocotb.test(**LIMIT)
async def waits_for_all(dut: Any) -> None:
    """WFI of scope ALL waits for tasks of other channels that are already in flight, not for tasks
    launched during the wait."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0, 1)
    busy, waits = await computer.channel(0, 1), await computer.channel(1, 1)
    await busy.submit(launch(space.task(spin(800))))
    await tb.until_idle(busy)
    waits.segment(Pushbuffer().host(HostMethod.WFI, 1))
    waits.segment(Pushbuffer().release(mark(waits), 1))
    await waits.kick()
    await tb.until_waits(waits, Wait.ALL_IDLE)
    await busy.submit(launch(space.task(spin(3000))))
    await tb.until_word(mark(waits), 1)
    assert (await busy.status())["TASKS"] == 1
    assert await busy.read("TASKS") == 1
    await computer.finish(busy)


@cocotb.test(**LIMIT)
async def methods_without_effect(dut: Any) -> None:
    """Methods that only set features missing in the machine are accepted and counted; NOP and
    INVALIDATE_SKED_CACHES do nothing; actions without SCHEDULE launch nothing (HOST-9)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    commands = Pushbuffer()
    for method in (0x310, 0x288, 0x2A0, 0x1FFC, 0x700):
        commands.inc(SUBCHANNEL, method, 0x1234_5678)
    for method, value in ((0x100, 0), (0x298, 0), (SIGNALING_B, 1), (SIGNALING2_B, 0)):
        commands.inc(SUBCHANNEL, method, value)
    for value in (1, 8):
        commands.inc(SUBCHANNEL, SIGNALING2_B, value)
    await channel.submit(commands)
    await computer.finish(channel)
    assert await tb.control.read("IGNORED") == 5
    assert await tb.control.read("LAUNCHES") == 0


@cocotb.test(**LIMIT)
async def switched_off(dut: Any) -> None:
    """A disabled channel stays active while its tasks are in flight; started again, it has all
    state reset."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    await channel.submit(launch(space.task(spin(1000))))
    await tb.until_idle(channel)
    await channel.write("CONTROL", ENABLE=0)
    assert (await channel.status())["ACTIVE"]
    await channel.until_inactive()
    assert (await channel.status())["TASKS"] == 0
    channel = await computer.channel(0, 1)
    await channel.submit(compute(SIGNALING_B, 2))
    halt = await channel.until_halted(Cause.TASK_FAULT)
    assert halt.va == 0


@cocotb.test(**LIMIT)
async def from_launch_to_end(dut: Any) -> None:
    """Each block of a task is placed once, each warp starts and ends, in the order launch, slot,
    blocks, warps, end; on an idle machine within a few cycles each (HOST-9, PLACE-1)."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    first, task = (space.task(spin(20, blocks=5, threads=64)) for _ in range(2))
    for one in (first, task):  # the first one misses in the TLBs
        await channel.submit(launch(one))
        await computer.finish(channel)
    page = task.record_at >> 8
    (launched,) = await tb.events(TaskLaunched, page=page)
    (opened,) = await tb.events(TaskOpened, page=page)
    (over,) = await tb.events(TaskOver, page=page)
    blocks = [one for one in await tb.events(BlockPlaced) if one.cycle > opened.cycle]
    starts = [one for one in await tb.events(WarpStarted) if one.cycle > opened.cycle]
    ends = [one for one in await tb.events(WarpEnded) if one.cycle > opened.cycle]
    assert sorted((one.x, one.y, one.z) for one in blocks) == [(x, 0, 0) for x in range(5)]
    assert {one.row for one in (*blocks, *starts)} == {opened.row}
    assert len(starts) == len(ends) == 10
    assert sorted((one.sm, one.warp) for one in starts) == sorted((e.sm, e.warp) for e in ends)
    times = launched.cycle, opened.cycle, blocks[0].cycle, starts[0].cycle, ends[0].cycle
    assert in_order(*times, over.cycle) and ends[-1].cycle < over.cycle
    assert (over.refusal, over.channel) == (Refusal.NONE, 0)
    steps = [after - before for before, after in pairwise((*times, over.cycle))]
    print(f"launch, slot, block, warp, its end, task's end: cycles between them {steps}")
    assert starts[0].cycle - opened.cycle <= 20
