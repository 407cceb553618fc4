"""Contexts on both simulators."""

from hw.config import CONFIGS
from hw.work.contexts import Contexts
from tb.runner import simulate


def test_contexts(simulator: str) -> None:
    simulate(
        Contexts(CONFIGS["default"]),
        "tb.work.cocotb_contexts",
        simulator=simulator,
        name="work-contexts",
        minimum=5,
    )
