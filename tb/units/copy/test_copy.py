"""The copy engine on both simulators."""

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS
from signalbox.hw.copy.engine import CopyEngine
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import CONFIGURATIONS, tiers
from signalbox.tb.units.copy.testbench import config

WIDTHS = [64, 128, 512]
TESTS = [("cocotb_copy", 14), ("cocotb_rate", 10), ("cocotb_remap", 32)]


@pytest.mark.parametrize(
    ("tests", "minimum", "width"),
    tiers(
        [(*tests, width) for tests in TESTS for width in WIDTHS],
        smoke={
            ("cocotb_copy", 14, 64): ["alignment_and_length", "failed_reads"],
            ("cocotb_rate", 10, 64): ["slow_memory"],
            ("cocotb_remap", 32, 64): ["known_results", "failures"],
        },
        nightly=[(*tests, width) for tests in TESTS for width in (64, 128)],
    ),
)
def test_copy(simulator: str, tests: str, minimum: int, width: int) -> None:
    simulate(
        CopyEngine(config(width)),
        f"signalbox.tb.units.copy.{tests}",
        simulator=simulator,
        name=f"copy-{width}",
        env={"COPY_DATA_WIDTH": str(width)},
        minimum=minimum,
    )


@CONFIGURATIONS
def test_elaborates(config: str) -> None:
    assert export.verilog(CopyEngine(CONFIGS[config]))
