"""Fixtures for all tests, and the test tiers.

`make test` runs the tests required for every change: on Verilator all but those marked `nightly`,
on Icarus only those marked `smoke`. `make nightly` runs all. A mark applies to a test, or to some
values of a parameter:

    @pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"]))

`smoke` may name cocotb tests, as in `@pytest.mark.smoke("reset", "rate")`: in `make test`, Icarus
then runs only these.

`--seeds N` repeats each simulating test with N consecutive seeds, beginning with `SIGNALBOX_SEED`
or else with a random one.
"""

import os
import shutil

import pytest

from signalbox.tb.simulation import outcomes
from signalbox.tb.simulation.runner import ONLY, SIMULATORS, choose_seed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=0, metavar="N", help="repeat what simulates with N seeds"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Fix the first seed, as all processes of pytest-xdist have to collect the same tests."""
    if config.getoption("--seeds"):
        os.environ.setdefault("SIGNALBOX_SEED", str(choose_seed()))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = metafunc.config.getoption("--seeds")
    if count and "simulator" in metafunc.fixturenames:
        first = choose_seed()
        metafunc.parametrize("chosen_seed", range(first, first + count), indirect=True)


@pytest.fixture(autouse=True)
def chosen_seed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set `SIGNALBOX_SEED` to the seed of this repetition, with `--seeds`."""
    if hasattr(request, "param"):
        monkeypatch.setenv("SIGNALBOX_SEED", str(request.param))


@pytest.fixture(params=SIMULATORS)
def simulator(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each simulator in turn. Without Icarus, its tests are skipped, or fail if
    `SIGNALBOX_REQUIRE_ICARUS=1`."""
    if request.param == "icarus" and (names := _sample(request)):
        monkeypatch.setenv(ONLY, ",".join(names))
    if request.param == "icarus" and shutil.which("iverilog") is None:
        if os.environ.get("SIGNALBOX_REQUIRE_ICARUS") == "1":
            pytest.fail("Icarus Verilog (iverilog) is not installed, and this run requires it")
        pytest.skip("Icarus Verilog (iverilog) is not installed: Verilator alone checks this")
    return request.param


def _sample(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Names of the cocotb tests that Icarus runs in `make test`; empty for all."""
    mark = request.node.get_closest_marker("smoke")
    every_change = "nightly" in request.config.getoption("markexpr")
    return mark.args if mark and every_change else ()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark Icarus tests as nightly unless they are marked `smoke`, which outweighs a `nightly`
    mark."""
    for item in items:
        chosen = item.callspec.params if hasattr(item, "callspec") else {}
        if chosen.get("simulator") == "icarus":
            item.own_markers = [mark for mark in item.own_markers if mark.name != "nightly"]
            if not item.get_closest_marker("smoke"):
                item.add_marker("nightly")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> None:
    """Write the results of cocotb tests to the JUnit file."""
    item.user_properties += [(outcomes.PROPERTY, result) for result in outcomes.take()]
