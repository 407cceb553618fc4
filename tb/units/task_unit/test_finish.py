"""The end of tasks on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.task_unit.task_end import TaskEnd
from signalbox.tb.simulation.runner import simulate


@pytest.mark.smoke
def test_finish(simulator: str) -> None:
    simulate(
        TaskEnd(CONFIGS["default"]),
        "signalbox.tb.units.task_unit.cocotb_finish",
        simulator=simulator,
        name="work-finish",
        minimum=5,
    )
