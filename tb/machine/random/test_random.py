"""Constrained-random and malformed programs; `make soak` runs many more."""

import pytest

from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.sizes import SIZES
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers
from signalbox.tb.simulation.top import simulate_top


def _run(tests: str, simulator: str, size: str, rounds: int, commands: int) -> None:
    simulate_top(
        Signalbox(SIZES[size]),
        f"signalbox.tb.machine.random.{tests}",
        simulator=simulator,
        name=f"random-{size}",
        env={
            "SIGNALBOX_SIZE": size,
            "SIGNALBOX_ROUNDS": str(rounds),
            "SIGNALBOX_COMMANDS": str(commands),
        },
    )


@pytest.mark.parametrize("size", tiers(SIZES, nightly=["two-engines", "narrow"]))
def test_random_programs(simulator: str, size: str):
    """About 5,000 commands per size are correct on Verilator; Icarus, far slower, runs a sample."""
    rounds, commands = (6, 900) if simulator == "verilator" else (1, 150)
    _run("cocotb_random", simulator, size, rounds, commands)


def test_random_lists(simulator: str):
    """Random programs are correct while the runlist changes."""
    rounds, commands = (3, 600) if simulator == "verilator" else (1, 60)
    _run("cocotb_lists", simulator, "default", rounds, commands)


def test_malformed_programs(simulator: str):
    """Random, truncated and mutated pushbuffers and rings never hang the machine."""
    rounds, commands = (6, 120) if simulator == "verilator" else (1, 60)
    _run("cocotb_fuzz", simulator, "default", rounds, commands)


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
@ON_VERILATOR
def test_soak(simulator: str, size: str):
    """A hundred rounds of programs."""
    _run("cocotb_random", simulator, size, 100, 900)


@pytest.mark.soak
@ON_VERILATOR
def test_lists_soak(simulator: str):
    """Sixty rounds of programs while the runlist changes."""
    _run("cocotb_lists", simulator, "default", 60, 900)


@pytest.mark.soak
@ON_VERILATOR
def test_malformed_soak(simulator: str):
    """Two hundred rounds of malformed programs."""
    _run("cocotb_fuzz", simulator, "default", 200, 200)
