"""Nested launches of all SMs."""

import pytest

from signalbox.hw.config import Config
from signalbox.hw.nested.sm_hub import SmHub
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


def config(sms: int) -> Config:
    """Configuration with this number of SMs."""
    return Config(sms=sms, save_places=8, nested_kernels=140)


@pytest.mark.parametrize("sms", tiers([1, 3, 132], smoke=[3], nightly=[1, 132]))
def test_sm_hub(simulator: str, sms: int) -> None:
    simulate(
        SmHub(config(sms)),
        "signalbox.tb.units.nested.cocotb_sm_hub",
        simulator=simulator,
        name=f"sm-hub-{sms}",
        env={"SMS": str(sms)},
        minimum=2,
    )
