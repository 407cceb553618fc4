"""Inline transfers and inline QMDs on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.front_end.compute_methods import ComputeMethodUnit
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

SMOKE = ["bytes_exact", "latency", "faults", "records_that_fault"]
"""Tests on Icarus for every change."""


@pytest.mark.parametrize(
    "size", tiers(["default", "tiny", "large"], smoke={"default": SMOKE}, nightly=["tiny", "large"])
)
def test_inline(simulator: str, size: str) -> None:
    simulate(
        ComputeMethodUnit(CONFIGS[size]),
        "signalbox.tb.units.front_end.cocotb_inline",
        simulator=simulator,
        name=f"work-inline-{size}",
        env={"SIZE": size},
        minimum=10,
    )
