"""Constrained-random programs; `make soak` runs many more."""

from dataclasses import asdict

import pytest

from hw.config import Config
from hw.top import Signalbox
from tb.sim.top import simulate_top

SIZES = {
    "default": {"memory_bytes": 1 << 21, "trace": True},
    "two-engines": {"memory_bytes": 1 << 21, "trace": True, "copy_engines": 2},
    "narrow": {
        "memory_bytes": 1 << 20,
        "trace": True,
        "channels": 3,
        "data_width": 64,
        "semaphores": 16,
        "copy_engines": 2,
        "prefetch_beats": 8,
    },
}


def _run(simulator: str, size: str, rounds: int, commands: int) -> None:
    config = Config(**SIZES[size])
    simulate_top(
        Signalbox(config),
        "tb.random.cocotb_random",
        simulator=simulator,
        name=f"random-{size}",
        memory_bytes=config.memory_bytes,
        env={
            "SIGNALBOX_CONFIG": repr(asdict(config)),
            "SIGNALBOX_ROUNDS": str(rounds),
            "SIGNALBOX_COMMANDS": str(commands),
        },
    )


@pytest.mark.parametrize("size", SIZES)
def test_random_programs(simulator: str, size: str):
    """10,000 commands and more on Verilator; Icarus, which is 50 times slower, gets a sample."""
    rounds, commands = (4, 900) if simulator == "verilator" else (1, 150)
    _run(simulator, size, rounds, commands)


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_soak(size: str):
    """A hundred rounds."""
    _run("verilator", size, 100, 900)
