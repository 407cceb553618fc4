"""The end of tasks on both simulators."""

import pytest

from hw.config import CONFIGS
from hw.task_unit.task_end import Finish
from tb.runner import simulate


@pytest.mark.smoke
def test_finish(simulator: str) -> None:
    simulate(
        Finish(CONFIGS["default"]),
        "tb.work.cocotb_finish",
        simulator=simulator,
        name="work-finish",
        minimum=5,
    )
