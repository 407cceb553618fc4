"""The host on the whole machine: directed tests of its requirements."""

from dataclasses import replace

import pytest

from hw.config import CONFIGS, Config
from hw.top import Signalbox
from tb.host.bench import PUBLIC
from tb.sim.top import MEMORY_BYTES, simulate_top

NARROW = Config(channels=3, data_width=64, prefetch_beats=8, semaphores=16, counters=4)

SINGLE = {
    "cocotb_rings": 15,
    "cocotb_headers": 8,
    "cocotb_methods": 13,
    "cocotb_semaphores": 8,
    "cocotb_acquires": 6,
    "cocotb_errors": 8,
    "cocotb_copies": 9,
}
"""Modules whose tests look at channels one by one, and how many tests they have."""

TOGETHER = {"cocotb_order": 19, "cocotb_priorities": 8}
"""Modules whose tests need several channels."""


def run(config: Config, simulator: str, size: str, module: str, minimum: int) -> None:
    """Run a module of cocotb tests; all of one size share a build."""
    simulate_top(
        Signalbox(replace(config, memory_bytes=MEMORY_BYTES, trace=True)),
        f"tb.host.{module}",
        simulator=simulator,
        name=f"host-{size}",
        public=PUBLIC,
        minimum=minimum,
    )


@pytest.mark.parametrize("module", [*SINGLE, *TOGETHER])
def test_default(simulator: str, module: str):
    """One engine, eight channels, 128-bit bus."""
    run(CONFIGS["default"], simulator, "default", module, (SINGLE | TOGETHER)[module])


@pytest.mark.parametrize("module", ["cocotb_priorities", "cocotb_copies"])
def test_two_engines(simulator: str, module: str):
    """Two engines."""
    run(CONFIGS["two-engines"], simulator, "two-engines", module, (SINGLE | TOGETHER)[module])


@pytest.mark.parametrize("module", ["cocotb_rings", "cocotb_headers", "cocotb_errors"])
@pytest.mark.parametrize("size", ["tiny", "narrow"])
def test_small(simulator: str, size: str, module: str):
    """One channel, and three; 64-bit bus, the smallest prefetch buffer."""
    run({**CONFIGS, "narrow": NARROW}[size], simulator, size, module, SINGLE[module])
