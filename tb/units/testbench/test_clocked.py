"""The library of testbenches with small designs, on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.units.testbench.mover import Mover


@pytest.mark.smoke
def test_streams(simulator: str) -> None:
    depth = 5
    simulate(
        StreamFIFO(16, depth),
        "signalbox.tb.units.testbench.cocotb_clocked",
        simulator=simulator,
        name="testbench-streams",
        env={"DEPTH": str(depth)},
        minimum=9,
    )


@pytest.mark.smoke
def test_servers(simulator: str) -> None:
    simulate(
        Mover(CONFIGS["tiny"]),
        "signalbox.tb.units.testbench.cocotb_servers",
        simulator=simulator,
        name="testbench-servers",
        minimum=3,
    )
