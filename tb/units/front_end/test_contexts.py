"""Contexts on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.front_end.contexts import Contexts
from signalbox.tb.simulation.runner import simulate


@pytest.mark.smoke
def test_contexts(simulator: str) -> None:
    simulate(
        Contexts(CONFIGS["default"]),
        "signalbox.tb.units.front_end.cocotb_contexts",
        simulator=simulator,
        name="work-contexts",
        minimum=10,
    )
