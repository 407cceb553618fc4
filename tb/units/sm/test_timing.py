"""The timing core alone."""

import json

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.sm.timing.core import TimingCore
from signalbox.tb.simulation.runner import DESIGN, simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers

SIZES = {
    "six": {"data_width": 128, "sm_warps": 6, "sm_blocks": 3},
    "one": {"data_width": 64, "sm_warps": 1, "sm_blocks": 2},
    "many": {"data_width": 512, "sm_warps": 33, "sm_blocks": 9},
    "wide": {"data_width": 256, "sm_warps": 4, "sm_blocks": 4},
}


def fields(size: str) -> dict[str, int]:
    return {"slots": 4, "sm_registers": 8192, "sm_shared": 4096, **SIZES[size]}


TESTS = pytest.mark.parametrize(
    ("tests", "minimum"),
    tiers(
        [("timing", 5), ("timing_ends", 10)],
        smoke={
            ("timing", 5): ["addresses_and_numbers_of_big_grids"],
            ("timing_ends", 10): ["kill", "accesses_overlap"],
        },
    ),
)


def run(size: str, tests: str, minimum: int, simulator: str) -> None:
    simulate(
        TimingCore(Config(**fields(size))),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-{tests}-{size}",
        env={"CONFIG": json.dumps(fields(size))},
        minimum=minimum,
    )


@TESTS
@pytest.mark.parametrize("size", tiers(["six", "many"], nightly=["many"]))
def test_timing(simulator: str, size: str, tests: str, minimum: int) -> None:
    run(size, tests, minimum, simulator)


@TESTS
@pytest.mark.soak
@pytest.mark.parametrize("size", ["one", "wide"])
@ON_VERILATOR
def test_other_sizes(simulator: str, size: str, tests: str, minimum: int) -> None:
    run(size, tests, minimum, simulator)


@pytest.mark.parametrize("config", ["tiny", "large"])
def test_elaborates(config: str) -> None:
    assert "module dut" in export.verilog(TimingCore(CONFIGS[config]), DESIGN)


STOPS = pytest.mark.parametrize(
    ("tests", "minimum"), [("timing_stops", 11), ("timing_stop_ends", 16), ("timing_stop_time", 1)]
)


def run_stops(size: str, tests: str, minimum: int, simulator: str, *, rounds: int = 3) -> None:
    sizes = {**fields(size), "save_places": 4}
    simulate(
        TimingCore(Config(**sizes)),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-{tests}-{size}",
        env={"CONFIG": json.dumps(sizes), "ROUNDS": str(rounds)},
        minimum=minimum,
    )


@STOPS
@ON_VERILATOR
def test_stops(simulator: str, tests: str, minimum: int) -> None:
    run_stops("six", tests, minimum, simulator)
