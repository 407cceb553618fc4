"""Oldest unfinished blocks of queues on both simulators."""

import pytest

from signalbox.hw.task_unit.oldest_blocks import OldestBlocks
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.testbench.configs import OLDEST


@pytest.mark.parametrize("name", OLDEST)
def test_oldest(simulator: str, name: str) -> None:
    simulate(
        OldestBlocks(OLDEST[name]),
        "signalbox.tb.units.task_unit.cocotb_oldest",
        simulator=simulator,
        name=f"work-oldest-{name}",
        env={"OLDEST_CONFIG": name},
        minimum=3,
    )
