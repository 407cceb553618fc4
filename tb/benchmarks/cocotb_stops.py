"""Stops of `tb.benchmarks.stops`."""

import cocotb

from signalbox.hw.placement.controller import Step
from signalbox.hw.qmd import Placement
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE, SAVE_AREA, SAVING
from signalbox.tb.benchmarks.grids import Grid, lives, once
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.stops import BASE, LATENCIES, SIZES, Size, key
from signalbox.tb.machine.tasks import Computer, launch
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import BlockStop, BlockStopped, Event, WarpStarted

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

URGENT = Grid(blocks=1, warps=SAVING.sm_warps, timing=Timing(cycles=50), barrier=True)
"""Needs a whole SM at once."""


@cocotb.test(**LIMIT)
@cocotb.parametrize(size=SIZES, latency=LATENCIES)
async def stops(dut, size: Size, latency: int):
    """Each SM runs one block; an urgent block needs a whole SM."""
    tb = await MachineTestbench.start(dut, read_latency=latency, write_latency=latency)
    computer = await Computer.start(tb, log_size=LOG_SIZE, area=SAVE_AREA)
    await computer.preempt(0, saves=True)
    spaces = [await computer.space(1 + n, n) for n in range(2)]
    first, second = [await computer.channel(n, 1 + n) for n in range(2)]
    spaces[0].write(BASE, bytes(size.warps * SAVING.beat_bytes))
    low = spaces[0].task(size.grid, group=1, placement=Placement.WIDE.value)
    await first.submit(launch(low))
    await until(tb, WarpStarted, SAVING.sms * size.warps)
    await tb.wait(2 * latency)
    await second.submit(launch(spaces[1].task(URGENT, group=9)))
    await computer.finish(second)
    await until(tb, BlockStopped, 1)
    (told,), (gone,) = await tb.events(BlockStop), await tb.events(BlockStopped)
    _, life = lives(await tb.all_events())
    once(life, URGENT)
    (placed,) = life.placed
    assert gone.saved and placed.step is Step.LOWER and placed.sm == told.sm == gone.sm
    assert placed.cycle < told.cycle < min(gone.cycle, life.first)
    report(**{
        key("free", size, latency): gone.cycle - told.cycle,
        key("start", size, latency): life.first - placed.cycle,
    })


async def until(tb: MachineTestbench, kind: type[Event], count: int) -> None:
    """Wait for `count` events of a kind."""
    end = tb.now() + 20_000
    while len(await tb.events(kind)) < count:
        assert tb.now() < end, f"not {count} of {kind.__name__}"
        await tb.wait(100)
