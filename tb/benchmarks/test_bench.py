"""Measures cycles and compares them with the recorded ones, which must match exactly.

`make bench` shows them with their budgets, and also measures urgent copies. `SIGNALBOX_RECORD=1
make bench` records the results and rewrites plot and table in `docs/`.
"""

import pytest

from signalbox.hw.top import Signalbox
from signalbox.tb.benchmarks import latency, runlists
from signalbox.tb.benchmarks.recorded import DOCS, compare, differences, document, recording
from signalbox.tb.benchmarks.rows import ROWS, table
from signalbox.tb.benchmarks.scenes import collect
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.top import simulate_top


def measure(module: str) -> dict[str, int]:
    """Run a module of measurements on the default size."""
    run = simulate_top(
        Signalbox(SIZES["default"]),
        f"signalbox.tb.benchmarks.{module}",
        simulator="verilator",
        name="bench",
        seed=0,
        log="bench.log",
    )
    return collect(run)


def test_cycles_are_as_recorded():
    """Cycles are as recorded, so that no change makes a row worse without notice."""
    compare(measure("cocotb_bench"), list(ROWS))


@pytest.mark.bench
def test_cycles():
    """Rows are as recorded; prints them with the budgets of page 70."""
    measured = measure("cocotb_bench")
    print(f"\n{table(ROWS, measured)}\n")
    compare(measured, list(ROWS))


@pytest.mark.bench
def test_urgent_latency():
    """Page 10: latency of an urgent copy behind queued low ones, with and without priorities."""
    measured = measure("cocotb_latency")
    speed = measured.pop("speed")
    print(f"\n{latency.table(measured)}\n\nsimulation: {speed} cycles per second here and now\n")
    compare(measured, latency.keys())
    if recording():
        latency.save(measured, DOCS)


@pytest.mark.bench
def test_runlists():
    """HOST-7: shares by level and slice, changes of turn, urgent groups."""
    measured = measure("cocotb_runlists")
    if recording():
        runlists.plot(measured, DOCS / "runlists.png")
    document("runlists", "Runlists", "![plot](runlists.png)", runlists.table(measured))
    compare(measured, runlists.keys())


def test_differences_are_named():
    measured = {"same": 1, "worse": 5, "new": 2}
    recorded = {"same": 1, "worse": 4, "gone": 3}
    assert differences(measured, recorded) == [
        "gone: recorded 3, measured None",
        "new: recorded None, measured 2",
        "worse: recorded 4, measured 5",
    ]
