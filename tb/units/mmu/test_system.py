"""Virtual memory as a whole, in a small, the default and a wide configuration."""

from dataclasses import replace

import pytest

from signalbox.hw.config import Config
from signalbox.hw.mmu.fault_recorder import FaultRecorder
from signalbox.hw.mmu.memory_system import MemorySystem
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

MEMORY = 1 << 24
REQUESTERS = 2
"""Number of requesters of binds and invalidations, which the testbench models."""

_SMALL = Config(
    asids=3,
    l1_entries=4,
    l1_misses=2,
    l2_entries=64,
    walks=3,
    walk_cache=2,
    data_width=64,
    sms=0,
    memory_bytes=MEMORY,
)

CONFIGS = {
    "small": _SMALL,
    "sm": replace(_SMALL, sms=1),
    "default": Config(sms=0, memory_bytes=MEMORY),
    "wide": Config(sms=0, data_width=512, memory_bytes=MEMORY),
}


class System(MemorySystem):
    """Virtual memory for the testbench, with its configuration as only parameter."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, REQUESTERS)
        self.config = config


def system(simulator: str, name: str, tests: str, minimum: int) -> None:
    if simulator == "icarus" and name != "small":
        pytest.skip("too slow on Icarus: it has the small one")
    config = CONFIGS[name]
    design = System(config)
    simulate(
        design,
        f"signalbox.tb.units.mmu.{tests}",
        simulator=simulator,
        name=f"mmu-{tests.removeprefix('cocotb_')}-{name}",
        env={
            "WIDTH": str(config.data_width),
            "ASIDS": str(config.asids),
            "CLIENTS": str(config.memory_clients),
            "SMS": str(config.sms),
        },
        minimum=minimum,
    )


@pytest.mark.parametrize("name", tiers(CONFIGS, nightly=["small", "default", "wide"]))
def test_system(simulator: str, name: str) -> None:
    system(simulator, name, "cocotb_system", 3)


@pytest.mark.parametrize("name", tiers(CONFIGS, nightly=["small", "default", "wide"]))
def test_maintenance(simulator: str, name: str) -> None:
    system(simulator, name, "cocotb_maintenance", 46)


@pytest.mark.parametrize("name", tiers(CONFIGS, nightly=["small", "default", "wide"]))
def test_faults(simulator: str, name: str) -> None:
    system(simulator, name, "cocotb_faults", 43)


@pytest.mark.parametrize(
    "width",
    tiers(
        [64, 128, 512],
        smoke={64: ["switched_in_any_cycle/delay=0/status=1"]},
        nightly=[128, 512],
    ),
)
def test_recorder(simulator: str, width: int) -> None:
    simulate(
        FaultRecorder(Config(sms=0, data_width=width), 4),
        "signalbox.tb.units.mmu.cocotb_recorder",
        simulator=simulator,
        name=f"mmu-recorder-{width}",
        env={"WIDTH": str(width)},
        minimum=4,
    )


@pytest.mark.parametrize("name", tiers(CONFIGS, nightly=["small", "default", "wide"]))
def test_malformed(simulator: str, name: str) -> None:
    system(simulator, name, "cocotb_malformed", 22)
