"""Work distribution alone."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.hw.placement.preemption import Preemption
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


def place_masked(simulator: str, tests: str, sms: int, name: str, **options: Any) -> None:
    """Run a test module on a machine with SM masks and preemption. Each size is built once for all
    tests."""
    config = Config(slots=8, spare_rows=2, sms=sms, asids=8, save_places=8, sm_masks=True, **SIZES)
    if sms > 16:
        options["build_args"] = FAST_BUILD[simulator]
    place(simulator, tests, config, name, **options)


@pytest.mark.parametrize("sms", tiers([1, 5], smoke=[1]))
def test_random(simulator: str, sms: int) -> None:
    config = Config(slots=8, spare_rows=2, sms=sms, asids=4, **SIZES)
    place(simulator, "cocotb_random", config, f"random-{sms}", minimum=2)


@pytest.mark.nightly
@pytest.mark.parametrize("sms", [1, 2, 3, 8])
def test_random_masks(simulator: str, sms: int) -> None:
    place_masked(simulator, "cocotb_random", sms, f"masks-{sms}", minimum=2)


def test_masks(simulator: str) -> None:
    place_masked(simulator, "cocotb_masks", 3, "masks", minimum=7)


@pytest.mark.parametrize("sms", tiers([3, 4, 9, 33], nightly=[4, 9, 33]))
def test_stops(simulator: str, sms: int) -> None:
    """Choices among SMs take longer than choices of victims, or less long."""
    place_masked(simulator, "cocotb_stops", sms, f"stops-{sms}", minimum=7)


@pytest.mark.parametrize("sms", tiers([1, 4], nightly=[4]))
def test_rooms(simulator: str, sms: int) -> None:
    """Without SM masks, where a kernel goes on waiting after a restart."""
    config = Config(slots=8, spare_rows=2, sms=sms, asids=8, save_places=8, **SIZES)
    place(simulator, "cocotb_rooms", config, f"rooms-{sms}", minimum=4)


@pytest.mark.parametrize("sms", tiers([4, 9], nightly=[9]))
def test_claims(simulator: str, sms: int) -> None:
    place_masked(simulator, "cocotb_claims", sms, f"claims-{sms}", minimum=3)


@pytest.mark.parametrize("sms", tiers([3, 4, 33], nightly=[4, 33]))
def test_restarts(simulator: str, sms: int) -> None:
    place_masked(simulator, "cocotb_restarts", sms, f"restarts-{sms}", minimum=12)


@pytest.mark.parametrize(
    "simulator", ["icarus", pytest.param("verilator", marks=pytest.mark.soak)], indirect=True
)
@pytest.mark.parametrize("tests", ["cocotb_random", "cocotb_many"])
def test_masks_of_many(simulator: str, tests: str) -> None:
    """On a machine with two SMs that have no bit in the mask."""
    config = Config(slots=8, spare_rows=2, sms=66, asids=4, sm_masks=True, **SIZES)
    place(simulator, tests, config, "masks-66", build_args=FAST_BUILD[simulator])


@pytest.mark.nightly
def test_again(simulator: str) -> None:
    """On a machine with enough SMs and slots for a block per cycle."""
    sizes = SIZES | {"sm_blocks": 16, "sm_warps": 16}
    config = Config(slots=4, spare_rows=2, sms=8, asids=2, sm_masks=True, **sizes)
    place(simulator, "cocotb_again", config, "again", minimum=3)


@pytest.mark.nightly
@pytest.mark.parametrize("sms", [2, 5])
def test_victims(simulator: str, sms: int) -> None:
    config = Config(sms=sms, save_places=8, sm_masks=True)
    simulate(
        Preemption(config),
        "signalbox.tb.units.placement.cocotb_victims",
        simulator=simulator,
        name=f"victims-{sms}",
        env={"CONFIG": repr(asdict(config))},
        minimum=4,
    )


@pytest.mark.parametrize(
    "simulator", ["icarus", pytest.param("verilator", marks=pytest.mark.soak)], indirect=True
)
def test_random_of_many(simulator: str) -> None:
    """On a machine of 132 SMs, which Verilator takes minutes to build."""
    config = Config(slots=16, spare_rows=4, sms=132, asids=8, **SIZES)
    place(simulator, "cocotb_random", config, "random-132", build_args=FAST_BUILD[simulator])


@pytest.mark.parametrize("name", ["tiny", "default"])
def test_exports(name: str) -> None:
    assert "module dut" in export.verilog(GlobalController(CONFIGS[name]), "dut")


@pytest.mark.parametrize("masks", tiers([False, True], nightly=[True]))
def test_cost_of_masks(masks: bool) -> None:
    """Registers that are only for SM masks, of which these are some, are not built without them."""
    config = replace(CONFIGS["tiny"], sms=3, save_places=4, sm_masks=masks)
    text = export.verilog(GlobalController(config), "dut")
    names = {"passed", "spent", "woken", "masks", "pinned", "tried", "grows", "was_ready"}
    built = {name for name in names if re.search(rf"^ *reg .*\b{name}\b", text, re.MULTILINE)}
    assert built == (names if masks else set())


@pytest.mark.parametrize("masks", tiers([False, True], smoke=[False], nightly=[True]))
def test_directed(simulator: str, masks: bool) -> None:
    """With and without SM masks, which are not used."""
    config = Config(slots=8, spare_rows=2, sms=3, asids=8, sm_masks=masks, **SIZES)
    place(simulator, "cocotb_placement", config, f"directed{'-masks' * masks}", minimum=21)


@pytest.mark.parametrize("masks", tiers([False, True], nightly=[True]))
def test_stopped_rows(simulator: str, masks: bool) -> None:
    sizes = SIZES | {"slots": 4, "spare_rows": 1, "sms": 1, "save_places": 2}
    config = Config(asids=4, sm_masks=masks, **sizes)
    name = f"stopped-rows{'-masks' * masks}"
    place(simulator, "cocotb_stopped_rows", config, name, minimum=2)


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
