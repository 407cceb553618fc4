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
