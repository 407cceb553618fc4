"""Urgent kernels of `tb.benchmarks.urgency`."""

from dataclasses import dataclass

import cocotb

from signalbox.hw.placement.controller import Step
from signalbox.hw.qmd import Placement
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE
from signalbox.tb.benchmarks.grids import Grid, Life, lives, once, until_over
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.urgency import (
    ARRIVALS,
    LENGTHS,
    LOW,
    LOW_BLOCKS,
    LOW_WARPS,
    POLICIES,
    URGENT,
    URGENT_BLOCKS,
    URGENT_WARPS,
    WAVES,
    Policy,
    key,
    low_timing,
)
from signalbox.tb.machine.tasks import Computer, launch
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import WarpStarted

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

WIDE = Placement.WIDE.value

SETTLE = 100
"""Maximum cycles from the event for which a warp waits to its start: decision, transfer to the SM,
start of earlier warps."""


@dataclass
class Scene:
    """The kernels that ran: the low one, the one with a warp on every SM, and the urgent ones."""

    low: Life
    other: Life
    urgent: list[Life]


async def play(dut, policy: Policy, length: int) -> Scene:
    """Urgent kernels arrive while the machine is full. They have run once before, so that their
    translations are cached."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb, log_size=LOG_SIZE)
    spaces = [await computer.space(1, 0, 1), await computer.space(2, 2)]
    first, second, third = [await computer.channel(n, 1 + n // 2) for n in range(3)]
    low = Grid(blocks=LOW_BLOCKS, warps=LOW_WARPS, timing=low_timing(length))
    other = Grid(blocks=4, warps=1, timing=Timing(cycles=(WAVES + 1) * length + 3000))
    urgent = Grid(blocks=URGENT_BLOCKS, warps=URGENT_WARPS, timing=URGENT, barrier=policy.barrier)
    tasks = [spaces[1].task(urgent, group=policy.urgent, placement=WIDE) for _ in ARRIVALS]
    for task in tasks:
        await third.submit(launch(task))
    await computer.finish(third)
    await second.submit(launch(spaces[0].task(other, group=policy.other, placement=WIDE)))
    await tb.wait(500)
    await first.submit(launch(spaces[0].task(low, group=LOW, placement=WIDE)))
    await tb.wait(500)
    begun = (await tb.events(WarpStarted))[URGENT_BLOCKS * URGENT_WARPS * len(tasks) + 4].cycle
    for at, task in zip(ARRIVALS, tasks, strict=True):
        await tb.wait(max(1, begun + round(at * length) - tb.now()))
        await third.submit(launch(task))
    await until_over(tb, 2 + 2 * len(tasks))
    await computer.finish(first, second, third)
    found = lives(await tb.all_events())
    found = found[len(tasks) :]
    for life, grid in zip(found, (other, low, *[urgent] * len(tasks)), strict=True):
        once(life, grid)
    return Scene(found[1], found[0], found[2:])


def check(name: str, scene: Scene, length: int) -> None:
    """Check that the machine was full all the time, and that the intended policy was in effect."""
    assert len({placed.sm for placed in scene.other.placed}) == 4
    assert scene.other.ended > max(life.last for life in scene.urgent)
    steps = {placed.step for life in scene.urgent for placed in life.placed}
    if name == "arrival":
        end = max(placed.cycle for placed in scene.low.placed)
        assert all(life.placed[0].cycle > end for life in scene.urgent)
    else:
        assert scene.low.last > max(life.last for life in scene.urgent)
    if name == "whole":
        assert steps == {Step.WHOLE}
    if name == "design":
        # PLACE-5, PLACE-22: at the latest when the first low warp on the SM ends.
        timing = low_timing(length)
        bound = timing.cycles + timing.spread + SETTLE
        assert all(life.first - life.opened < bound for life in scene.urgent)


@cocotb.test(**LIMIT)
@cocotb.parametrize(name=list(POLICIES), length=LENGTHS)
async def urgency(dut, name: str, length: int):
    """One policy with one length."""
    scene = await play(dut, POLICIES[name], length)
    check(name, scene, length)
    first = [life.first - life.launched for life in scene.urgent]
    last = [life.last - life.launched for life in scene.urgent]
    report(**{
        key("first", name, length): round(sum(first) / len(first)),
        key("last", name, length): round(sum(last) / len(last)),
        key("worst", name, length): max(first),
    })
