"""WFI of scope ALL with compute methods, on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.units.host.epochs_testbench import Epochs


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "two-engines", "large"],
        smoke={"tiny": ["handed_over", "answered", "reset_in_an_epoch"]},
        nightly=["tiny", "two-engines", "large"],
    ),
)
def test_epochs(simulator: str, size: str) -> None:
    simulate(
        Epochs(CONFIGS[size]),
        "signalbox.tb.units.host.cocotb_epochs",
        simulator=simulator,
        name=f"host-epochs-{size}",
        env={"SIZE": size},
        minimum=11 if size == "tiny" else 12,
    )
