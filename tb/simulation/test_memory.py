"""The memory model on both simulators, and with shared contents; it must reject AXI4 violations."""

from pathlib import Path

import pytest

from signalbox.driver.server.shared_memory import SharedMemory
from signalbox.tb.simulation import backdoor
from signalbox.tb.simulation.backdoor import SharedBackdoor, public
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
def test_shared(simulator: str):
    """The same tests pass, with the same cycles."""
    run(
        simulator,
        "signalbox.tb.simulation.cocotb_memory",
        minimum=10,
        shared_memory=True,
        env={SHARED: str(BYTES)},
    )


@pytest.mark.parametrize("fault", ["crosses_page", "early_last", "wrap", "wide"])
def test_refuses(simulator: str, fault: str):
    with pytest.raises(AssertionError):
        run(simulator, FAULTS, testcase=fault)


def test_accepts_legal(simulator: str):
    run(simulator, FAULTS, testcase="legal")


@ON_VERILATOR
@pytest.mark.parametrize("size", [0, BYTES // 2])
def test_missing_bytes(simulator: str, size: int, capfd: pytest.CaptureFixture[str]):
    """The first access ends the simulation if it was not given all bytes."""
    with pytest.raises(AssertionError):
        run(
            simulator,
            FAULTS,
            testcase="read",
            shared_memory=True,
            env={SHARED: str(size) if size else ""},
        )
    message = f"memory: it needs {BYTES} shared bytes, and was given {size}"
    assert message in capfd.readouterr().out


def test_only_verilator_shares():
    with pytest.raises(RuntimeError, match="only Verilator has a shared memory, icarus has none"):
        run("icarus", FAULTS, testcase="read", shared_memory=True)


def test_not_built_for_it():
    """Neither is this process."""
    with pytest.raises(RuntimeError, match=r"not built with simulate\(shared_memory=True\)"):
        SharedBackdoor(SharedMemory(4096))


@pytest.mark.parametrize(("address", "count"), [(4096, 1), (4000, 97), (-1, 1)])
def test_outside(address: int, count: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(backdoor, "_hand_over", lambda memory: None)
    memory = SharedBackdoor(SharedMemory(4096))
    problem = f"{count} bytes at {address:#x} are not in the 0x1000 bytes of memory"
    with pytest.raises(IndexError, match=problem):
        memory.read(address, count)
    with pytest.raises(IndexError, match=problem):
        memory.write(address, bytes(count))
