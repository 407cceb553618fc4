"""The memory model on both simulators; it must reject AXI4 violations."""

from pathlib import Path

import pytest

from signalbox.tb.simulation.backdoor import public
from signalbox.tb.simulation.runner import simulate

MEMORY = Path(__file__).with_name("memory.sv")
PARAMETERS = {"DATA_WIDTH": 128, "BYTES": 1 << 20}


def run(simulator: str, tests: str, **options) -> None:
    simulate(
        None,
        tests,
        simulator=simulator,
        name="memory",
        sources=[MEMORY],
        top="memory",
        parameters=PARAMETERS,
        public=["memory.s_axi_*", "memory.clk", "memory.rst", *public()],
        **options,
    )


@pytest.mark.smoke
def test_memory(simulator: str):
    run(simulator, "signalbox.tb.simulation.cocotb_memory", minimum=7)


@pytest.mark.parametrize("fault", ["crosses_page", "early_last", "wrap", "wide"])
def test_refuses(simulator: str, fault: str):
    with pytest.raises(AssertionError):
        run(simulator, "signalbox.tb.simulation.cocotb_memory_faults", testcase=fault)


def test_accepts_legal(simulator: str):
    run(simulator, "signalbox.tb.simulation.cocotb_memory_faults", testcase="legal")
