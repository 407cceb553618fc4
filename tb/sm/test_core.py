"""The supplied core alone."""

import json
from typing import Any

import pytest

from hw.config import Config
from hw.sm.core.core import Core
from tb.runner import simulate

SIZES = {
    "default": {},
    "narrow": {"lanes": 1, "data_width": 64, "sm_warps": 3, "sm_blocks": 2, "sm_shared": 4096},
    "wide": {"lanes": 32, "data_width": 512, "sm_warps": 8, "sm_blocks": 4},
}


@pytest.mark.parametrize("size", SIZES)
def test_core(simulator: str, size: str) -> None:
    fields: dict[str, Any] = SIZES[size]
    simulate(
        Core(Config(**fields)),
        "tb.sm.cocotb_core",
        simulator=simulator,
        name=f"sm-core-{size}",
        env={"CONFIG": json.dumps(fields)},
        minimum=1,
    )
