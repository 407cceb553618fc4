"""The host on the whole machine: directed tests of its requirements."""

from collections.abc import Sequence

import pytest

from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.tiers import ON_ICARUS, ON_VERILATOR, tiers
from signalbox.tb.simulation.top import simulate_top

SINGLE = {
    "cocotb_rings": 18,
    "cocotb_headers": 9,
    "cocotb_invalidations": 6,
    "cocotb_semaphores": 8,
    "cocotb_acquires": 15,
    "cocotb_errors": 18,
    "cocotb_copies": 15,
}
"""Modules with tests that use single channels, and the number of tests."""

TOGETHER = {
    "cocotb_methods": 18,
    "cocotb_order": 23,
    "cocotb_priorities": 16,
    "cocotb_counters": 6,
    "cocotb_translation": 12,
}
"""Modules with tests that need several channels."""


ENGINES = {
    "two-engines": [
        "every_level_overtakes",
        "engines_overlap",
        "reservation_is_kept",
        "reservation_ends_when_a_higher_copy_is_counted",
        "high_copy_overtakes_many",
    ],
    "narrow": [
        "two_priorities",
        "three_priorities",
        "engines_overlap",
        "reservation_is_kept",
        "high_copy_overtakes_many",
    ],
}
"""Tests of `cocotb_priorities` in which several engines change more than the speed; for the machine
with three channels, only tests that need no more channels."""

SLOW = {
    "default": [*TOGETHER],
    "narrow": [*SINGLE],
    "tiny": ["cocotb_rings", "cocotb_headers", "cocotb_errors"],
}
"""On Icarus each module runs on the smallest sufficient machine; on Verilator on more machines."""


def run(simulator: str, size: str, module: str, tests: Sequence[str] = ()) -> None:
    """Run a module of cocotb tests, or only `tests` of it."""
    simulate_top(
        Signalbox(SIZES[size]),
        f"signalbox.tb.machine.{module}",
        simulator=simulator,
        name=f"host-{size}",
        testcase=",".join(tests) or None,
        minimum=len(tests) or (SINGLE | TOGETHER)[module],
    )


@ON_VERILATOR
@pytest.mark.parametrize("module", [*SINGLE, *TOGETHER])
def test_default(simulator: str, module: str):
    """The module's tests pass with one engine, eight channels and a 128-bit bus."""
    run(simulator, "default", module)


@ON_ICARUS
@pytest.mark.parametrize(
    ("size", "module"),
    [(size, m) for size in SLOW for m in SLOW[size]],
)
def test_smallest(simulator: str, size: str, module: str):
    """The module's tests pass on the smallest sufficient machine."""
    run(simulator, size, module)


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["cocotb_priorities", "cocotb_copies", "cocotb_counters"])
def test_two_engines(simulator: str, module: str):
    """The module's tests pass with two engines."""
    few = simulator == "icarus" and module == "cocotb_priorities"
    run(simulator, "two-engines", module, ENGINES["two-engines"] if few else ())


@ON_VERILATOR
@pytest.mark.parametrize("module", ["cocotb_rings", "cocotb_headers", "cocotb_errors"])
@pytest.mark.parametrize("size", tiers(["tiny", "narrow"], nightly=["narrow"]))
def test_small(simulator: str, size: str, module: str):
    """The module's tests pass with one channel and with three, a 64-bit bus and the smallest
    prefetch buffer."""
    run(simulator, size, module)


@pytest.mark.nightly
@ON_VERILATOR
def test_engines(simulator: str):
    """Priorities hold with two engines."""
    run(simulator, "narrow", "cocotb_priorities", ENGINES["narrow"])
