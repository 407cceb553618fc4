"""Grids for timing cores, and their timing from a trace."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from signalbox.hw.errors import Refusal
from signalbox.hw.placement.controller import Step
from signalbox.tb.benchmarks.compute_machine import MACHINE
from signalbox.tb.machine.testbench import MachineTestbench
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import (
    BlockPlaced,
    BlockStopped,
    Event,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpEnded,
    WarpStarted,
)
from signalbox.tb.testbench.jobs import ARGUMENTS

__all__ = ["Grid", "Life", "Placed", "lives", "once", "until_over"]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A job for `tb.machine.tasks.Space`: `blocks` of `warps` each, which behave as `timing`
    describes. `registers`: of each thread. `shared`: bytes of a block."""

    blocks: int
    warps: int
    timing: Timing
    barrier: bool = False
    registers: int = 8
    shared: int = 0
    results: dict[int, Any] = field(default_factory=dict)

    def memory(self) -> dict[int, bytes]:
        """Memory contents, by address."""
        return {ARGUMENTS: self.timing.record()}

    def launch(self) -> dict[str, Any]:
        """Fields of the task record."""
        return {
            "program": 0,
            "constants": ARGUMENTS,
            "constant_bytes": 32,
            "grid": (self.blocks, 1, 1),
            "block": (32 * self.warps, 1, 1),
            "registers": self.registers,
            "shared": self.shared,
            "barrier": self.barrier,
        }

    def stores(self) -> Iterator[tuple[int, bytes]]:
        """Address and data of each beat written by the warps."""
        timing = self.timing
        every = product(range(self.blocks), range(self.warps), range(timing.accesses))
        for at in every:
            yield timing.at(*at), timing.pattern(*at) * (MACHINE.beat_bytes // 8)


@dataclass(frozen=True)
class Placed:
    """A placed block, with cycle, SM and step."""

    block: int
    cycle: int
    sm: int
    step: Step


@dataclass
class Life:
    """Timing of a launch, in cycles. `stopped`: blocks that left an SM before their end."""

    channel: int
    launched: int
    opened: int = 0
    placed: list[Placed] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    ended: int = 0
    over: int = 0
    refusal: Refusal | None = None

    @property
    def first(self) -> int:
        """Cycle in which the first warp starts."""
        return self.started[0]

    @property
    def last(self) -> int:
        """Cycle in which the last warp starts."""
        return self.started[-1]


def lives(events: Iterable[Event]) -> list[Life]:
    """All launches, in the order in which the task unit took them."""
    found: list[Life] = []
    spaces: dict[tuple[int, int], Life] = {}
    channels: dict[tuple[int, int], Life] = {}
    rows: dict[int, Life] = {}
    warps: dict[tuple[int, int], Life] = {}
    for event in events:
        match event:
            case TaskLaunched(cycle, channel, asid, page):
                life = Life(channel, cycle)
                found.append(life)
                spaces[asid, page] = channels[channel, page] = life
            case TaskOpened(cycle, row, asid, page):
                rows[row] = life = spaces[asid, page]
                life.opened = life.opened or cycle
            case BlockPlaced(_, row, sm, Step.MOVED, x):
                placed = rows[row].placed
                number = next(n for n, one in enumerate(placed) if one.block == x)
                placed[number] = replace(placed[number], sm=sm, step=Step.MOVED)
            case BlockPlaced(cycle, row, sm, step, x):
                rows[row].placed.append(Placed(x, cycle, sm, step))
            case WarpStarted(cycle, sm, warp, row):
                rows[row].started.append(cycle)
                warps[sm, warp] = rows[row]
            case BlockStopped(_, _, row, _, x):
                rows[row].stopped.append(x)
            case WarpEnded(cycle, sm, warp):
                warps[sm, warp].ended = cycle
            case TaskOver(cycle, channel, page, refusal):
                life = channels[channel, page]
                life.over, life.refusal = cycle, refusal
    return found


async def until_over(tb: MachineTestbench, count: int, limit: int = 200_000) -> None:
    """Wait until `count` tasks are over, for at most `limit` cycles. Python mostly sleeps."""
    end = tb.now() + limit
    while len(await tb.events(TaskOver)) < count:
        assert tb.now() < end, f"not {count} tasks over within {limit} cycles"
        await tb.wait(400)


def once(life: Life, grid: Grid) -> None:
    """Assert that the task has ended, and that every block was placed once and every warp started
    once. A stopped block is placed once more for each stop, and its warps may start again."""
    assert life.over and life.refusal is Refusal.NONE, life
    blocks = Counter(placed.block for placed in life.placed)
    assert blocks == Counter([*range(grid.blocks), *life.stopped]), blocks
    started = len(life.started)
    assert grid.blocks * grid.warps <= started <= len(life.placed) * grid.warps
