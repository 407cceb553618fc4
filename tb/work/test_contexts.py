"""Contexts on both simulators."""

import pytest

from hw.config import CONFIGS
from hw.front_end.contexts import Contexts
from tb.runner import simulate


@pytest.mark.smoke
def test_contexts(simulator: str) -> None:
    simulate(
        Contexts(CONFIGS["default"]),
        "tb.work.cocotb_contexts",
        simulator=simulator,
        name="work-contexts",
        minimum=5,
    )
