"""Reading the trace for benchmarks of the compute engine, and detection of errors."""

from collections.abc import Sequence

import pytest

from signalbox.hw.errors import Refusal
from signalbox.hw.placement.controller import Step
from signalbox.tb.benchmarks.grids import Grid, Life, lives, once
from signalbox.tb.models.timing import Timing
from signalbox.tb.simulation.trace import (
    BlockPlaced,
    BlockStopped,
    TaskLaunched,
    TaskOpened,
    TaskOver,
    WarpEnded,
    WarpStarted,
)

GRID = Grid(blocks=2, warps=1, timing=Timing())


def life(
    blocks: list[int], warps: int, refusal: Refusal = Refusal.NONE, stopped: Sequence[int] = ()
) -> Life:
    """Timing of one launch with these placed and `stopped` blocks, and `warps` started warps."""
    (found,) = lives([
        TaskLaunched(1, 0, 1, 5),
        TaskOpened(2, 0, 1, 5),
        *(BlockPlaced(3, 0, 0, Step.WHOLE, block, 0, 0) for block in blocks),
        *(WarpStarted(4 + warp, 0, warp, 0, 0, 0) for warp in range(warps)),
        *(BlockStopped(5, 0, 0, True, block, 0, 0) for block in stopped),
        *(WarpEnded(7, 0, warp) for warp in range(warps)),
        TaskOver(8, 0, 5, refusal),
    ])
    return found


def test_life():
    found = life([1, 0], 2)
    once(found, GRID)
    moments = (found.launched, found.opened, found.first, found.last, found.ended, found.over)
    assert moments == (1, 2, 4, 5, 7, 8)


@pytest.mark.parametrize("warps", [2, 3])
def test_stopped(warps: int):
    once(life([0, 1, 1], warps, stopped=[1]), GRID)


def test_stopped_and_not_placed_again():
    with pytest.raises(AssertionError):
        once(life([0, 1], 2, stopped=[1]), GRID)


@pytest.mark.parametrize(
    ("blocks", "warps"), [([0, 0], 2), ([0], 2), ([0, 1, 1], 2), ([0, 1], 1), ([0, 1], 3)]
)
def test_not_once(blocks: list[int], warps: int):
    with pytest.raises(AssertionError):
        once(life(blocks, warps), GRID)


def test_failed():
    with pytest.raises(AssertionError):
        once(life([0, 1], 2, Refusal.KERNEL), GRID)
