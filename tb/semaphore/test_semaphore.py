"""The semaphore unit in all test sizes, on both simulators."""

import pytest

from hw.semaphore.unit import SemaphoreUnit
from tb.runner import simulate
from tb.semaphore.configs import SIZES
from tb.tiers import tiers


@pytest.mark.parametrize(
    "size",
    tiers(
        SIZES,
        smoke={"tiny": ["every_operation", "refusals", "rate_and_visibility", "racing_on_chip"]},
        nightly=["large"],
    ),
)
def test_unit(size: str, simulator: str) -> None:
    simulate(
        SemaphoreUnit(SIZES[size]),
        "tb.semaphore.cocotb_semaphore",
        simulator=simulator,
        name=f"semaphore-{size}",
        env={"SIZE": size},
        minimum=10,
    )
