"""The memory model on both simulators, as an array and as bytes of the process; it must reject AXI4
violations."""

import gc
import weakref
from pathlib import Path
from unittest.mock import Mock

import pytest

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.simulation.backdoor import ProcessBackdoor, open_backdoor, public
from signalbox.tb.simulation.cocotb_memory import SHARED
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR

MEMORY = Path(__file__).with_name("memory.sv")
BYTES = 1 << 20
FAULTS = "signalbox.tb.simulation.cocotb_memory_faults"


def run(simulator: str, tests: str, **options) -> None:
    simulate(
        None,
        tests,
        simulator=simulator,
        name="memory",
        sources=[MEMORY],
        top="memory",
        parameters={"DATA_WIDTH": 128, "BYTES": BYTES},
        public=["memory.s_axi_*", "memory.clk", "memory.rst", *public()],
        **options,
    )


@pytest.mark.smoke
def test_memory(simulator: str):
    run(simulator, "signalbox.tb.simulation.cocotb_memory", minimum=10)


@ON_VERILATOR
@pytest.mark.parametrize("shared", [False, True])
def test_process_memory(simulator: str, shared: bool):
    """The same tests pass, with the same cycles."""
    run(
        simulator,
        "signalbox.tb.simulation.cocotb_memory",
        minimum=10,
        process_memory=True,
        env={SHARED: str(BYTES) if shared else ""},
    )


@pytest.mark.parametrize("fault", ["crosses_page", "early_last", "wrap", "wide"])
def test_refuses(simulator: str, fault: str):
    with pytest.raises(AssertionError):
        run(simulator, FAULTS, testcase=fault)


def test_accepts_legal(simulator: str):
    run(simulator, FAULTS, testcase="legal")


@ON_VERILATOR
def test_read_before_backdoor(simulator: str):
    """Without any backdoor, the contents are zero."""
    run(simulator, FAULTS, testcase="read", process_memory=True)


@ON_VERILATOR
def test_missing_bytes(simulator: str, capfd: pytest.CaptureFixture[str]):
    """The first access ends the simulation if its memory has too few bytes."""
    env = {SHARED: str(BYTES // 2)}
    with pytest.raises(AssertionError):
        run(simulator, FAULTS, testcase="read", process_memory=True, env=env)
    message = f"memory: it needs {BYTES} bytes, and was given {BYTES // 2}"
    assert message in capfd.readouterr().out


def test_only_verilator_has_it():
    with pytest.raises(RuntimeError, match="icarus has no process_memory, only Verilator has"):
        run("icarus", FAULTS, testcase="read", process_memory=True)


def test_not_built_for_it():
    """A process without such a memory is refused; this one has none."""
    with pytest.raises(RuntimeError, match=r"not built with simulate\(process_memory=True\)"):
        open_backdoor(None, SharedMemory(4096))


@pytest.mark.parametrize(("address", "count"), [(4096, 1), (4000, 97), (-1, 1)])
def test_outside(address: int, count: int):
    memory = ProcessBackdoor(Mock(), 4096, SharedMemory(4096))
    problem = f"{count} bytes at {address:#x} are not in the 0x1000 bytes of memory"
    with pytest.raises(IndexError, match=problem):
        memory.read(address, count)
    with pytest.raises(IndexError, match=problem):
        memory.write(address, bytes(count))


def test_earlier_memory_is_kept():
    """A memory is kept after the next one replaces it, as earlier backdoors still point into it."""
    shared = SharedMemory(4096)
    kept = weakref.ref(shared._memory)
    ProcessBackdoor(Mock(), 4096, shared)
    shared.close()
    ProcessBackdoor(Mock(), 4096, SharedMemory(4096))
    gc.collect()
    assert kept() is not None
