"""The driver on the RTL of the whole machine."""

import pytest

from signalbox.hw.top import Signalbox
from signalbox.tb.sim.sizes import COMPUTE, SIZES
from signalbox.tb.sim.top import simulate_top

CHANNELS = ("copies", "errors", "spaces")
"""Tests of `cocotb_driver` that several channels change."""


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_driver(simulator: str, name: str):
    """On Icarus, the smallest machine runs all that it can."""
    tests = CHANNELS if simulator == "icarus" and name == "default" else ()
    simulate_top(
        Signalbox(SIZES[name]),
        "signalbox.tb.driver.cocotb_driver",
        simulator=simulator,
        name=f"driver-{name}",
        testcase=",".join(tests) or None,
        minimum=len(tests) or 8,
    )


def test_example(simulator: str):
    """The user guide's test, as it stands there."""
    simulate_top(
        Signalbox(SIZES["default"]),
        "signalbox.tb.driver.cocotb_example",
        simulator=simulator,
        name="driver-default",
    )


def test_compute(simulator: str) -> None:
    """Launches, on a machine with a compute engine."""
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.driver.cocotb_compute_driver",
        simulator=simulator,
        name="driver-compute",
        minimum=4,
    )
