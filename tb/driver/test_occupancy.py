"""Blocks per SM compared with a table computed by hand, and blocks that are too big."""

import pytest

from signalbox.driver.compute.occupancy import BlockError, occupancy
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.qmd import SkedCheck

LARGE = Config(sm_warps=64, sm_blocks=32, sm_registers=65536, sm_shared=228 * 1024)

TABLE = [
    # configuration, registers, block, shared, blocks, limits
    (Config(), 8, (32, 1, 1), 0, 8, {"block slots"}),
    (Config(), 8, (64, 1, 1), 0, 8, {"warps", "registers", "block slots"}),
    (Config(), 9, (64, 1, 1), 0, 5, {"registers"}),
    (Config(), 32, (128, 1, 1), 0, 1, {"registers"}),
    (Config(), 4, (33, 1, 1), 0, 8, {"warps", "block slots"}),
    (Config(), 4, (1, 1, 1), 12 * 1024, 4, {"shared memory"}),
    (Config(), 4, (1, 1, 1), 12 * 1024 + 1, 3, {"shared memory"}),
    (Config(), 4, (16, 8, 4), 48 * 1024, 1, {"warps", "shared memory"}),
    (CONFIGS["tiny"], 8, (64, 1, 1), 2048, 1, {"warps", "registers", "shared memory"}),
    (LARGE, 32, (256, 1, 1), 0, 8, {"warps", "registers"}),
    (LARGE, 255, (256, 1, 1), 0, 1, {"registers"}),
    (LARGE, 4, (1024, 1, 1), 0, 2, {"warps"}),
    (LARGE, 4, (32, 1, 1), 7 * 1024, 32, {"shared memory", "block slots"}),
]


@pytest.mark.parametrize(("config", "registers", "block", "shared", "blocks", "limits"), TABLE)
def test_table(config, registers, block, shared, blocks, limits) -> None:
    found = occupancy(config, registers=registers, block=block, shared=shared)
    assert (found.blocks, set(found.limits)) == (blocks, limits)
    assert found.warps == blocks * -(-block[0] * block[1] * block[2] // 32)


@pytest.mark.parametrize(
    ("registers", "block", "shared", "check", "message"),
    [
        (0, (1, 1, 1), 0, SkedCheck.REGISTER_COUNT, "0 registers per thread"),
        (256, (1, 1, 1), 0, SkedCheck.REGISTER_COUNT, "256 registers per thread"),
        (4, (0, 1, 1), 0, SkedCheck.THREAD_DIMENSION_ZERO, "is empty"),
        (4, (1024, 2, 1), 0, SkedCheck.THREADS, "2048 threads: 1024 at most"),
        (4, (544, 1, 1), 0, SkedCheck.WARPS, "warps: a block needs 17, an SM has 16"),
        (33, (128, 1, 1), 0, SkedCheck.REGISTERS, "registers: a block needs 4608, an SM has 4096"),
        (4, (1, 1, 1), 49153, SkedCheck.SHARED_MEMORY, "shared memory: a block needs 50176"),
    ],
)
def test_too_big(registers, block, shared, check, message) -> None:
    """The error names the resource (PLACE-27)."""
    with pytest.raises(BlockError, match=message) as error:
        occupancy(Config(), registers=registers, block=block, shared=shared)
    assert error.value.check == check
