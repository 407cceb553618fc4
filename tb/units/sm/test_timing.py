"""The timing core alone."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from amaranth.lib import wiring

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.sm.sm import Sm
from signalbox.hw.sm.timing.core import TimingCore
from signalbox.tb.simulation.runner import DESIGN, simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers

SIZES = {
    "six": {"data_width": 128, "sm_warps": 6, "sm_blocks": 3},
    "one": {"data_width": 64, "sm_warps": 1, "sm_blocks": 2},
    "two": {"data_width": 128, "sm_warps": 2, "sm_blocks": 2},
    "many": {"data_width": 512, "sm_warps": 33, "sm_blocks": 9},
    "wide": {"data_width": 256, "sm_warps": 4, "sm_blocks": 4},
    "narrow": {"data_width": 64, "sm_warps": 3, "sm_blocks": 2},
}


def fields(size: str) -> dict[str, Any]:
    return {"slots": 4, "sm_registers": 8192, "sm_shared": 4096, **SIZES[size]}


TESTS = [("timing", 5), ("timing_ends", 11)]
"""Cocotb modules, each with the number of its tests."""


def run(size: str, tests: str, minimum: int, simulator: str) -> None:
    simulate(
        TimingCore(Config(**fields(size))),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-{tests}-{size}",
        env={"CONFIG": json.dumps(fields(size))},
        minimum=minimum,
    )


@pytest.mark.parametrize(
    ("size", "tests", "minimum"),
    tiers(
        [(size, *one) for size in ("six", "many") for one in TESTS],
        smoke={
            ("six", "timing", 5): ["addresses_and_numbers_of_big_grids"],
            ("six", "timing_ends", 11): ["kill", "accesses_overlap"],
        },
        nightly=[("many", *one) for one in TESTS],
    ),
)
def test_timing(simulator: str, size: str, tests: str, minimum: int) -> None:
    run(size, tests, minimum, simulator)


@pytest.mark.parametrize(("tests", "minimum"), TESTS)
@pytest.mark.soak
@pytest.mark.parametrize("size", ["one", "wide"])
@ON_VERILATOR
def test_other_sizes(simulator: str, size: str, tests: str, minimum: int) -> None:
    run(size, tests, minimum, simulator)


@pytest.mark.parametrize("places", [0, 8])
@pytest.mark.parametrize("config", ["tiny", "large"])
def test_elaborates(config: str, places: int) -> None:
    sizes = replace(CONFIGS[config], save_places=places)
    text = export.verilog(TimingCore(sizes), DESIGN)
    assert "module dut" in text
    assert not re.search(r"\\\$(signal|like)", text), "a signal has no name"


STOPS = pytest.mark.parametrize(
    ("design", "tests", "minimum"),
    tiers(
        [
            (TimingCore, "timing_stops", 12),
            (TimingCore, "timing_stop_ends", 19),
            (TimingCore, "timing_stop_time", 1),
            (Sm, "stops", 8),
        ],
        smoke={(TimingCore, "timing_stop_ends", 19): ["stop_of_a_killed_row"]},
        nightly=[(TimingCore, "timing_stops", 12), (TimingCore, "timing_stop_time", 1)],
    ),
)


def run_stops(
    size: str,
    design: type[wiring.Component],
    tests: str,
    minimum: int,
    simulator: str,
    *,
    rounds: int = 3,
) -> None:
    sizes = {**fields(size), "save_places": 4, "timing_core": True}
    simulate(
        design(Config(**sizes)),
        f"signalbox.tb.units.sm.cocotb_{tests}",
        simulator=simulator,
        name=f"sm-timing-{tests}-{size}",
        env={
            "CONFIG": json.dumps(sizes),
            "ROUNDS": "1" if simulator == "icarus" else str(rounds),
        },
        minimum=minimum,
    )


@STOPS
def test_stops(simulator: str, design: type[wiring.Component], tests: str, minimum: int) -> None:
    """Stops of blocks, one round with every change."""
    run_stops("six", design, tests, minimum, simulator, rounds=1)


@pytest.mark.nightly
@pytest.mark.parametrize("size", ["six", "many"])
@STOPS
@ON_VERILATOR
def test_more_stops(
    simulator: str, size: str, design: type[wiring.Component], tests: str, minimum: int
) -> None:
    run_stops(size, design, tests, minimum, simulator)


@pytest.mark.soak
@pytest.mark.parametrize("size", ["two", "wide", "narrow"])
@STOPS
@ON_VERILATOR
def test_stops_in_other_sizes(
    simulator: str, size: str, design: type[wiring.Component], tests: str, minimum: int
) -> None:
    run_stops(size, design, tests, minimum, simulator)


@pytest.mark.parametrize(
    "size",
    tiers(["six", "one", "many"], smoke={"six": ["wrong_records"]}, nightly=["one", "many"]),
)
def test_launches(simulator: str, size: str) -> None:
    """Kernels that launch kernels."""
    sizes = {**fields(size), "save_places": 4, "nested_kernels": 8, "timing_core": True}
    simulate(
        TimingCore(Config(**sizes)),
        "signalbox.tb.units.sm.cocotb_timing_launches",
        simulator=simulator,
        name=f"sm-timing_launches-{size}",
        env={"CONFIG": json.dumps(sizes), "ROUNDS": "1" if simulator == "icarus" else "3"},
        minimum=9,
    )
