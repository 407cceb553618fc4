"""Compute channels on the whole machine, on both simulators."""

import pytest

from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import COMPUTE
from signalbox.tb.simulation.tiers import ON_ICARUS
from signalbox.tb.simulation.top import simulate_top


def test_compute(simulator: str) -> None:
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.machine.cocotb_compute",
        simulator=simulator,
        name="host-compute",
        minimum=17,
    )


def test_queues(simulator: str) -> None:
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.machine.cocotb_queues",
        simulator=simulator,
        name="host-queues",
        minimum=5,
    )


def test_inline(simulator: str) -> None:
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.machine.cocotb_inline",
        simulator=simulator,
        name="host-inline",
        minimum=6,
    )


@pytest.mark.smoke
@ON_ICARUS
def test_smoke(simulator: str) -> None:
    """A launch from its channel to its end, for every change."""
    simulate_top(
        Signalbox(COMPUTE),
        "signalbox.tb.machine.cocotb_compute",
        simulator=simulator,
        name="host-compute",
        testcase="from_launch_to_end",
    )
