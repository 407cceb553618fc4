"""The supplied core alone."""

import json

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.sm.core.core import Core
from signalbox.tb.simulation.runner import DESIGN, simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers

SIZES = {
    "four": {"lanes": 4, "data_width": 128, "sm_warps": 6, "sm_blocks": 3, "sm_registers": 3072},
    "one": {"lanes": 1, "data_width": 64, "sm_warps": 3, "sm_blocks": 2, "sm_registers": 3072},
    "all": {"lanes": 32, "data_width": 512, "sm_warps": 5, "sm_blocks": 2, "sm_registers": 3072},
}


def fields(size: str) -> dict[str, int]:
    return {"slots": 4, "sm_shared": 4096, **SIZES[size]}


def run(size: str, tests: str, minimum: int, simulator: str) -> None:
    simulate(
        Core(Config(**fields(size))),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-{tests}-{size}",
        env={
            "CONFIG": json.dumps(fields(size)),
            # Icarus is some hundred times slower.
            "ROUNDS": "1" if simulator == "icarus" else "3",
        },
        minimum=minimum,
    )


TESTS = pytest.mark.parametrize(
    ("tests", "minimum"),
    tiers(
        [("core", 11), ("clean", 5), ("control", 12)],
        smoke={
            ("core", 11): ["every_operation", "constant_buffers"],
            ("control", 12): ["kill", "barriers_hold_all"],
        },
    ),
)


@TESTS
def test_core(simulator: str, tests: str, minimum: int) -> None:
    run("four", tests, minimum, simulator)


@pytest.mark.nightly
@TESTS
@ON_VERILATOR
def test_one_lane(simulator: str, tests: str, minimum: int) -> None:
    run("one", tests, minimum, simulator)


@pytest.mark.soak
@TESTS
@ON_VERILATOR
def test_all_lanes(simulator: str, tests: str, minimum: int) -> None:
    """Cores with 32 lanes; the build takes minutes."""
    run("all", tests, minimum, simulator)


@pytest.mark.parametrize("config", ["tiny", pytest.param("large", marks=pytest.mark.soak)])
def test_elaborates(config: str) -> None:
    assert "module dut" in export.verilog(Core(CONFIGS[config]), DESIGN)
