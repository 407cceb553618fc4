"""Units of the host alone, on both simulators."""

import pytest

from hw.config import CONFIGS
from hw.host.arrivals import Arrivals
from hw.host.barrier import Barrier
from hw.host.fetch import Fetch
from tb.host import fetching
from tb.runner import simulate


@pytest.mark.parametrize("size", fetching.CONFIGS)
def test_fetch(simulator: str, size: str) -> None:
    simulate(
        Fetch(fetching.CONFIGS[size]),
        "tb.host.cocotb_fetch",
        simulator=simulator,
        name=f"host-fetch-{size}",
        env={"SIZE": size},
        minimum=6,
    )


@pytest.mark.parametrize("size", ["tiny", "default", "large"])
def test_arrivals(simulator: str, size: str) -> None:
    simulate(
        Arrivals(CONFIGS[size]),
        "tb.host.cocotb_arrivals",
        simulator=simulator,
        name=f"host-arrivals-{size}",
        env={"SIZE": size},
        minimum=3,
    )


@pytest.mark.parametrize("size", ["tiny", "default", "two-engines", "large"])
def test_barrier(simulator: str, size: str) -> None:
    simulate(
        Barrier(CONFIGS[size]),
        "tb.host.cocotb_barrier",
        simulator=simulator,
        name=f"host-barrier-{size}",
        env={"SIZE": size},
        minimum=3,
    )
