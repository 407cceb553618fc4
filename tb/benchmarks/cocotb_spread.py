"""Kernels of `tb.benchmarks.spread`."""

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE, MACHINE
from signalbox.tb.benchmarks.grids import Grid, lives, once, until_over
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.spread import BLOCKS, PAGES, POLICIES, SPACES, TASKS, TURNS, WARPS, key
from signalbox.tb.machine.cocotb_order import joined
from signalbox.tb.machine.tasks import PAGE, Computer, launch
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import Lookup, Semaphore, Walk

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

SLOT, FAR = 7, 100
"""The semaphore that all channels wait for; memory latency in cycles."""

BASE = 0x10_0000_0000
FIRST_SM = MACHINE.memory_clients - MACHINE.sms
"""Memory client of the first SM."""


def grid(pages: int) -> Grid:
    """Warps read every page of their space, each beginning at a different address."""
    width = MACHINE.beat_bytes
    timing = Timing(
        accesses=pages,
        stride=PAGE,
        base=BASE,
        cycles=8,
        spread=15,
        block_bytes=WARPS * width,
        warp_bytes=width,
    )
    return Grid(blocks=BLOCKS, warps=WARPS, timing=timing)


async def setup(computer: Computer, work: Grid, policy: str, pages: int) -> list[RawChannel]:
    """Channels of all spaces, whose tasks wait until the semaphore is 1, then 2."""
    page = computer.tb.allocate(PAGE, PAGE)
    channels = []
    for index in range(SPACES):
        space = await computer.space(1 + index, index)
        for number in range(pages):
            space.tables.map(BASE + number * PAGE, page, PAGE, page_size=PAGE)
        channel = await computer.channel(index, 1 + index)
        tasks = [space.task(work, placement=POLICIES[policy].value) for _ in range(TASKS)]
        for turn in TURNS:
            wait = Pushbuffer().acquire(semaphore(SLOT), turn)
            await channel.submit(joined(wait, *(launch(task) for task in tasks)).wait_own())
        channels.append(channel)
    return channels


@cocotb.test(**LIMIT)
@cocotb.parametrize(policy=list(POLICIES), pages=PAGES)
async def spread(dut, policy: str, pages: int):
    """All kernels are launched at once, with the spaces in turn."""
    tb = await MachineTestbench.start(dut, read_latency=FAR, write_latency=FAR)
    computer, work = await Computer.start(tb, log_size=LOG_SIZE), grid(pages)
    channels = await setup(computer, work, policy, pages)
    for turn in TURNS:
        await tb.wait(3000)
        await tb.let_go(SLOT, turn)
        await until_over(tb, turn * TASKS * SPACES)
        await measure(tb, work, policy, turn)
    await computer.finish(*channels)


async def measure(tb: MachineTestbench, work: Grid, policy: str, turn: int) -> None:
    """Results of the tasks since the semaphore was written."""
    (begun,) = [event.cycle for event in await tb.events(Semaphore, index=SLOT, value=turn)]
    found = lives(await tb.all_events())[-TASKS * SPACES :]
    assert min(life.launched for life in found) > begun
    for life in found:
        once(life, work)
    looks = [one for one in await tb.events(Lookup) if one.client >= FIRST_SM]
    looks = [one for one in looks if one.cycle > begun]
    pages = work.timing.accesses
    assert len(looks) >= SPACES * TASKS * BLOCKS * WARPS * pages
    values = {
        "misses": sum(not one.hit for one in looks),
        "walks": sum(one.cycle > begun for one in await tb.events(Walk)),
        "cycles": max(life.over for life in found) - begun,
    }
    report(**{key(what, policy, pages, turn): value for what, value in values.items()})
