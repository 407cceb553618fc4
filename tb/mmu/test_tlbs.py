"""Translation look-aside buffers alone."""

from typing import Any

import pytest
from amaranth.lib import data

from hw.config import Config
from hw.mmu.l1 import L1Tlb
from hw.mmu.spaces import Spaces
from hw.mmu.walker import Walker
from tb.runner import simulate


@pytest.mark.parametrize(("entries", "misses"), [(16, 4), (2, 2), (64, 16)])
def test_l1(simulator: str, entries: int, misses: int) -> None:
    simulate(
        L1Tlb(Config(asids=8), data.StructLayout({"number": 16}), entries=entries, misses=misses),
        "tb.mmu.cocotb_l1",
        simulator=simulator,
        name=f"mmu-l1-{entries}",
        env={"ENTRIES": str(entries), "MISSES": str(misses)},
        minimum=6,
    )


@pytest.mark.parametrize("asids", [1, 3, 64])
def test_spaces(simulator: str, asids: int) -> None:
    simulate(
        Spaces(Config(asids=asids)),
        "tb.mmu.cocotb_spaces",
        simulator=simulator,
        name=f"mmu-spaces-{asids}",
        env={"ASIDS": str(asids)},
    )


@pytest.mark.parametrize(("width", "walks"), [(128, 8), (64, 4), (256, 5)])
def test_walker(simulator: str, width: int, walks: int) -> None:
    walker(simulator, width, walks, minimum=7)


def test_many_walks(simulator: str) -> None:
    """As many as page 70 asks for."""
    walker(simulator, 128, 32, testcase="walks_in_flight")


def walker(simulator: str, width: int, walks: int, **options: Any) -> None:
    simulate(
        Walker(Config(asids=8, data_width=width), 10, walks=walks),
        "tb.mmu.cocotb_walker",
        simulator=simulator,
        name=f"mmu-walker-{walks}",
        env={"WIDTH": str(width), "WALKS": str(walks)},
        **options,
    )
