"""The control port on both simulators, in the smallest, default and largest configuration."""

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS
from signalbox.hw.control.port import ControlPort
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import CONFIGURATIONS, tiers

SMOKE = ["identity_and_reset", "doorbells", "interrupts", "forwarding"]
"""Tests on Icarus for every change."""


@pytest.mark.parametrize(
    "config", tiers(["tiny", "default", "large"], smoke={"tiny": SMOKE}, nightly=["tiny", "large"])
)
def test_port(simulator: str, config: str):
    simulate(
        ControlPort(CONFIGS[config]),
        "signalbox.tb.units.control.cocotb_port",
        simulator=simulator,
        name=f"control-{config}",
        env={"CONFIG": config},
        minimum=26,
    )


@CONFIGURATIONS
def test_elaborates(config: str):
    assert "module top" in export.verilog(ControlPort(CONFIGS[config]))
