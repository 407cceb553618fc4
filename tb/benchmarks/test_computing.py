"""Measures launches, urgent kernels, tasks of many address spaces and preemption on the whole
machine with timing cores, and compares the cycles with the recorded ones, as `test_bench` does.

All tests belong to `make bench`, as building the machine takes minutes the first time.
"""

import json
from types import ModuleType

import pytest

from signalbox.hw.compute.engine import ComputeEngine
from signalbox.hw.config import Config
from signalbox.hw.sm.core.core import Core
from signalbox.hw.top import Signalbox
from signalbox.tb.benchmarks import (
    clean,
    crowd,
    flat,
    launches,
    makespan,
    nested,
    parents,
    preemption,
    recall,
    sharing,
    spread,
    stops,
    urgency,
)
from signalbox.tb.benchmarks.compute_machine import MACHINE, PAIR, SAVING
from signalbox.tb.benchmarks.recorded import DOCS, compare, document, recording
from signalbox.tb.benchmarks.scenes import collect
from signalbox.tb.simulation import sizes
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.top import simulate_top
from signalbox.tb.testbench.configs import CROWDS, ENGINES


def measure(module: str, machine: Config = MACHINE) -> dict[str, int]:
    """Run a module of measurements on a machine."""
    run = simulate_top(
        Signalbox(machine),
        f"signalbox.tb.benchmarks.{module}",
        simulator="verilator",
        name="bench-computing",
        seed=0,
        log="bench.log",
    )
    return collect(run)


@pytest.mark.bench
@pytest.mark.parametrize(
    ("what", "page", "title"),
    [
        (launches, "launches", "Launches"),
        (makespan, "small-tasks", "Small tasks of many address spaces"),
        (spread, "spread", "Placement and translation"),
    ],
    ids=["launches", "makespan", "spread"],
)
def test_computing(what: ModuleType, page: str, title: str) -> None:
    """Cycles are as recorded."""
    measured = measure(f"cocotb_{what.__name__.rpartition('.')[2]}")
    if recording():
        what.plot(measured, DOCS / f"{page}.png")
    document(page, title, f"![plot]({page}.png)", what.table(measured))
    compare(measured, what.keys())


@pytest.mark.bench
def test_urgency() -> None:
    """Urgent kernels begin after as many cycles as recorded."""
    measured = measure("cocotb_urgency") | measure("cocotb_recall", PAIR)
    if recording():
        urgency.plot(measured, DOCS / "urgent-kernels.png")
    tables = (urgency.table(measured), recall.table(measured))
    document("urgent-kernels", "Urgent kernels", "![plot](urgent-kernels.png)", *tables)
    compare(measured, [*urgency.keys(), *recall.keys()])


@pytest.mark.bench
def test_preemption() -> None:
    """Cycles of stops, and their gain and cost, are as recorded."""
    measured = measure("cocotb_stops", SAVING) | measure("cocotb_preemption", SAVING)
    if recording():
        preemption.plot(measured, DOCS / "preemption.png")
    tables = (stops.table(measured), preemption.table(measured))
    document("preemption", "Preemption", "![plot](preemption.png)", *tables)
    compare(measured, [*stops.keys(), *preemption.keys()])


@pytest.mark.bench
def test_clean() -> None:
    """Clean registers and shared memory cost as many cycles as recorded."""
    run = simulate(
        Core(Config(**clean.CORE)),
        "signalbox.tb.benchmarks.cocotb_clean",
        simulator="verilator",
        name="bench-clean",
        env={"CONFIG": json.dumps(clean.CORE)},
        seed=0,
        log="bench.log",
    )
    measured = collect(run)
    document("clean-storage", "Clean registers and shared memory", clean.table(measured))
    compare(measured, clean.keys())


def measure_engine(module: str, name: str) -> dict[str, int]:
    """Run a module of measurements on the compute engine `name` of `tb.testbench.configs`."""
    run = simulate(
        ComputeEngine(ENGINES[name]),
        f"signalbox.tb.benchmarks.{module}",
        simulator="verilator",
        name=f"bench-{name.lower()}",
        apart=True,
        env={"WORK_CONFIG": name},
        seed=0,
        log="bench.log",
    )
    return collect(run)


@pytest.mark.bench
def test_nested() -> None:
    """Launches of kernels by kernels take as many cycles as recorded."""
    measured = measure_engine("cocotb_nested", "NESTED")
    for sms in CROWDS:
        measured |= measure_engine("cocotb_crowd", f"CROWD_{sms}")
    if recording():
        nested.plot(measured, DOCS / "nested.png")
        crowd.plot(measured, DOCS / "nested-crowd.png")
    single = "![plot](nested.png)", nested.table(measured)
    document(
        "nested", "Nested launches", *single, "![plot](nested-crowd.png)", crowd.table(measured)
    )
    compare(measured, [*nested.keys(), *crowd.keys()])


@pytest.mark.bench
@pytest.mark.parametrize(
    ("what", "page", "title"),
    [
        (flat, "nested-flat", "Nested and flat"),
        (parents, "nested-priorities", "Priorities of kernels with children"),
    ],
    ids=["flat", "parents"],
)
def test_nested_kernels(what: ModuleType, page: str, title: str) -> None:
    """Algorithms with nested launches take as many cycles as recorded, and so do their flat
    versions."""
    measured = measure(f"cocotb_{what.__name__.rpartition('.')[2]}", sizes.NESTED)
    if recording():
        what.plot(measured, DOCS / f"{page}.png")
    document(page, title, f"![plot]({page}.png)", what.table(measured))
    compare(measured, what.keys())


@pytest.mark.bench
def test_sharing() -> None:
    """Many applications at once and in turn take as many cycles as recorded."""
    run = simulate_top(
        Signalbox(sharing.MACHINE_SHARED),
        "signalbox.tb.benchmarks.cocotb_sharing",
        simulator="verilator",
        name="bench-sharing",
        seed=0,
        log="bench.log",
    )
    measured = collect(run)
    timelines = json.loads((run / sharing.TIMELINE).read_text())
    if recording():
        sharing.plot(measured, DOCS / "sharing-measured.png")
    plots, tables = "![plot](sharing-measured.png)", sharing.table(measured, timelines)
    document("sharing-measured", "Many applications, at once and in turn", plots, tables)
    compare(measured, sharing.keys())
