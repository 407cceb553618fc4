"""An urgent block beside long blocks and short ones (`tb.benchmarks.recall`)."""

from collections import Counter
from collections.abc import Iterable

import cocotb

from signalbox.hw.placement.controller import Step
from signalbox.hw.qmd import Placement
from signalbox.tb.benchmarks.compute_machine import LOG_SIZE
from signalbox.tb.benchmarks.grids import Life, lives, once
from signalbox.tb.benchmarks.recall import (
    BOUND,
    CLAIM,
    LAST,
    LONG,
    LONG_SM,
    MOVE,
    SHORT,
    SHORT_SM,
    START,
    STEP,
    TRIES,
    URGENT_BLOCK,
    key,
)
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.machine.tasks import Computer, launch
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.simulation.trace import BlockPlaced, Event, TaskOver, WarpEnded, WarpStarted

LIMIT = {"timeout_time": 2, "timeout_unit": "ms"}

LOW, HIGH = 1, 10
"""Priorities of the long and short blocks, and of the urgent one."""


async def play(tb: MachineTestbench, turn: int) -> list[Event]:
    """An urgent kernel, which has run once before, arrives while both SMs are full. Returns all
    events until it is over."""
    computer = await Computer.start(tb, log_size=LOG_SIZE)
    spaces = [await computer.space(1, 0, 1), await computer.space(2, 2)]
    first, second, third = [await computer.channel(n, 1 + n // 2) for n in range(3)]
    urgent = spaces[1].task(URGENT_BLOCK, group=HIGH, placement=Placement.WIDE.value)
    await third.submit(launch(urgent))
    await computer.finish(third)
    for channel, grid in ((first, LONG), (second, SHORT)):
        low = spaces[0].task(grid, group=LOW, placement=Placement.DEEP.value)
        await channel.submit(launch(low))
        await tb.wait(1000)
    await tb.wait(STEP * turn)
    await third.submit(launch(urgent))
    while len(await tb.events(TaskOver, channel=third.index)) < 2:
        await tb.wait(400)
    return await tb.all_events()


def ends(events: Iterable[Event]) -> list[int]:
    """Cycles in which blocks on the SM of the short blocks are over. The urgent block counts as
    several."""
    slots: dict[int, int] = {}
    warps: Counter[int] = Counter()
    found = []
    for event in events:
        match event:
            case WarpStarted(_, sm, warp, _, slot) if sm == SHORT_SM:
                slots[warp] = slot
            case WarpEnded(cycle, sm, warp) if sm == SHORT_SM:
                warps[slots[warp]] += 1
                if warps[slots[warp]] % SHORT.warps == 0:
                    found.append(cycle)
    return found


def check(long: Life, short: Life) -> None:
    """Check that the long blocks hold one SM all the time, and the short ones keep the other one
    busy."""
    assert {placed.sm for placed in long.placed} == {LONG_SM}
    assert {placed.sm for placed in short.placed} == {SHORT_SM}
    assert len(long.started) == LONG.blocks * LONG.warps and not long.ended
    assert len(short.placed) < SHORT.blocks


@cocotb.test(**LIMIT)
@cocotb.parametrize(turn=range(TRIES))
async def recall(dut, turn: int):
    """The urgent block begins on the SM that has room first, wherever it was sent, and no lower
    warps start meanwhile (PLACE-5)."""
    events = await play(await MachineTestbench.start(dut), turn)
    _, long, short, urgent = lives(events)
    once(urgent, URGENT_BLOCK)
    placed = [event for event in events if isinstance(event, BlockPlaced)]
    sent, *later = [event for event in placed if event.cycle >= urgent.placed[0].cycle]
    moved = [event.cycle for event in later if event.step is Step.MOVED]
    low = [cycle for cycle in short.started if urgent.launched < cycle < urgent.first]
    report(**{
        key("first warp", turn): urgent.first - urgent.launched,
        key("lower warps", turn): len(low),
        key("sent to SM", turn): sent.sm,
    })
    waited = urgent.first - sent.cycle
    assert waited <= BOUND, f"{waited} cycles on SM {sent.sm}, {len(low)} lower warps started"
    check(long, short)
    assert not low or low[-1] <= sent.cycle + LAST
    room = min(cycle for cycle in ends(events) if cycle >= sent.cycle + CLAIM)
    assert len(moved) == (sent.sm == LONG_SM) and all(cycle <= room + MOVE for cycle in moved)
    assert urgent.first <= max(moved, default=room) + START
