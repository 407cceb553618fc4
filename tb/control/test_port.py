"""The control port on both simulators, smallest, default and largest configuration."""

import pytest

from hw import export
from hw.config import CONFIGS
from hw.control.port import ControlPort
from tb.runner import simulate
from tb.tiers import tiers


@pytest.mark.parametrize("config", tiers(["tiny", "default", "large"], smoke=["tiny"]))
def test_port(simulator: str, config: str):
    simulate(
        ControlPort(CONFIGS[config]),
        "tb.control.cocotb_port",
        simulator=simulator,
        name=f"control-{config}",
        env={"CONFIG": config},
        minimum=21,
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_elaborates(config: str):
    assert "module top" in export.verilog(ControlPort(CONFIGS[config]))
