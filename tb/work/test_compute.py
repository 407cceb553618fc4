"""The compute engine on both simulators."""

import pytest

from hw.compute.engine import Compute
from tb.runner import simulate
from tb.work.configs import COMPUTE, TIMING


def test_compute(simulator: str) -> None:
    simulate(
        Compute(COMPUTE),
        "tb.work.cocotb_compute",
        simulator=simulator,
        name="work-compute",
        minimum=7,
    )


def test_timing(simulator: str) -> None:
    simulate(
        Compute(TIMING),
        "tb.work.cocotb_timing",
        simulator=simulator,
        name="work-timing",
        minimum=3,
    )


@pytest.mark.smoke
@pytest.mark.parametrize("simulator", ["icarus"], indirect=True)
def test_smoke(simulator: str) -> None:
    """One test of the engine with every change."""
    simulate(
        Compute(COMPUTE),
        "tb.work.cocotb_compute",
        simulator=simulator,
        name="work-compute",
        testcase="dependent_tasks",
    )
