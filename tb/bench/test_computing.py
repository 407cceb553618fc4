"""Measures launches, urgent kernels and tasks of many address spaces, on the whole machine with
cores that only take time, and compares with the recorded cycles, as `test_bench` does.

All of `make bench`: its machine takes minutes to build, once.
"""

from types import ModuleType

import pytest

from hw.top import Signalbox
from tb.bench import launches, makespan, spread, urgency
from tb.bench.computing import MACHINE
from tb.bench.recorded import DOCS, compare, document, recording
from tb.bench.scenes import collect
from tb.sim.top import simulate_top


def measure(module: str) -> dict[str, int]:
    """Run a module of measurements on the machine."""
    run = simulate_top(
        Signalbox(MACHINE),
        f"tb.bench.{module}",
        simulator="verilator",
        name="bench-computing",
        seed=0,
        log="bench.log",
    )
    return collect(run)


def drawn(measured: dict[str, int], name: str, title: str, what: ModuleType) -> None:
    """A page with a plot."""
    if recording():
        what.plot(measured, DOCS / f"{name}.png")
    document(name, title, f"![plot]({name}.png)", what.table(measured))


@pytest.mark.bench
def test_launches():
    """From a doorbell to a task's end, on an idle machine."""
    measured = measure("cocotb_launches")
    drawn(measured, "launches", "Launches", launches)
    compare(measured, launches.keys())


@pytest.mark.bench
def test_urgent_kernels():
    """Page 30: an urgent kernel on a full machine, by policy and by how long low warps last."""
    measured = measure("cocotb_urgency")
    drawn(measured, "urgent-kernels", "Urgent kernels", urgency)
    compare(measured, urgency.keys())


@pytest.mark.bench
def test_makespan():
    """Page 20: tasks of many address spaces together, and one context at a time."""
    measured = measure("cocotb_makespan")
    drawn(measured, "small-tasks", "Small tasks of many address spaces", makespan)
    compare(measured, makespan.keys())


@pytest.mark.bench
def test_spread():
    """Page 20: translation and run time by policy of placement."""
    measured = measure("cocotb_spread")
    drawn(measured, "spread", "Placement and translation", spread)
    compare(measured, spread.keys())
