"""Kernels of `tb.benchmarks.parents`."""

from typing import Any

import cocotb
import numpy as np

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import SPIN
from signalbox.driver.nested.merge_sort import MergeSort
from signalbox.driver.runtime.limits import Limit
from signalbox.hw.errors import Refusal
from signalbox.tb.benchmarks.parents import BLOCKS, IDLE, LENGTHS, THREADS, WAVES, WAYS, WORDS, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.simulation.machine import SimMachine
from signalbox.tb.simulation.trace import Doorbell, Event, TaskOver, WarpStarted
from signalbox.tb.simulation.trace_file import TraceFile

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


def span(events: list[Event], channel: int, since: int) -> int:
    """Cycles from the first doorbell of a channel from a moment on to the end of its last
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
    kernel that fills it."""
    words = np.random.default_rng(length).permutation(WORDS).astype(np.uint32)
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(2))
    device.set_limit(Limit.NESTING_DEPTH, MergeSort.depth(WORDS))
    low, urgent = await device.stream(0), await device.stream(-1)
    if way == "lowest":
        urgent.device_priority = low.device_priority
    data, trace = await device.allocate(4 * WORDS), await TraceFile.open(machine)
    sort = await MergeSort.prepare(device, urgent, data, WORDS)
    await (await low.launch(SPIN, 1, THREADS, {"CYCLES": 1})).synchronize()
    data.write(words)
    await sort.run()
    data.write(words)
    begun = machine.now()
    await sort.run()
    report(**{IDLE: span(await trace.events(), urgent.channel.index, begun)})

    data.write(words)
    begun = machine.now()
    task = await low.launch(SPIN, BLOCKS, THREADS, {"CYCLES": length})
    warps = BLOCKS // WAVES * THREADS // 32
    while (
        sum(isinstance(e, WarpStarted) and e.cycle >= begun for e in await trace.events()) < warps
    ):
        await machine.wait_cycles(20)
    arrived = machine.now()
    await sort.run()
    await task.synchronize()
    assert np.array_equal(data.read(np.uint32, WORDS), np.arange(WORDS))
    events = await trace.events()
    report(**{
        key("urgent", way, length): span(events, urgent.channel.index, arrived),
        key("low", way, length): span(events, low.channel.index, begun),
    })
    await sort.free()
    await device.close()
