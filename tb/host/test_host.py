"""The host on the whole machine: directed tests of its requirements."""

import pytest

from hw.top import Signalbox
from tb.sim.sizes import SIZES
from tb.sim.top import simulate_top

SINGLE = {
    "cocotb_rings": 18,
    "cocotb_headers": 8,
    "cocotb_methods": 17,
    "cocotb_invalidations": 6,
    "cocotb_semaphores": 8,
    "cocotb_acquires": 11,
    "cocotb_errors": 18,
    "cocotb_copies": 11,
}
"""Modules whose tests look at channels one by one, and how many tests they have."""

TOGETHER = {
    "cocotb_order": 23,
    "cocotb_priorities": 13,
    "cocotb_counters": 6,
    "cocotb_translation": 11,
}
"""Modules whose tests need several channels."""


def run(simulator: str, size: str, module: str) -> None:
    """Run a module of cocotb tests."""
    simulate_top(
        Signalbox(SIZES[size]),
        f"tb.host.{module}",
        simulator=simulator,
        name=f"host-{size}",
        minimum=(SINGLE | TOGETHER)[module],
    )


@pytest.mark.parametrize("module", [*SINGLE, *TOGETHER])
def test_default(simulator: str, module: str):
    """One engine, eight channels, 128-bit bus."""
    run(simulator, "default", module)


@pytest.mark.parametrize("module", ["cocotb_priorities", "cocotb_copies", "cocotb_counters"])
def test_two_engines(simulator: str, module: str):
    """Two engines."""
    run(simulator, "two-engines", module)


@pytest.mark.parametrize("module", ["cocotb_rings", "cocotb_headers", "cocotb_errors"])
@pytest.mark.parametrize("size", ["tiny", "narrow"])
def test_small(simulator: str, size: str, module: str):
    """One channel, and three; 64-bit bus, the smallest prefetch buffer."""
    run(simulator, size, module)
