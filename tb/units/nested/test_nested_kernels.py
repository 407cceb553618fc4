"""The kernel tree with its clients."""

import pytest

from signalbox.hw.config import Config
from signalbox.hw.nested.nested_kernels import NestedKernels
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


def config(nodes: int) -> Config:
    """Configuration with a kernel tree of this size."""
    return Config(save_places=8, nested_kernels=nodes)


@pytest.mark.parametrize("nodes", tiers([2, 9, 64], smoke=[9], nightly=[2, 64]))
def test_nested_kernels(simulator: str, nodes: int) -> None:
    simulate(
        NestedKernels(config(nodes)),
        "signalbox.tb.units.nested.cocotb_nested_kernels",
        simulator=simulator,
        name=f"nested-kernels-{nodes}",
        env={"NODES": str(nodes)},
        minimum=5,
    )
