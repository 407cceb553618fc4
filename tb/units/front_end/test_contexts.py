"""Contexts on both simulators."""

import pytest

from signalbox.hw.front_end.contexts import Contexts
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.units.front_end.contexts_testbench import CONFIG


@pytest.mark.smoke("binds_before_it_runs", "limits", "takes_turns", "stays_broken")
def test_contexts(simulator: str) -> None:
    simulate(
        Contexts(CONFIG),
        "signalbox.tb.units.front_end.cocotb_contexts",
        simulator=simulator,
        name="work-contexts",
        minimum=14,
    )
