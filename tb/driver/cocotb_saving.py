"""Machines full of endless warps: with SAVE, urgent tasks run at once; contexts and applications
run in turn (PREEMPT-5, PREEMPT-8, SHARE-11)."""

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.compute.engine import ComputeSettings
from signalbox.driver.compute.preemption import Urgency
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.server.in_process import LocalInbox, LocalLink
from signalbox.driver.server.server import Server, Stop
from signalbox.driver.server.settings import ServerSettings
from signalbox.tb.driver import compute_bodies
from signalbox.tb.simulation.machine import SimMachine

LIMIT = {"timeout_time": 4, "timeout_unit": "ms"}

SLICE = 4000
"""Cycles that a context runs while another waits."""

PATIENCE = 30_000
"""Maximum cycles until an urgent task is over; also the duration of a wait in vain."""

COUNTING = Kernel(
    "counting",
    """
    s2r   r0, ctaid.x
    s2r   r1, ntid.x
    s2r   r2, tid.x
    mad   r0, r0, r1, r2
    ldc   r2, [0]
    ldc   r3, [4]
    lea   r2, r2, r0, 2
    mov   r1, 0
    again: add r1, r1, 1
    stg   [r2], r1
    bra   again
    """,
    {"OUT": 8},
)
"""Endless; each thread stores 1, 2, 3, … to its own word."""


@cocotb.test(**LIMIT)
@cocotb.parametrize((
    ("context", "launch", "saves"),
    [
        (Urgency.SAVE, Urgency.CONTEXT, True),
        (Urgency.DRAIN, Urgency.CONTEXT, False),
        (Urgency.DRAIN, Urgency.SAVE, True),
        (Urgency.SAVE, Urgency.DRAIN, False),
    ],
))
async def urgent_among_endless(dut, context: Urgency, launch: Urgency, saves: bool):
    """No warp ever ends. With SAVE, urgent tasks are over soon, and the others continue to count;
    with DRAIN, urgent tasks are not over within `PATIENCE`."""
    machine = await SimMachine.start(dut)
    settings = ComputeSettings(urgency=context)
    device = await Device.open(machine, PriorityPolicy(2), compute=settings)
    endless, urgent = await device.stream(), await device.stream(-1)
    info = device.info
    out = await device.allocate(4 * 32 * info.sm_warps * info.sms)
    out.fill(0)
    counting = await endless.launch(COUNTING, info.sms, 32 * info.sm_warps, {"OUT": out})
    await machine.wait_cycles(5000)
    for turn in range(2):
        began = machine.now()
        task, args = await compute_bodies.addition(device, urgent, turn, urgency=launch)
        while not task.query() and machine.now() - began < PATIENCE:
            await machine.wait_cycles(100)
        assert task.query() == saves
        if not saves:
            break
        print(f"urgent task over after {machine.now() - began} cycles")
        compute_bodies.check(args)
        before = out.read(np.uint32)
        await machine.wait_cycles(5000)
        assert (out.read(np.uint32) > before).all(), "every warp goes on"
    assert not counting.query()
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def contexts_of_endless(dut):
    """No warp of two contexts ever ends. At level CILP, both contexts run in turn, and every warp
    continues to count; their tasks can be cancelled, wherever their blocks are (PREEMPT-8)."""
    machine = await SimMachine.start(dut)
    settings = ComputeSettings(level="cilp", slice_cycles=SLICE)
    device = await Device.open(machine, PriorityPolicy(1), compute=settings)
    info, counting = device.info, []
    for name in ("first", "second"):
        space = device.create_space(name)
        device.engine.contexts.choose(space, await device.engine.contexts.create(name))
        stream = await device.stream(space=space)
        out = await device.allocate(4 * 32 * info.sm_warps * info.sms, space=space)
        out.fill(0)
        args = {"OUT": out}
        task = await stream.launch(COUNTING, info.sms, 32 * info.sm_warps, args)
        counting.append((task, out))
    await machine.wait_cycles(4 * SLICE)
    for _ in range(3):
        before = [out.read(np.uint32) for _, out in counting]
        await machine.wait_cycles(5 * SLICE)
        for (_, out), were in zip(counting, before, strict=True):
            assert (out.read(np.uint32) > were).all(), "every warp goes on"
    cost = await device.engine.contexts.switches()
    print(f"{cost}: {cost.cycles // cost.starts} cycles each")
    assert cost.starts >= 8 and cost.saved >= cost.restored >= 8
    assert cost.cycles < cost.starts * SLICE
    for task, _ in counting:
        await task.cancel()
    await device.close()
    assert await device.control.read("INTR") == 0


@cocotb.test(**LIMIT)
async def applications_in_turn(dut):
    """Two applications of a server, each with its own context. One never ends; the other one's task
    is over within a few slices, and the first continues where it stopped (SHARE-11)."""
    machine = await SimMachine.start(dut)
    settings = ServerSettings(memory_each=1 << 18, context_each=True, slice_cycles=SLICE)
    inbox = LocalInbox(machine)
    server = await Server.open(machine, settings, inbox, cocotb.start_soon)
    running = cocotb.start_soon(server.run())
    endless = await LocalLink(machine, inbox).device("endless")
    short = await LocalLink(machine, inbox).device("short")
    info = endless.info
    out = await endless.allocate(4 * 32 * info.sm_warps * info.sms)
    out.fill(0)
    stream = await endless.stream()
    task = await stream.launch(COUNTING, info.sms, 32 * info.sm_warps, {"OUT": out})
    await machine.wait_cycles(3 * SLICE)
    other = await short.stream()
    for turn in range(3):
        before = out.read(np.uint32)
        sums, args = await compute_bodies.addition(short, other, turn)
        began = machine.now()
        await sums.synchronize()
        print(f"a task of the other application is over after {machine.now() - began} cycles")
        assert machine.now() - began < 4 * SLICE
        compute_bodies.check(args)
        await machine.wait_cycles(SLICE)
        assert (out.read(np.uint32) > before).all(), "every warp goes on"
    cost = await server.device.engine.contexts.switches()
    assert cost.starts >= 6 and cost.saved and cost.saved >= cost.restored >= 2 * info.sms
    assert not task.query()
    await endless.close()
    await short.close()
    inbox.put(Stop())
    await running
    assert not [*server.device.engine.contexts]
    assert await server.device.control.read("INTR") == 0
