"""The parts in `hw/lib` on both simulators."""

import gc

import pytest

from signalbox.hw.lib.arbiter import RoundRobin
from signalbox.hw.lib.stream import StreamFIFO, StreamRegister
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


@pytest.mark.smoke
def test_stream_register(simulator: str) -> None:
    simulate(
        StreamRegister(16),
        "signalbox.tb.units.lib.cocotb_stream",
        simulator=simulator,
        name="lib-stream",
        minimum=3,
    )


@pytest.mark.smoke
def test_stream_fifo(simulator: str) -> None:
    depth = 5
    simulate(
        StreamFIFO(16, depth),
        "signalbox.tb.units.lib.cocotb_fifo",
        simulator=simulator,
        name="lib-fifo",
        env={"DEPTH": str(depth)},
        minimum=4,
    )


ARBITERS = [(1, 0), (5, 0), (64, 0), (5, 2), (8, 1), (13, 3)]


@pytest.mark.parametrize(
    ("count", "first"), tiers(ARBITERS, smoke=[(5, 2)], nightly=[(5, 0), (64, 0), (8, 1)])
)
def test_round_robin(simulator: str, count: int, first: int) -> None:
    simulate(
        RoundRobin(count, first=first),
        "signalbox.tb.units.lib.cocotb_arbiter",
        simulator=simulator,
        name=f"lib-arbiter-{count}-{first}",
        env={"FIRST": str(first)},
    )


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_round_robin_of_nobody() -> None:
    with pytest.raises(ValueError, match="count = 0 is not at least 1"):
        RoundRobin(0)
    with pytest.raises(ValueError, match="first = 9 of count = 64: needs at most 8"):
        RoundRobin(64, first=9)
    gc.collect()  # unused components warn when they are collected
