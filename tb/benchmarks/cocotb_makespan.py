"""Tasks of `tb.benchmarks.makespan`."""

from itertools import pairwise

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE, MACHINE
from signalbox.tb.benchmarks.grids import Grid, lives, once, until_over
from signalbox.tb.benchmarks.makespan import COUNTS, TIMING, WARPS, WAYS, key, most_key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.machine.cocotb_order import joined
from signalbox.tb.machine.tasks import Computer, Space, launch
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.trace import Semaphore

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

SLOT = 7
"""The semaphore that all channels wait for; its value selects the channel whose turn it is."""

GRID = Grid(blocks=1, warps=WARPS, timing=TIMING)


async def setup(computer: Computer, count: int, way: str) -> list[tuple[RawChannel, Space]]:
    """A channel and a space for each task, in one context or in several."""
    found = []
    for index in range(count):
        context = index % MACHINE.contexts if way == "turns" else 0
        space = await computer.space(1 + index, index, context=context)
        for va, _ in GRID.stores():
            space.write(va, bytes(MACHINE.beat_bytes))
        found.append((await computer.channel(index, 1 + index, context), space))
    return found


@cocotb.test(**LIMIT)
@cocotb.parametrize(way=list(WAYS), count=COUNTS)
async def makespan(dut, way: str, count: int):
    """Cycles from the semaphore update that starts the first task to the end of the last."""
    tb = await MachineTestbench.start(dut)
    computer = await Computer.start(tb, MACHINE.contexts, LOG_SIZE)
    own = await setup(computer, count, way)
    for index, (channel, space) in enumerate(own):
        turn = 1 + index if way == "turns" else 1
        commands = joined(Pushbuffer().acquire(semaphore(SLOT), turn), launch(space.task(GRID)))
        if way == "turns":
            commands.release(semaphore(SLOT), turn + 1)
        await channel.submit(commands)
    await tb.wait(2000)
    await tb.let_go(SLOT, 1)
    await until_over(tb, count)
    await computer.finish(*(channel for channel, _ in own))
    (begun,) = [event.cycle for event in await tb.events(Semaphore, index=SLOT, value=1)]
    found = lives(await tb.all_events())
    assert len(found) == count
    for life in found:
        once(life, GRID)
    for _, space in own:
        for va, content in GRID.stores():
            assert space.read(va, len(content)) == content, hex(va)
    spans = sorted((life.launched, life.over) for life in found)
    if way == "turns":
        assert all(a[1] < b[0] for a, b in pairwise(spans)), "not in turn"
    else:
        most = [sum(one.first <= life.first < one.ended for one in found) for life in found]
        report(**{most_key(count): max(most)})
    report(**{key(count, way): max(life.over for life in found) - begun})
