"""Kernels of `tb.benchmarks.parents`."""

from typing import Any

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN, VECTOR_ADD, Kernel
from signalbox.driver.runtime.limits import Limit
from signalbox.hw.errors import Refusal
from signalbox.tb.benchmarks.parents import BLOCKS, IDLE, LENGTHS, THREADS, WAVES, WAYS, WORDS, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.trace import Doorbell, Event, TaskOver, WarpStarted
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

PARENT = Kernel(
    "parent",
    """
    ldc    r2, [FIRST]
    ldc    r3, [FIRST + 4]
    launch r4, [r2]
    ldc    r2, [SECOND]
    ldc    r3, [SECOND + 4]
    launch r5, [r2]
    join   r6
    exit
    """,
    {"FIRST": 8, "SECOND": 8},
)
"""Launches two children and waits for them."""


def span(events: list[Event], channel: int, since: int) -> int:
    """Cycles from a channel's first doorbell at or after cycle `since` to the end of its last
    kernel."""
    own = [e for e in events if isinstance(e, Doorbell | TaskOver) and e.channel == channel]
    rung = next(e.cycle for e in own if isinstance(e, Doorbell) and e.cycle >= since)
    *_, end = (e for e in own if isinstance(e, TaskOver))
    assert end.refusal is Refusal.NONE
    return end.cycle - rung


@cocotb.test(**LIMIT)
@cocotb.parametrize(way=list(WAYS), length=LENGTHS)
async def urgent_parent(dut: Any, way: str, length: int) -> None:
    """An urgent kernel with children, first on the idle machine to fill the caches, then beside a
    kernel that fills the machine."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(2))
    device.set_limit(Limit.NESTING_DEPTH, 2)
    low, urgent = await device.stream(0), await device.stream(-1)
    if way == "lowest":
        urgent.device_priority = low.device_priority
    numbers = np.random.default_rng(length).integers(0, 1 << 31, (2, 2, WORDS), dtype=np.uint32)
    inputs = [[await device.upload(one) for one in pair] for pair in numbers]
    sums = [await device.allocate(4 * WORDS) for _ in inputs]
    children = [
        await urgent.child(VECTOR_ADD, WORDS // 32, 32, {"A": a, "B": b, "C": c, "N": WORDS})
        for (a, b), c in zip(inputs, sums, strict=True)
    ]
    args = dict(zip(PARENT.parameters, children, strict=True))

    async def launch() -> int:
        """Launch the urgent kernel, and wait for it. Returns the cycle of the launch."""
        for one in sums:
            one.write(bytes(4 * WORDS))
        begun = machine.now()
        await (await urgent.launch(PARENT, 1, 32, args)).synchronize()
        for (a, b), c in zip(numbers, sums, strict=True):
            assert np.array_equal(c.read(np.uint32, WORDS), a + b)
        return begun

    trace = await TraceFile.open(machine)
    await (await low.launch(SPIN, 1, THREADS, {"CYCLES": 1})).synchronize()
    await launch()
    begun = await launch()
    report(**{IDLE: span(await trace.events(), urgent.channel.index, begun)})
    begun = machine.now()
    task = await low.launch(SPIN, BLOCKS, THREADS, {"CYCLES": length})
    warps = BLOCKS // WAVES * THREADS // 32
    while (
        sum(isinstance(e, WarpStarted) and e.cycle >= begun for e in await trace.events()) < warps
    ):
        await machine.wait_cycles(20)
    arrived = await launch()
    await task.synchronize()
    events = await trace.events()
    report(**{
        key("urgent", way, length): span(events, urgent.channel.index, arrived),
        key("low", way, length): span(events, low.channel.index, begun),
    })
    await device.close()
