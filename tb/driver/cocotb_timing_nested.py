"""Kernels that launch kernels on a machine with timing cores (NEST-10, NEST-12)."""

import os
from random import Random
from typing import Any

import cocotb

from signalbox.driver.channel.priority_policy import PriorityPolicy
from signalbox.driver.compute.child import Child
from signalbox.driver.device import Device
from signalbox.driver.kernels.timing import TIMING, TimingTask
from signalbox.driver.runtime.limits import Limit
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.machine import SimMachine

LIMIT = {"timeout_time": 8, "timeout_unit": "ms"}

BLOCKS, CHILDREN, STORES = 2, 3, 4
"""Blocks of each launching kernel; children of each of its warps; stores of each other warp."""


def loop(children: list[Child], warps: int) -> TimingTask:
    """A task whose warps each launch CHILDREN of `children`."""
    distance = children[1].record - children[0].record
    return TimingTask(
        cycles=10,
        spread=15,
        accesses=CHILDREN,
        launch=True,
        base=children[0].record,
        stride=distance,
        warp_bytes=CHILDREN * distance,
        block_bytes=warps * CHILDREN * distance,
    )


@cocotb.test(**LIMIT)
@cocotb.parametrize((("depth", "warps"), [(2, 2), (3, 1)]))
async def trees(dut: Any, depth: int, warps: int) -> None:
    """Every warp of a tree of kernels runs to its end and makes its own stores; the host's kernel
    completes only after all of them."""
    machine = await SimMachine.start(dut)
    device = await Device.open(machine, PriorityPolicy(2))
    device.set_limit(Limit.NESTING_DEPTH, depth)
    stream = await device.stream(-1)
    width, count = device.info.data_width // 8, BLOCKS * warps * CHILDREN
    leaves, size = count ** (depth - 1), warps * STORES * width
    out = await device.allocate(leaves * size)
    out.write(bytes(leaves * size))
    numbers = Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    tasks = [
        TimingTask(
            cycles=numbers.randrange(200),
            spread=63,
            accesses=STORES,
            store=True,
            base=stream.address(out, out.size) + n * size,
            stride=width,
            warp_bytes=STORES * width,
        )
        for n in range(leaves)
    ]
    blocks = 1
    while len(tasks) > 1:
        given = [one.arguments() for one in tasks]
        made = await stream.children(TIMING, blocks, 32 * warps, given)
        tasks = [loop(made[n : n + count], warps) for n in range(0, len(made), count)]
        blocks = BLOCKS
    task = await stream.launch(TIMING, blocks, 32 * warps, tasks[0].arguments())
    await task.synchronize()
    stores = [(warp, n) for warp in range(warps) for n in range(STORES)]
    each = b"".join(Timing.pattern(0, warp, n) * (width // 8) for warp, n in stores)
    assert bytes(out.read()) == each * leaves
    assert await device.engine.refused_child() is None
    await device.close()
