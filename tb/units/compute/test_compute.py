"""The compute engine on both simulators; with every change, Icarus runs it in the machine only."""

from dataclasses import replace

import pytest

from signalbox.hw.compute.engine import ComputeEngine
from signalbox.hw.config import Config
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.testbench.configs import COMPUTE, FEW_PLACES, NESTED, ONE_PLACE, SAVING, TIMING


def test_compute(simulator: str) -> None:
    simulate(
        ComputeEngine(COMPUTE),
        "signalbox.tb.units.compute.cocotb_compute",
        simulator=simulator,
        name="work-compute",
        apart=True,
        minimum=12,
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
        minimum=2,
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
        minimum=12,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("config", [FEW_PLACES, ONE_PLACE], ids=["FEW_PLACES", "ONE_PLACE"])
def test_few_places(simulator: str, config: Config) -> None:
    """Kernels that launch kernels, with fewer save places than blocks that would wait."""
    simulate(
        ComputeEngine(config),
        "signalbox.tb.units.compute.cocotb_few_places",
        simulator=simulator,
        name=f"work-few-places-{config.save_places}",
        apart=True,
        env={"WORK_CONFIG": "ONE_PLACE" if config is ONE_PLACE else "FEW_PLACES"},
        minimum=5,
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
