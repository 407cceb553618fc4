"""Blocks that stop and continue: in the supplied core alone, and in a whole SM (PREEMPT-2, 3, 5 to
7)."""

import json

import pytest
from amaranth.lib import wiring

from signalbox.hw.config import Config
from signalbox.hw.sm.block_stop import BlockStop
from signalbox.hw.sm.core.core import Core
from signalbox.hw.sm.sm import Sm
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers
from signalbox.tb.units.sm.test_core import fields


def run(
    size: str,
    design: type[wiring.Component],
    tests: str,
    minimum: int,
    simulator: str,
    *,
    rounds: int = 3,
    **further: int,
) -> None:
    """`further` : fields of the configuration."""
    sizes = {**fields(size), "save_places": 4, **further}
    simulate(
        design(Config(**sizes)),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-{tests}-{size}",
        # Icarus is some hundred times slower.
        env={
            "CONFIG": json.dumps(sizes),
            "ROUNDS": "1" if simulator == "icarus" else str(rounds),
        },
        minimum=minimum,
    )


CORE = [("preempt", 2), ("preempt_ways", 10), ("preempt_ends", 20), ("preempt_time", 1)]
NESTED = {"nested_kernels": 8, "sm_registers": 8192}
"""A core that stops blocks and launches kernels, with room for all warps."""

EVERY = [*((Core, *one) for one in CORE), (Sm, "stops", 8)]
TESTS = pytest.mark.parametrize(("design", "tests", "minimum"), EVERY)


@pytest.mark.nightly
@TESTS
def test_preempt(simulator: str, design: type[wiring.Component], tests: str, minimum: int) -> None:
    run("four", design, tests, minimum, simulator)


@pytest.mark.parametrize("slots", tiers([4, 8], nightly=[4]))
def test_victims(simulator: str, slots: int) -> None:
    sizes = {"sm_blocks": slots, "save_places": 8}
    simulate(
        BlockStop(Config(**sizes)),
        "signalbox.tb.units.sm.cocotb_victims",
        simulator=simulator,
        name=f"sm-victims-{slots}",
        env={"CONFIG": json.dumps(sizes)},
        minimum=2,
    )


@ON_VERILATOR
def test_stops(simulator: str) -> None:
    """One round in a whole SM, with every change."""
    run("four", Sm, "stops", 8, simulator, rounds=1)


@pytest.mark.nightly
@TESTS
@ON_VERILATOR
def test_one_lane(simulator: str, design: type[wiring.Component], tests: str, minimum: int) -> None:
    run("one", design, tests, minimum, simulator)


@pytest.mark.soak
@TESTS
@ON_VERILATOR
def test_all_lanes(
    simulator: str, design: type[wiring.Component], tests: str, minimum: int
) -> None:
    """Cores with 32 lanes; the build takes minutes."""
    run("all", design, tests, minimum, simulator)


@pytest.mark.nightly
@ON_VERILATOR
def test_many_warps(simulator: str) -> None:
    sizes = {**fields("four"), "save_places": 4, "sm_warps": 24, "sm_registers": 6144}
    simulate(
        Core(Config(**sizes)),
        "signalbox.tb.units.sm.cocotb_preempt_busy",
        simulator=simulator,
        name="sm-preempt_busy",
        env={"CONFIG": json.dumps(sizes)},
        minimum=4,
    )


@ON_VERILATOR
def test_late_faults(simulator: str) -> None:
    """After a failed access, more accesses follow than half of the range of their count, or further
    ones fail while it waits."""
    sizes = {**fields("four"), "save_places": 4, **NESTED}
    simulate(
        Core(Config(**sizes)),
        "signalbox.tb.units.sm.cocotb_preempt_ends",
        simulator=simulator,
        name="sm-preempt_fault",
        env={"CONFIG": json.dumps(sizes), "ROUNDS": "3"},
        testcase="fault_waits,each_failing_save,undefined_wait",
    )


@pytest.mark.nightly
@pytest.mark.parametrize("offset", range(8))
@ON_VERILATOR
def test_every_cycle(simulator: str, offset: int) -> None:
    """Every cycle of a kernel, one in eight in each run."""
    sizes = {**fields("four"), "save_places": 4}
    simulate(
        Core(Config(**sizes)),
        "signalbox.tb.units.sm.cocotb_preempt_ways",
        simulator=simulator,
        name="sm-preempt_every_cycle",
        env={"CONFIG": json.dumps(sizes), "SHARE": "8", "OFFSET": str(offset)},
        testcase="every_cycle",
    )


def test_launches(simulator: str) -> None:
    """Kernels that launch others, one round with every change."""
    run("four", Core, "launches", 8, simulator, rounds=1, **NESTED)


@pytest.mark.nightly
@ON_VERILATOR
@pytest.mark.parametrize("size", ["four", "one", "all"])
def test_many_launches(simulator: str, size: str) -> None:
    run(size, Core, "launches", 8, simulator, **NESTED)
