"""The driver on the RTL of the whole machine."""

from dataclasses import replace

import pytest

from signalbox.hw.config import Config
from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import COMPUTE, NESTED, SAVING, SIZES
from signalbox.tb.simulation.top import simulate_top

CHANNELS = ("copies", "errors", "spaces")
"""Tests of `cocotb_driver` that depend on the number of channels."""


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_driver(simulator: str, name: str):
    """All tests pass; on Icarus the default machine runs only the tests in `CHANNELS`."""
    tests = CHANNELS if simulator == "icarus" and name == "default" else ()
    simulate_top(
        Signalbox(SIZES[name]),
        "signalbox.tb.driver.cocotb_driver",
        simulator=simulator,
        name=f"driver-{name}",
        testcase=",".join(tests) or None,
        minimum=len(tests) or 9,
    )


def test_example(simulator: str):
    """The user guide's test, unchanged."""
    simulate_top(
        Signalbox(SIZES["default"]),
        "signalbox.tb.driver.cocotb_example",
        simulator=simulator,
        name="driver-default",
    )


def test_runlist(simulator: str) -> None:
    """Address spaces take turns by a runlist."""
    simulate_top(
        Signalbox(SIZES["default"]),
        "signalbox.tb.driver.cocotb_runlist_driver",
        simulator=simulator,
        name="driver-runlist",
        minimum=3,
    )


def test_compute(simulator: str) -> None:
    """Launches work on a machine with a compute engine."""
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.driver.cocotb_compute_driver",
        simulator=simulator,
        name="driver-compute",
        minimum=30,
    )


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(COMPUTE, id="compute"),
        pytest.param(SAVING, id="saving", marks=pytest.mark.nightly),
    ],
)
def test_sharing(simulator: str, config: Config) -> None:
    """Applications of a server share the SMs, or take turns."""
    simulate_top(
        Signalbox(config),
        "signalbox.tb.driver.cocotb_sharing",
        simulator=simulator,
        name="driver-sharing",
        minimum=2,
    )


@pytest.mark.nightly
def test_saving(simulator: str) -> None:
    """Urgent tasks, contexts and applications on a machine that saves blocks."""
    simulate_top(
        Signalbox(SAVING),
        "signalbox.tb.driver.cocotb_saving",
        simulator=simulator,
        name="driver-saving",
        minimum=6,
    )


@pytest.mark.nightly
def test_nested(simulator: str) -> None:
    """Kernels that launch kernels, and their flat versions."""
    simulate_top(
        Signalbox(NESTED),
        "signalbox.tb.driver.cocotb_nested",
        simulator=simulator,
        name="driver-nested",
        minimum=22,
    )


@pytest.mark.nightly
def test_timing_nested(simulator: str) -> None:
    """Kernels that launch kernels, on timing cores."""
    simulate_top(
        Signalbox(replace(NESTED, timing_core=True)),
        "signalbox.tb.driver.cocotb_timing_nested",
        simulator=simulator,
        name="driver-timing-nested",
        minimum=2,
    )
