"""Compute channels on the whole machine, on both simulators."""

from hw.top import Signalbox
from tb.sim.sizes import COMPUTE
from tb.sim.top import simulate_top


def test_compute(simulator: str) -> None:
    simulate_top(
        Signalbox(COMPUTE),
        "tb.host.cocotb_compute",
        simulator=simulator,
        name="host-compute",
        minimum=12,
    )


def test_queues(simulator: str) -> None:
    simulate_top(
        Signalbox(COMPUTE),
        "tb.host.cocotb_queues",
        simulator=simulator,
        name="host-queues",
        minimum=5,
    )
