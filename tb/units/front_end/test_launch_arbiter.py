"""The arbiter of launches."""

import pytest

from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.front_end.launch_arbiter import LaunchArbiter
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

NESTED = Config(save_places=8, nested_kernels=20)


@pytest.mark.parametrize("name", tiers(["default", "nested"], smoke=["nested"]))
def test_launch_arbiter(simulator: str, name: str) -> None:
    simulate(
        LaunchArbiter(NESTED if name == "nested" else CONFIGS["default"]),
        "signalbox.tb.units.front_end.cocotb_launch_arbiter",
        simulator=simulator,
        name=f"launch-arbiter-{name}",
        env={"WORK_CONFIG": name},
        minimum=3,
    )
