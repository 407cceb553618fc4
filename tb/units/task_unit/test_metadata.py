"""Reading and checking of task records on both simulators."""

import pytest

from signalbox.hw.task_unit.qmd_reader import QmdReader
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.testbench.configs import METADATA


@pytest.mark.parametrize(
    "name", tiers(METADATA, smoke=["tiny"], nightly=["default", "large", "masks", "masks-64"])
)
def test_metadata(simulator: str, name: str) -> None:
    simulate(
        QmdReader(METADATA[name]),
        "signalbox.tb.units.task_unit.cocotb_metadata",
        simulator=simulator,
        name=f"work-metadata-{name}",
        env={"WORK_CONFIG": name},
        minimum=8,
    )
