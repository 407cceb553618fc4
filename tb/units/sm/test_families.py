"""Children of the blocks on an SM."""

import pytest

from signalbox.hw.config import Config
from signalbox.hw.sm.block_families import BlockFamilies
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

SIZES = {
    "small": Config(save_places=8, nested_kernels=5, sm_blocks=3),
    "one": Config(save_places=8, nested_kernels=2, sm_blocks=1),
    "large": Config(save_places=8, nested_kernels=200, sm_blocks=32),
}


@pytest.mark.parametrize("name", tiers(SIZES, smoke=["small"], nightly=["large"]))
def test_families(simulator: str, name: str) -> None:
    simulate(
        BlockFamilies(SIZES[name]),
        "signalbox.tb.units.sm.cocotb_families",
        simulator=simulator,
        name=f"sm-families-{name}",
        env={"SM_CONFIG": name},
    )
