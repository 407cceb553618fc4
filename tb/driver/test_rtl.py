"""The driver on the RTL of the whole machine."""

from dataclasses import replace

import pytest

from hw.config import CONFIGS
from hw.top import Signalbox
from tb.sim.top import MEMORY_BYTES, simulate_top


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_driver(simulator: str, name: str):
    config = replace(CONFIGS[name], memory_bytes=MEMORY_BYTES)
    simulate_top(
        Signalbox(config),
        "tb.driver.cocotb_driver",
        simulator=simulator,
        name=f"driver-{name}",
        minimum=4,
    )


def test_example(simulator: str):
    """The README's test, as it stands there."""
    config = replace(CONFIGS["default"], memory_bytes=MEMORY_BYTES)
    simulate_top(
        Signalbox(config),
        "tb.driver.cocotb_example",
        simulator=simulator,
        name="driver-default",
    )
