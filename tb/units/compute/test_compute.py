"""The compute engine on both simulators; with every change, Icarus runs it in the machine only."""

from dataclasses import replace

import pytest

from signalbox.hw.compute.engine import ComputeEngine
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers
from signalbox.tb.testbench.configs import ENGINES, MASKS, NESTED, SAVING, TIMING, TREES


@pytest.mark.parametrize("name", tiers(["COMPUTE", "NESTED"], nightly=["COMPUTE"]))
def test_compute(simulator: str, name: str) -> None:
    """Kernels that launch none, with and without the hardware for nested launches."""
    simulate(
        ComputeEngine(ENGINES[name]),
        "signalbox.tb.units.compute.cocotb_compute",
        simulator=simulator,
        name=f"work-compute-{name}",
        apart=True,
        env={"WORK_CONFIG": name},
        minimum=14,
    )


@pytest.mark.nightly
def test_saving(simulator: str) -> None:
    """Tasks that have blocks of others stopped."""
    simulate(
        ComputeEngine(SAVING),
        "signalbox.tb.units.compute.cocotb_saving",
        simulator=simulator,
        name="work-saving",
        apart=True,
        env={"WORK_CONFIG": "SAVING"},
        minimum=7,
    )


@pytest.mark.nightly
def test_masks(simulator: str) -> None:
    """Tasks that disable SMs, and have blocks of others stopped."""
    simulate(
        ComputeEngine(MASKS),
        "signalbox.tb.units.compute.cocotb_masks",
        simulator=simulator,
        name="work-masks",
        apart=True,
        env={"WORK_CONFIG": "MASKS"},
        minimum=4,
    )


def test_nested(simulator: str) -> None:
    """Kernels that launch kernels."""
    simulate(
        ComputeEngine(NESTED),
        "signalbox.tb.units.compute.cocotb_nested",
        simulator=simulator,
        name="work-nested",
        apart=True,
        env={"WORK_CONFIG": "NESTED"},
        minimum=14,
    )


def test_kill_ends(simulator: str) -> None:
    """A kill request while several ended kernels of the tree wait for their releases."""
    simulate(
        ComputeEngine(NESTED),
        "signalbox.tb.units.compute.cocotb_kill_ends",
        simulator=simulator,
        name="work-nested",
        apart=True,
        env={"WORK_CONFIG": "NESTED"},
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["FEW_PLACES", "ONE_PLACE"])
def test_few_places(simulator: str, name: str) -> None:
    """Kernels that launch kernels, with fewer save places than blocks that would wait."""
    simulate(
        ComputeEngine(ENGINES[name]),
        "signalbox.tb.units.compute.cocotb_few_places",
        simulator=simulator,
        name=f"work-{name}",
        apart=True,
        env={"WORK_CONFIG": name},
        minimum=5,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", TREES)
def test_trees(simulator: str, name: str) -> None:
    """Random trees of kernels, on 1, 2 and 8 SMs, and on 3 SMs with masks."""
    simulate(
        ComputeEngine(ENGINES[name]),
        "signalbox.tb.units.compute.cocotb_trees",
        simulator=simulator,
        name=f"work-{name}",
        apart=True,
        env={"WORK_CONFIG": name},
        minimum=9,
    )


@pytest.mark.nightly
def test_timing(simulator: str) -> None:
    simulate(
        ComputeEngine(TIMING),
        "signalbox.tb.units.compute.cocotb_timing",
        simulator=simulator,
        name="work-timing",
        apart=True,
        minimum=3,
    )


@pytest.mark.nightly
def test_timing_saving(simulator: str) -> None:
    """Timing cores whose blocks are stopped."""
    simulate(
        ComputeEngine(replace(SAVING, timing_core=True)),
        "signalbox.tb.units.compute.cocotb_timing_saving",
        simulator=simulator,
        name="work-timing-saving",
        apart=True,
        env={"WORK_CONFIG": "SAVING"},
        minimum=6,
    )
