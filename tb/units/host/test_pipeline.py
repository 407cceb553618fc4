"""Method pipeline alone, on both simulators."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.methods.pipeline import MethodPipeline
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["one_per_cycle", "others_make_room_later", "refused_again"]},
        nightly=["tiny", "large"],
    ),
)
def test_pipeline(simulator: str, size: str) -> None:
    simulate(
        MethodPipeline(CONFIGS[size]),
        "signalbox.tb.units.host.cocotb_pipeline",
        simulator=simulator,
        name=f"host-pipeline-{size}",
        env={"SIZE": size},
        minimum=17 if size == "tiny" else 18,
    )
