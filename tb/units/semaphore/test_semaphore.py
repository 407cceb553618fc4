"""The semaphore unit in all test sizes, on both simulators."""

import pytest

from signalbox.hw.semaphore.unit import SemaphoreUnit
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.units.semaphore.configs import SIZES


@pytest.mark.parametrize(
    "size",
    tiers(
        SIZES,
        smoke={"tiny": ["every_operation", "refusals"]},
        nightly=["tiny", "large", "odd"],
    ),
)
def test_unit(size: str, simulator: str) -> None:
    simulate(
        SemaphoreUnit(SIZES[size]),
        "signalbox.tb.units.semaphore.cocotb_semaphore",
        simulator=simulator,
        name=f"semaphore-{size}",
        env={"SIZE": size},
        minimum=10,
    )
