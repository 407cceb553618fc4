"""Runs the tests of this folder on the RTL: `python -m pytest examples/adders`."""

from pathlib import Path

from adder_core import AdderCore

from signalbox.driver.workload.reader import load
from signalbox.hw import export
from signalbox.hw.sm.sm import Sm
from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import COMPUTE
from signalbox.tb.simulation.top import simulate_top
from signalbox.tb.simulation.workload import machine, simulate_workload

WORKLOAD = Path(__file__).with_name("adders.toml")


def test_export():
    """The core fits into an SM, and becomes Verilog."""
    sm = Sm(machine(load(WORKLOAD)), AdderCore)
    assert "module adder_sm(" in export.verilog(sm, "adder_sm")


def test_own_core():
    """The tests run on the machine of the workload, so one build serves both."""
    simulate_top(
        Signalbox(machine(load(WORKLOAD)), AdderCore),
        "cocotb_adders",
        simulator="verilator",
        name="example-core",
    )


def test_own_workload():
    """Each sum equals numpy's, else the run would fail; the urgent kernel overtakes the others."""
    result = simulate_workload(WORKLOAD, "priority", core=AdderCore).result
    ends = {(one.name, one.index): one.completed for one in result.kernels}
    assert ends["short sum", 0] < ends["long sum", 3]


def test_own_kernel():
    simulate_top(Signalbox(COMPUTE), "cocotb_kernel", simulator="verilator", name="example-kernel")
