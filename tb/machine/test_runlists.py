"""Runlists on the whole machine."""

from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.top import simulate_top


def test_runlists(simulator: str) -> None:
    """HOST-7."""
    simulate_top(
        Signalbox(SIZES["default"]),
        "signalbox.tb.machine.cocotb_runlists",
        simulator=simulator,
        name="host-runlist",
        minimum=23,
    )
