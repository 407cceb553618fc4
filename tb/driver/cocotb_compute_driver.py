"""Launches through the driver on the RTL: address spaces, order, errors."""

import cocotb

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.faults.channel_error import read_error
from signalbox.driver.faults.task_error import TaskError
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.runtime.stream import Stream
from signalbox.hw.errors import Cause
from signalbox.hw.qmd import DependentAction
from signalbox.hw.registers import KillScope
from signalbox.tb.driver import compute_bodies
from signalbox.tb.simulation.machine import SimMachine

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}


async def run(dut, body: compute_bodies.Body) -> None:
    """Run `body` on a fresh machine and check that no interrupt is pending at the end."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    await body(device)
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def vector_adds(dut):
    """Two address spaces use the same addresses (ASID-22)."""
    await run(dut, compute_bodies.vector_adds)


@cocotb.test(**LIMIT)
async def in_order(dut):
    """Copies and launches of a stream execute in order."""
    await run(dut, compute_bodies.in_order)


@cocotb.test(**LIMIT)
async def kernel_fault(dut):
    """The error of a failed warp is complete, and the channel continues."""
    await run(dut, compute_bodies.kernel_fault)


@cocotb.test(**LIMIT)
async def address_limit(dut):
    """Accesses past the limit of a small address space fault, before and after its kernels."""
    await run(dut, compute_bodies.address_limit)


@cocotb.test(**LIMIT)
async def refused(dut):
    """An invalid record halts the channel, and the error names the failed check."""
    await run(dut, compute_bodies.refused)


@cocotb.test(**LIMIT)
async def constant_buffers(dut):
    """Kernels read only their own constant buffers."""
    await run(dut, compute_bodies.constant_buffers)


@cocotb.test(**LIMIT)
async def local_memory(dut):
    """Threads of kernels in two address spaces have local memory of their own."""
    await run(dut, compute_bodies.local_memory)


ENDLESS = Kernel("endless", "again: bra again", {})
SHORT = Kernel("short", "exit", {})

ACTIVE_CYCLES = 4000
"""Maximum duration of STATUS.ACTIVE after a channel with few tasks is disabled."""


async def endless_warps(device: Device, stream: Stream) -> Task:
    """Endless blocks, more than the SMs can hold."""
    return await stream.launch(ENDLESS, 100, 32, {})


async def endless_grid(device: Device, stream: Stream) -> Task:
    return await stream.launch(SHORT, (1 << 31) - 1, 1, {})


async def endless_chain(device: Device, stream: Stream) -> Task:
    """A task that launches itself at its end."""
    gate = await device.allocate(4096)
    gate.fill(0)
    await stream.submit(Pushbuffer().acquire(device.space.at(gate), 0x0101_0101))
    task = await stream.launch(SHORT, 1, 1, {})
    record = device.machine.memory_read(compute_bodies.physical(task), 256)
    word = int.from_bytes(record, "little")
    fields = {480: task.record >> 8, 512: 1, 513: DependentAction.SCHEDULE.value}
    word |= sum(value << low for low, value in fields.items())
    task.memory.write(word.to_bytes(256, "little"))
    gate.fill(1)
    return task


RUNAWAYS = {one.__name__: one for one in (endless_warps, endless_grid, endless_chain)}


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=list(RUNAWAYS), closes=[True, False])
async def runaway(dut, kind: str, closes: bool):
    """Endless work ends within a bound when its channel is disabled, by closing the device or by
    the register; the machine then works for the next owner (PREEMPT-7)."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(1))
    stream = await device.stream()
    await RUNAWAYS[kind](device, stream)
    await machine.wait_cycles(3000)
    index, control = stream.channel.index, device.control
    assert (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]
    began = machine.now()
    if closes:
        await device.close()
    else:
        await control.write_channel(index, "CONTROL", ENABLE=0)
    while (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]:
        assert machine.now() - began < ACTIVE_CYCLES
    print(f"{kind}: inactive after {machine.now() - began} cycles")
    again = await Device.open(machine, PriorityPolicy(1))
    await compute_bodies.vector_adds(again)
    await again.close()
    assert await again.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def past_its_slice(dut):
    """A warp that never ends keeps its context on the SMs for the slice and the time-out, no
    longer, whether another context has work from the start or only after the slice. Its task fails
    with TASK_TIMEOUT; other contexts run, and its stream continues (PREEMPT-1)."""
    machine, slice_, limit = await SimMachine.start(dut), 6000, 3000
    settings = ComputeSettings(slice_cycles=slice_, timeout_cycles=limit, spaces_each=1)
    device = await Device.open(machine, PriorityPolicy(1), compute=settings)
    mine = await device.stream()
    other = await device.stream(space=device.create_space("other"))
    for waits, least in ((0, slice_ + limit), (slice_, limit)):
        began = machine.now()
        task = await mine.launch(ENDLESS, 1, 32, {})
        while not (await device.control.read_fields("TASK_STATE"))["ACTIVE"]:
            assert machine.now() - began < 1000
        if waits:
            await machine.wait_cycles(waits)
            began = machine.now()
        await (await other.launch(SHORT, 4, 64, {})).synchronize()
        print(f"the other context's task is over after {machine.now() - began} cycles")
        assert least <= machine.now() - began < least + ACTIVE_CYCLES
        error = await compute_bodies.failure(task)
        assert error.cause is Cause.TASK_TIMEOUT and error.record == task.record, str(error)
        await mine.channel.resume()
        await (await mine.launch(SHORT, 4, 64, {})).synchronize()
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
@cocotb.parametrize(scope=list(KillScope))
async def kill_request(dut, scope: KillScope):
    """A task that launches itself is killed by record, address space or context. The channel halts
    with TASK_KILLED; others run, and the channel works after that (PREEMPT-7)."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(1))
    stream = await device.stream()
    task = await endless_chain(device, stream)
    await machine.wait_cycles(3000)
    control, index = device.control, stream.channel.index
    assert (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]
    word = await control.read_fields("TASK_STATE")
    await control.write("TASK_KILL_RECORD", task.record >> 8)
    asid = stream.space.asid
    assert asid is not None
    await control.write("TASK_KILL", SCOPE=scope, ASID=asid, CONTEXT=word["CONTEXT"])
    began = machine.now()
    while (await control.read_fields("TASK_STATE"))["KILLING"]:
        assert machine.now() - began < ACTIVE_CYCLES
    print(f"{scope.name}: ended after {machine.now() - began} cycles")
    while (error := await read_error(control, index)) is None:
        assert machine.now() - began < ACTIVE_CYCLES
    assert error.cause is Cause.TASK_KILLED, str(error)
    assert (await compute_bodies.failure(stream)).record == task.record
    other = await device.stream(space=device.create_space("other"))
    await (await other.launch(SHORT, 4, 64, {})).synchronize()
    await stream.channel.resume()
    await (await stream.launch(SHORT, 4, 64, {})).synchronize()
    await device.close()
    assert await control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def kills_nothing(dut):
    """A request for a context that the machine does not have, or of an unknown scope, kills no
    task."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(1))
    stream = await device.stream()
    task = await endless_warps(device, stream)
    await machine.wait_cycles(3000)
    control, running = device.control, (await device.control.read_fields("TASK_STATE"))["CONTEXT"]
    asid = stream.space.asid
    assert asid is not None
    await control.write("TASK_KILL_RECORD", task.record >> 8)
    requests = [(KillScope.CONTEXT, context) for context in (8 + running, 10 + running)]
    for scope, context in (*requests, (max(KillScope) + 1, running)):
        await control.write("TASK_KILL", SCOPE=scope, ASID=asid, CONTEXT=context)
        while (await control.read_fields("TASK_STATE"))["KILLING"]:
            assert machine.now() < 100_000
        await machine.wait_cycles(1000)
        assert await read_error(control, stream.channel.index) is None
        assert (await control.read_channel_fields(stream.channel.index, "STATUS"))["ACTIVE"]
    await task.cancel()
    await device.close()
    assert await control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def killed_while_it_waits(dut):
    """Blocks that wait for SM resources held by another channel's endless work end with their own
    channel; the endless work continues (PREEMPT-7)."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(2))
    endless, urgent = await device.stream(), await device.stream(-1)
    warps = device.info.sm_warps
    await endless.launch(ENDLESS, device.info.sms, 32 * warps, {})
    await machine.wait_cycles(3000)
    await urgent.launch(SHORT, 4, 64, {}, priority=63)
    await machine.wait_cycles(3000)
    control, (first, second) = device.control, (one.channel.index for one in (endless, urgent))
    assert first != second
    for index in (first, second):
        assert (await control.read_channel_fields(index, "STATUS"))["ACTIVE"]
    began = machine.now()
    await control.write_channel(second, "CONTROL", ENABLE=0)
    while (await control.read_channel_fields(second, "STATUS"))["ACTIVE"]:
        assert machine.now() - began < ACTIVE_CYCLES
    print(f"inactive after {machine.now() - began} cycles")
    assert (await control.read_channel_fields(first, "STATUS"))["ACTIVE"]
    await device.close()
    assert await control.read("INTR") == 0


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=list(RUNAWAYS), how=["task", "stream", "context"])
async def cancelled(dut, kind: str, how: str):
    """The driver cancels endless work by task, stream or context; later work runs."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(1))
    stream = await device.stream()
    task = await RUNAWAYS[kind](device, stream)
    await machine.wait_cycles(3000)
    # The next launch frees the record of a task that has completed once, as the chain has.
    queued = [] if kind == "endless_chain" else [await stream.launch(SHORT, 1, 1, {})]
    if how == "task":
        await task.cancel()
        for behind in queued:
            await behind.synchronize()
    elif how == "stream":
        await stream.cancel()
    else:
        await device.kill(next(iter(device.engine.contexts)))
    try:
        task.query()
    except TaskError as error:
        assert error.cause is Cause.TASK_KILLED, str(error)
    else:
        # Its first end is its completion: it has launched itself again.
        assert kind == "endless_chain"
    await stream.synchronize()
    await (await stream.launch(SHORT, 4, 64, {})).synchronize()
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
@cocotb.parametrize(how=["stream", "context"])
async def cancelled_together(dut, how: str):
    """More tasks of a channel are killed at once than its error records can hold."""
    device = await Device.open(await SimMachine.start(dut), PriorityPolicy(1))
    stream = await device.stream()
    tasks = [await stream.launch(ENDLESS, 1, 32, {}, overlap=True) for _ in range(6)]
    await device.machine.wait_cycles(3000)
    if how == "stream":
        await stream.cancel()
        assert all(isinstance(task.failure, TaskError) for task in tasks)
    else:
        await device.kill(next(iter(device.engine.contexts)))
    assert all(task.over for task in tasks)
    await (await stream.launch(SHORT, 4, 64, {})).synchronize()
    await device.close()
    assert await device.control.read("INTR") == 0
