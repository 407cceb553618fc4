"""Work distribution alone."""

from dataclasses import asdict

import pytest

from hw.config import Config
from hw.work.placement import Placement
from tb.runner import simulate

SIZES = {"sm_warps": 8, "sm_blocks": 4, "sm_registers": 4096, "sm_shared": 16 * 1024}


def place(simulator: str, tests: str, config: Config, name: str, **options) -> None:
    simulate(
        Placement(config),
        f"tb.work.{tests}",
        simulator=simulator,
        name=f"work-{name}",
        env={"CONFIG": repr(asdict(config))},
        **options,
    )


@pytest.mark.parametrize("sms", [1, 5])
def test_random(simulator: str, sms: int) -> None:
    config = Config(slots=8, sms=sms, asids=4, **SIZES)
    place(simulator, "cocotb_random", config, f"random-{sms}")


def test_random_of_many(simulator: str) -> None:
    config = Config(slots=16, sms=132, asids=8, **SIZES)
    place(simulator, "cocotb_random", config, "random-132")


def test_directed(simulator: str) -> None:
    config = Config(slots=8, sms=3, asids=8, **SIZES)
    place(simulator, "cocotb_placement", config, "directed", minimum=10)
