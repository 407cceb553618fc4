"""Translation look-aside buffers alone."""

import pytest
from amaranth.lib import data

from hw.config import Config
from hw.mmu.l1 import L1Tlb
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
