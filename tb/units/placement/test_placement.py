"""Work distribution alone."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.placement.saved_blocks import SavedBlocks
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers

FAST_BUILD = {"icarus": (), "verilator": ("-CFLAGS", "-O0")}
"""Large models take longer to compile than to run."""

SIZES = {"sm_warps": 8, "sm_blocks": 4, "sm_registers": 4096, "sm_shared": 16 * 1024}


def place(simulator: str, tests: str, config: Config, name: str, **options: Any) -> Path:
    return simulate(
        GlobalController(config),
        f"signalbox.tb.units.placement.{tests}",
        simulator=simulator,
        name=f"work-{name}",
        env={"CONFIG": repr(asdict(config))},
        **options,
    )


@pytest.mark.parametrize("sms", tiers([1, 5], smoke=[1]))
def test_random(simulator: str, sms: int) -> None:
    config = Config(slots=8, spare_rows=2, sms=sms, asids=4, **SIZES)
    place(simulator, "cocotb_random", config, f"random-{sms}", minimum=2)


@pytest.mark.parametrize(
    "simulator", ["icarus", pytest.param("verilator", marks=pytest.mark.soak)], indirect=True
)
def test_random_of_many(simulator: str) -> None:
    """Verilator takes minutes to build this many SMs."""
    config = Config(slots=16, spare_rows=4, sms=132, asids=8, **SIZES)
    place(simulator, "cocotb_random", config, "random-132", build_args=FAST_BUILD[simulator])


@pytest.mark.parametrize("name", ["tiny", "default"])
def test_exports(name: str) -> None:
    assert "module dut" in export.verilog(GlobalController(CONFIGS[name]), "dut")


@pytest.mark.smoke
def test_directed(simulator: str) -> None:
    config = Config(slots=8, spare_rows=2, sms=3, asids=8, **SIZES)
    place(simulator, "cocotb_placement", config, "directed", minimum=21)


def test_stopped_rows(simulator: str) -> None:
    config = Config(slots=4, spare_rows=1, sms=1, asids=4, save_places=2, **SIZES)
    place(simulator, "cocotb_stopped_rows", config, "stopped-rows", minimum=2)


@pytest.mark.parametrize("places", tiers([2, 7, 64], smoke=[2], nightly=[64]))
def test_saved_blocks(simulator: str, places: int) -> None:
    nested = {"nested_kernels": 20} if places == 7 else {}
    fields = {"slots": 4, "spare_rows": 1, "save_places": places, **nested}
    simulate(
        SavedBlocks(Config(**fields)),
        "signalbox.tb.units.placement.cocotb_saved",
        simulator=simulator,
        name=f"saved-blocks-{places}",
        env={"CONFIG": json.dumps(fields)},
    )
