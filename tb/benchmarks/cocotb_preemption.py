"""Kernels of `tb.benchmarks.preemption`."""

import cocotb

from signalbox.driver.commands.pushbuffer import Pushbuffer
from signalbox.hw.qmd import Placement
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE, SAVE_AREA
from signalbox.tb.benchmarks.grids import lives, once, until_over
from signalbox.tb.benchmarks.preemption import (
    ARRIVALS,
    ENDLESS,
    LOSS,
    LOSS_STEP,
    LOSS_URGENT,
    LOWS,
    PACE,
    PATIENCE,
    SLICE,
    SWITCH_LENGTHS,
    SWITCH_WAYS,
    SWITCHES,
    WARPS,
    WAVE,
    WAYS,
    key,
    loss_grid,
    loss_key,
    loss_urgent,
    low_grid,
    switch_grid,
    switch_key,
    urgent_grid,
)
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.machine.cocotb_order import joined
from signalbox.tb.machine.tasks import Computer, Task, launch
from signalbox.tb.machine.testbench import MachineTestbench, RawChannel, semaphore
from signalbox.tb.simulation.trace import (
    BlockPlaced,
    BlockStop,
    BlockStopped,
    Event,
    Semaphore,
    WarpStarted,
)

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

LOW, HIGH = 1, 10
"""Priorities of the low kernel and of urgent ones."""

SLOT = 7
"""The semaphore for which the channels of both contexts wait."""


async def begin(tb: MachineTestbench, saves: bool) -> tuple[Computer, list[RawChannel], list]:
    """A context with two address spaces and a channel for each."""
    computer = await Computer.start(tb, log_size=LOG_SIZE, area=SAVE_AREA)
    await computer.preempt(0, saves=saves)
    spaces = [await computer.space(1 + n, n) for n in range(2)]
    return computer, [await computer.channel(n, 1 + n) for n in range(2)], spaces


async def arrive(
    tb: MachineTestbench, channel: RawChannel, tasks: list[Task], moments: list[int]
) -> None:
    """Launch each task at its moment, in cycles after the last event so far."""
    begun = (await tb.all_events())[-1].cycle
    for at, task in zip(moments, tasks, strict=True):
        await tb.wait(max(1, begun + at - tb.now()))
        await channel.submit(launch(task))


async def filled(tb: MachineTestbench, channel: RawChannel, task: Task) -> None:
    """Launch the low kernel, and wait until it fills the machine."""
    before = len(await tb.events(WarpStarted))
    await channel.submit(launch(task))
    while len(await tb.events(WarpStarted)) < before + WAVE * WARPS:
        await tb.wait(50)


@cocotb.test(**LIMIT)
@cocotb.parametrize(way=list(WAYS), low=list(LOWS))
async def response(dut, way: str, low: str):
    """Urgent kernels arrive while the machine is full. They have run once before, so that their
    translations are cached."""
    tb = await MachineTestbench.start(dut)
    computer, (first, second), spaces = await begin(tb, WAYS[way])
    urgent = urgent_grid()
    tasks = [spaces[1].task(urgent, group=HIGH, placement=Placement.WIDE.value) for _ in ARRIVALS]
    for task in tasks:
        await second.submit(launch(task))
    await computer.finish(second)
    await filled(
        tb, first, spaces[0].task(low_grid(low), group=LOW, placement=Placement.WIDE.value)
    )
    unit = PACE if low == ENDLESS else LOWS[low].cycles + LOWS[low].spread // 2
    await arrive(tb, second, tasks, [round(at * unit) for at in ARRIVALS])
    if way == "drain" and low == ENDLESS:
        await tb.wait(PATIENCE)
        found = lives(await tb.all_events())[len(tasks) + 1 :]
        assert not any(life.started for life in found)
        report(**{key("vain", way, low): PATIENCE})
        return
    await until_over(tb, 2 * len(tasks))
    filling, *found = lives(await tb.all_events())[len(tasks) :]
    assert not filling.over and bool(filling.stopped) == WAYS[way]
    for life in found:
        once(life, urgent)
    firsts = [life.first - life.launched for life in found]
    lasts = [life.last - life.launched for life in found]
    report(**{
        key("first", way, low): round(sum(firsts) / len(firsts)),
        key("last", way, low): round(sum(lasts) / len(lasts)),
        key("worst", way, low): max(firsts),
    })


@cocotb.test(**LIMIT)
@cocotb.parametrize(way=list(SWITCH_WAYS), length=SWITCH_LENGTHS)
async def changes(dut, way: str, length: int):
    """Two kernels that fill the machine, together or in turn."""
    tb = await MachineTestbench.start(dut)
    level, grid = SWITCH_WAYS[way], switch_grid(length)
    computer = await Computer.start(tb, log_size=LOG_SIZE, area=SAVE_AREA)
    await tb.control.write("CONTEXT_SLICE", SLICE)
    channels = []
    for number in range(2):
        context = number if level is not None else 0
        if level is not None:
            await computer.preempt(number, level=level)
        space = await computer.space(1 + number, number, context=context)
        channel = await computer.channel(number, 1 + number, context)
        task = space.task(grid, placement=Placement.WIDE.value)
        await channel.submit(joined(Pushbuffer().acquire(semaphore(SLOT), 1), launch(task)))
        channels.append(channel)
    await tb.wait(2000)
    before = [await tb.control.read(name) for name in SWITCHES.values()]
    await tb.let_go(SLOT, 1)
    await until_over(tb, len(channels))
    counts = [await tb.control.read(name) for name in SWITCHES.values()]
    (begun,) = [event.cycle for event in await tb.events(Semaphore, index=SLOT, value=1)]
    found = lives(await tb.all_events())
    for life in found:
        once(life, grid)
    values = {"makespan": max(life.over for life in found) - begun}
    spent = dict(zip(SWITCHES, [b - a for a, b in zip(before, counts, strict=True)], strict=True))
    saved = len(await tb.events(BlockStopped, saved=True))
    assert spent["saved"] == spent["restored"] == saved
    assert bool(saved) == (way == "cilp")
    if level is not None:
        values |= spent
    report(**{switch_key(what, way, length): value for what, value in values.items()})


def away(events: list[Event]) -> list[int]:
    """Cycles from each stop of a block until the block is sent to an SM again."""
    told: dict[int, int] = {}
    gone: dict[tuple[int, int], int] = {}
    spans = []
    for event in events:
        match event:
            case BlockStop(cycle, sm):
                told[sm] = cycle
            case BlockStopped(_, sm, row, True, x):
                gone[row, x] = told.pop(sm)
            case BlockPlaced(cycle, row, x=x) if (row, x) in gone:
                spans.append(cycle - gone.pop((row, x)))
    return spans


@cocotb.test(**LIMIT)
@cocotb.parametrize(way=LOSS)
async def loss(dut, way: str):
    """A kernel of which some blocks are stopped in favour of urgent ones."""
    tb = await MachineTestbench.start(dut)
    computer, channels, spaces = await begin(tb, WAYS.get(way, False))
    low, urgent = loss_grid(), loss_urgent()
    count = LOSS_URGENT if way in WAYS else 0
    tasks = [spaces[1].task(urgent, group=HIGH) for _ in range(count)]
    await filled(tb, channels[0], spaces[0].task(low, group=LOW, placement=Placement.WIDE.value))
    await arrive(tb, channels[1], tasks, [LOSS_STEP * (1 + n) for n in range(count)])
    await until_over(tb, 1 + count)
    await computer.finish(*channels)
    events = await tb.all_events()
    life, *found = lives(events)
    once(life, low)
    for one in found:
        once(one, urgent)
    report(**{loss_key("makespan", way): life.over - life.launched})
    assert bool(life.stopped) == (way == "save")
    if way == "save":
        spans = away(events)
        report(**{
            loss_key("blocks", way): len(spans),
            loss_key("away", way): round(sum(spans) / len(spans)),
        })
