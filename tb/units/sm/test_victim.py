"""Choice of the block to be stopped."""

import pytest

from signalbox.hw.config import Config
from signalbox.hw.sm.block_stop import BlockStop
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

SIZES = {
    "one": Config(sm_blocks=1, save_places=8),
    "five": Config(sm_blocks=5, save_places=8),
    "most": Config(sm_blocks=32, sm_warps=32, save_places=64),
}


@pytest.mark.parametrize("name", tiers(SIZES, nightly=["one", "most"]))
def test_victim(simulator: str, name: str) -> None:
    simulate(
        BlockStop(SIZES[name]),
        "signalbox.tb.units.sm.cocotb_victim",
        simulator=simulator,
        name=f"sm-victim-{name}",
        env={"SM_CONFIG": name},
    )
