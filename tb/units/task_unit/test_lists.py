"""Lists of tasks on both simulators."""

import pytest

from signalbox.hw.task_unit.task_lists import TaskLists
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.testbench.configs import LISTS


@pytest.mark.parametrize("name", tiers(LISTS, smoke=["tiny"], nightly=["saving", "large"]))
def test_lists(simulator: str, name: str) -> None:
    simulate(
        TaskLists(LISTS[name]),
        "signalbox.tb.units.task_unit.cocotb_lists",
        simulator=simulator,
        name=f"work-lists-{name}",
        env={"WORK_CONFIG": name},
        minimum=10,
    )
