"""The tree of the kernels that launch kernels."""

import pytest

from signalbox.hw.nested.kernel_tree import KernelTree
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


@pytest.mark.parametrize("nodes", tiers([2, 7, 64], smoke=[7], nightly=[2]))
def test_kernel_tree(simulator: str, nodes: int) -> None:
    simulate(
        KernelTree(nodes),
        "signalbox.tb.units.nested.cocotb_kernel_tree",
        simulator=simulator,
        name=f"kernel-tree-{nodes}",
        env={"NODES": str(nodes)},
        minimum=3,
    )
