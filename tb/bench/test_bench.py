"""Measures cycles and compares them with the recorded ones, which must be met exactly.

`make bench` shows them beside their budgets, and measures urgent copies too;
`SIGNALBOX_RECORD=1 make bench` records what it measures, and writes plot and table in `docs/` anew.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from hw.top import Signalbox
from tb.bench import latency
from tb.bench.rows import ROWS
from tb.bench.scenes import collect
from tb.runner import ROOT
from tb.sim.sizes import SIZES
from tb.sim.top import simulate_top

RECORDED = Path(__file__).with_name("recorded.json")
DOCS = ROOT / "docs"


def measure(module: str) -> dict[str, int]:
    """Run a module of measurements on the default size."""
    run = simulate_top(
        Signalbox(SIZES["default"]),
        f"tb.bench.{module}",
        simulator="verilator",
        name="bench",
        seed=0,
        log="bench.log",
    )
    return collect(run)


def differences(measured: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """One sentence for each row that is not as recorded."""
    return [
        f"{name}: recorded {recorded.get(name)}, measured {measured.get(name)}"
        for name in sorted(measured.keys() | recorded.keys())
        if measured.get(name) != recorded.get(name)
    ]


def compare(measured: Mapping[str, int], names: list[str]) -> None:
    """Compare the rows `names` with the recorded ones, or record them if asked to."""
    assert set(names) == set(measured), "not every row was measured, or more than these"
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if os.environ.get("SIGNALBOX_RECORD") == "1":
        recorded |= measured
        known = [*ROWS, *latency.keys()]
        kept = {name: recorded[name] for name in known if name in recorded}
        RECORDED.write_text(json.dumps(kept, indent=2) + "\n")
    else:
        wrong = differences(measured, {name: recorded.get(name) for name in names})
        assert not wrong, "cycles differ (SIGNALBOX_RECORD=1 records them): " + "; ".join(wrong)


def table(measured: Mapping[str, int]) -> str:
    """Measured rows with their budgets, in Markdown."""
    lines = ["| what | cycles | budget | |", "|---|--:|--:|---|"]
    for name, row in ROWS.items():
        budget = "" if row.budget is None else f"≤ {row.budget}"
        missed = row.budget is not None and measured[name] > row.budget
        lines.append(f"| {row.what} | {measured[name]} | {budget} | {'MISSED' if missed else ''} |")
    return "\n".join(lines)


def test_cycles_are_as_recorded():
    """No change worsens a row unnoticed."""
    compare(measure("cocotb_bench"), list(ROWS))


@pytest.mark.bench
def test_cycles():
    """The rows beside the budgets of page 70."""
    measured = measure("cocotb_bench")
    print(f"\n{table(measured)}\n")
    compare(measured, list(ROWS))


@pytest.mark.bench
def test_urgent_latency():
    """Page 10: an urgent copy behind queued low ones, with priorities and without."""
    measured = measure("cocotb_latency")
    speed = measured.pop("speed")
    print(f"\n{latency.table(measured)}\n\nsimulation: {speed} cycles per second here and now\n")
    compare(measured, latency.keys())
    if os.environ.get("SIGNALBOX_RECORD") == "1":
        latency.save(measured, DOCS)


def test_differences_are_named():
    measured = {"same": 1, "worse": 5, "new": 2}
    recorded = {"same": 1, "worse": 4, "gone": 3}
    assert differences(measured, recorded) == [
        "gone: recorded 3, measured None",
        "new: recorded None, measured 2",
        "worse: recorded 4, measured 5",
    ]
