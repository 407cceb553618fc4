"""Launches of `tb.benchmarks.launches`."""

from itertools import pairwise

import cocotb

from signalbox.tb.benchmarks.compute_machine import LOG_SIZE
from signalbox.tb.benchmarks.grids import Grid, lives, once
from signalbox.tb.benchmarks.launches import LATENCIES, NUMBERS, STEPS, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.machine.tasks import Computer, launch
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import Doorbell

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

GRID = Grid(blocks=4, warps=4, timing=Timing())


@cocotb.test(**LIMIT)
@cocotb.parametrize(latency=LATENCIES)
async def launches(dut, latency: int):
    """The same task, launched several times."""
    tb = await MachineTestbench.start(dut, read_latency=latency, write_latency=latency)
    computer = await Computer.start(tb, log_size=LOG_SIZE)
    space = await computer.space(1, 0)
    channel = await computer.channel(0, 1)
    task = space.task(GRID)
    for number in range(max(NUMBERS) + 1):
        await channel.submit(launch(task))
        await computer.finish(channel)
        life = lives(await tb.all_events())[-1]
        once(life, GRID)
        rung = (await tb.events(Doorbell))[-1]
        moments = [rung.cycle, life.launched, life.opened, life.placed[0].cycle]
        moments += [life.first, life.over]
        if number in NUMBERS:
            spans = zip(STEPS, pairwise(moments), strict=True)
            report(**{key(step, latency, number): b - a for step, (a, b) in spans})
