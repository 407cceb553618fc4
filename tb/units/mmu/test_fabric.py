"""The memory fabric on both simulators."""

import gc

import pytest

from signalbox.hw import export
from signalbox.hw.config import CONFIGS, Config
from signalbox.hw.mmu.memory_fabric import MemoryFabric
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import CONFIGURATIONS, tiers
from signalbox.tb.units.mmu.identity import IdentityFabric


@pytest.mark.parametrize("width", tiers([64, 128, 512], smoke=[64], nightly=[64, 128]))
def test_fabric(simulator: str, width: int) -> None:
    config = Config(data_width=width, memory_bytes=1 << 20)
    simulate(
        IdentityFabric(config, readers=3, writers=2),
        "signalbox.tb.units.mmu.cocotb_fabric",
        simulator=simulator,
        name=f"mmu-fabric-{width}",
        env={"FABRIC_DATA_WIDTH": str(width)},
        minimum=9,
    )


def test_reads_ahead(simulator: str) -> None:
    """As many reads of page tables can be in flight as there can be walks."""
    options = {"physical": 1, "physical_reads": 32}
    simulate(
        IdentityFabric(Config(), readers=2, writers=2, **options),
        "signalbox.tb.units.mmu.cocotb_fabric_ahead",
        simulator=simulator,
        name="mmu-fabric-ahead",
        env={"AHEAD": "32"},
        minimum=1,
    )


@CONFIGURATIONS
def test_elaborates(config: str) -> None:
    sizes = CONFIGS[config]
    assert export.verilog(MemoryFabric(sizes, readers=2 + sizes.copy_engines, writers=1))


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"readers": 0, "writers": 1}, "readers = 0 is not at least 1"),
        ({"readers": 1, "writers": 0}, "writers = 0 is not at least 1"),
        ({"readers": 1, "writers": 1, "outstanding": 12}, "outstanding = 12 is not a power of two"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemoryFabric(Config(), **arguments)
    gc.collect()  # unused components warn when they are collected
