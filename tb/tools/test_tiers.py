"""Tiers: which tests `make test` runs, and which are left to `make nightly`."""

import pytest

from signalbox.tb.simulation.tiers import tiers

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from signalbox.tb.simulation.tiers import tiers

SIZES = ["small", "odd", "large"]

@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
@pytest.mark.parametrize("size", tiers(SIZES, smoke=["small"], nightly=["large"]))
def test_unit(simulator, size): ...
"""


def test_every_change(pytester: pytest.Pytester):
    """`make test` runs all but the nightly values on Verilator, and only the smoke test on
    Icarus."""
    pytester.makeconftest("from signalbox.tb.conftest import *")
    pytester.makepyfile(TESTS)
    found = pytester.runpytest("--collect-only", "-q", "-m", "not nightly", "-p", "no:randomly")
    names = {line.partition("[")[2] for line in found.outlines if "::" in line}
    assert names == {"small-verilator]", "odd-verilator]", "small-icarus]"}


def test_smoke_of_some(pytester: pytest.Pytester):
    """In `make test`, Icarus runs the cocotb tests named by the mark, and Verilator runs all."""
    pytester.makeconftest("from signalbox.tb.conftest import *")
    pytester.makepyfile("""
        import os
        import pytest
        from signalbox.tb.simulation.tiers import tiers

        @pytest.mark.parametrize("size", tiers(["small", "odd"], smoke={"small": ["a", "b"]}))
        def test_unit(simulator, size):
            open(f"{size}-{simulator}-{os.environ.get('SIGNALBOX_ONLY')}", "x")
    """)
    pytester.runpytest("-m", "not nightly").assert_outcomes(passed=3)
    assert {file.name for file in pytester.path.glob("*-*-*")} == {
        *("small-verilator-None", "odd-verilator-None", "small-icarus-a,b"),
    }
    pytester.runpytest("-m", "not soak", "-k", "small and icarus").assert_outcomes(passed=1)
    assert (pytester.path / "small-icarus-None").exists()


def test_seeds(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Each simulating test is repeated with different seeds in the environment."""
    monkeypatch.setenv("SIGNALBOX_SEED", "7")
    pytester.makeconftest("from signalbox.tb.conftest import *")
    pytester.makepyfile("""
        import os

        def test_simulated(simulator):
            with open(f"{simulator}-{os.environ['SIGNALBOX_SEED']}", "x"): ...

        def test_other(): ...
    """)
    pytester.runpytest("--seeds", "3", "-k", "verilator or other").assert_outcomes(passed=4)
    assert {file.name for file in pytester.path.glob("verilator-*")} == {
        *("verilator-7", "verilator-8", "verilator-9"),
    }


def test_several_parameters():
    assert [entry.values for entry in tiers([(1, 2), (3, 4)], smoke=[(3, 4)])] == [(1, 2), (3, 4)]


def test_unknown_value():
    with pytest.raises(ValueError, match=r"\['huge'\] are none of \['small'\]"):
        tiers(["small"], nightly=["huge"])
