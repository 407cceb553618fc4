"""The host on the whole machine: directed tests of its requirements."""

from dataclasses import replace

import pytest

from hw.config import CONFIGS, Config
from hw.top import Signalbox
from tb.host.bench import PUBLIC
from tb.sim.top import MEMORY_BYTES, simulate_top

SIZES = {
    "default": CONFIGS["default"],
    "two-engines": CONFIGS["two-engines"],
    "tiny": CONFIGS["tiny"],
    "narrow": Config(channels=3, data_width=64, prefetch_beats=8, semaphores=16, counters=4),
}


def run(simulator: str, size: str, module: str, minimum: int) -> None:
    """Run a module of cocotb tests; all of one size share a build."""
    config = replace(SIZES[size], memory_bytes=MEMORY_BYTES, trace=True)
    simulate_top(
        Signalbox(config),
        f"tb.host.{module}",
        simulator=simulator,
        name=f"host-{size}",
        public=PUBLIC,
        minimum=minimum,
    )


@pytest.mark.parametrize(
    "module",
    [
        "cocotb_rings",
        "cocotb_headers",
        "cocotb_methods",
        "cocotb_semaphores",
        "cocotb_acquires",
        "cocotb_order",
    ],
)
def test_default(simulator: str, module: str):
    """One engine, 128-bit bus."""
    run(simulator, "default", module, 1)
