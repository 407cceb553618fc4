"""The SM logic controller, the order of its blocks, and the gate, alone."""

import pytest

from signalbox.hw.config import CONFIGS
from signalbox.hw.sm.block_order import BlockOrder
from signalbox.hw.sm.controller import SmController
from signalbox.hw.sm.memory_gate import MemoryGate
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.units.sm.controller_testbench import Size, config

SIZES = {
    "default": Size(),
    "tiny": Size(2, 2, 4, 2, 4),
    "one": Size(1, 1, 2, 1, 4),
    "odd": Size(5, 3, 9, 7, 9),
    "many": Size(64, 32, 512, 228, 64),
    "masks": Size(5, 4, 9, 7, 9, masks=1),
}


@pytest.mark.parametrize(
    "name",
    tiers(
        SIZES,
        smoke={"tiny": ["random_fast", "whole_resources"]},
        nightly=["tiny", "odd", "many", "masks"],
    ),
)
def test_controller(simulator: str, name: str) -> None:
    size = SIZES[name]
    simulate(
        SmController(config(size)),
        "signalbox.tb.units.sm.cocotb_controller",
        simulator=simulator,
        name=f"sm-controller-{name}",
        env=size.environment(),
        minimum=7 + size.masks,
    )


@pytest.mark.smoke("most_urgent_first", "chooses_again", "barrier_blocks_in_turns")
def test_rules(simulator: str) -> None:
    size = Size(registers=128)
    simulate(
        SmController(config(size)),
        "signalbox.tb.units.sm.cocotb_rules",
        simulator=simulator,
        name="sm-rules",
        env=size.environment(),
        minimum=17,
    )


@pytest.mark.parametrize("slots", tiers([2, 5, 32], smoke=[5], nightly=[2, 32]))
def test_order(simulator: str, slots: int) -> None:
    simulate(
        BlockOrder(slots, choices=2),
        "signalbox.tb.units.sm.cocotb_order",
        simulator=simulator,
        name=f"sm-order-{slots}",
        env={"SLOTS": str(slots), "CHOICES": "2"},
    )


@pytest.mark.parametrize("name", tiers(["tiny", "default"], smoke=["tiny"], nightly=["tiny"]))
def test_gate(simulator: str, name: str) -> None:
    simulate(
        MemoryGate(CONFIGS[name]),
        "signalbox.tb.units.sm.cocotb_gate",
        simulator=simulator,
        name=f"sm-gate-{name}",
        env={"CONFIG": name},
        minimum=2,
    )
