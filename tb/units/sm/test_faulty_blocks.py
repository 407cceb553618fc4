"""Positions of the blocks of warps that fault."""

import pytest

from signalbox.hw.config import Config
from signalbox.hw.sm.faulty_blocks import FaultyBlocks
from signalbox.tb.simulation.runner import simulate

SIZES = {"one": Config(sm_blocks=1), "saving": Config(sm_blocks=5, save_places=8)}


@pytest.mark.parametrize("name", SIZES)
def test_faulty_blocks(simulator: str, name: str) -> None:
    simulate(
        FaultyBlocks(SIZES[name]),
        "signalbox.tb.units.sm.cocotb_faulty_blocks",
        simulator=simulator,
        name=f"sm-faulty-blocks-{name}",
        env={"SM_CONFIG": name},
    )
