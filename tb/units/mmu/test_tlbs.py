"""Translation look-aside buffers alone."""

from typing import Any

import pytest
from amaranth.lib import data

from signalbox.hw.config import Config
from signalbox.hw.mmu.asid_generations import AsidGenerations
from signalbox.hw.mmu.asid_table import AsidTable
from signalbox.hw.mmu.l1_tlb import L1Tlb
from signalbox.hw.mmu.l2_tlb import L2Tlb
from signalbox.hw.mmu.translation import Mmu
from signalbox.hw.mmu.walker import Walker
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import tiers


@pytest.mark.parametrize(
    ("entries", "misses"),
    tiers(
        [(16, 4), (2, 2), (64, 16)],
        smoke={(2, 2): ["hits_under_misses", "takes_the_place_of_its_parts", "scopes"]},
        nightly=[(2, 2), (64, 16)],
    ),
)
def test_l1(simulator: str, entries: int, misses: int) -> None:
    simulate(
        L1Tlb(Config(asids=8), data.StructLayout({"number": 16}), entries=entries, misses=misses),
        "signalbox.tb.units.mmu.cocotb_l1",
        simulator=simulator,
        name=f"mmu-l1-{entries}",
        env={"ENTRIES": str(entries), "MISSES": str(misses)},
        minimum=8,
    )


@pytest.mark.parametrize(
    ("entries", "ways", "asids", "bits"),
    tiers(
        [(64, 4, 8, 3), (64, 2, 1, 1), (256, 16, 64, 2), (512, 4, 64, 3)],
        smoke={(64, 4, 8, 3): ["scopes", "effective_in_one_cycle", "least_recently_used"]},
        nightly=[(64, 2, 1, 1), (256, 16, 64, 2), (512, 4, 64, 3)],
    ),
)
def test_l2(simulator: str, entries: int, ways: int, asids: int, bits: int) -> None:
    config = Config(asids=asids)
    simulate(
        L2Tlb(config, 10, entries=entries, ways=ways, generation_bits=bits),
        "signalbox.tb.units.mmu.cocotb_l2",
        simulator=simulator,
        name=f"mmu-l2-{entries}-{ways}",
        env={"ENTRIES": str(entries), "WAYS": str(ways), "ASIDS": str(asids)},
        minimum=11,
    )


@pytest.mark.parametrize(("asids", "bits"), tiers([(4, 2), (5, 3)], smoke=[(4, 2)]))
def test_generations(simulator: str, asids: int, bits: int) -> None:
    """Generations of 4 spaces, and of 5 spaces, for which there are 8 rows."""
    config = Config(asids=asids)
    simulate(
        AsidGenerations(config, 2, bits=bits),
        "signalbox.tb.units.mmu.cocotb_generations",
        simulator=simulator,
        name=f"mmu-generations-{asids}",
        env={"ASIDS": str(1 << config.asid_bits), "BITS": str(bits)},
    )


@pytest.mark.parametrize("asids", tiers([1, 3, 64], smoke=[3], nightly=[64]))
def test_spaces(simulator: str, asids: int) -> None:
    simulate(
        AsidTable(Config(asids=asids)),
        "signalbox.tb.units.mmu.cocotb_spaces",
        simulator=simulator,
        name=f"mmu-spaces-{asids}",
        env={"ASIDS": str(asids)},
    )


@pytest.mark.parametrize(
    ("width", "walks"),
    tiers(
        [(128, 8), (64, 2), (256, 5)],
        smoke={(64, 2): ["walks_in_flight", "pages_are_walked_once", "largest_pages"]},
        nightly=[(128, 8), (256, 5)],
    ),
)
def test_walker(simulator: str, width: int, walks: int) -> None:
    walker(simulator, width, walks, minimum=14)


@pytest.mark.nightly
def test_many_walks(simulator: str) -> None:
    """With as many walks as page 70 requires, all are in flight at the same time."""
    walker(simulator, 128, 32, testcase="walks_in_flight")


def walker(simulator: str, width: int, walks: int, **options: Any) -> None:
    """Run tests of a walker whose memory ends inside a page of 512 MiB, and inside a page of 2
    MiB."""
    memory = (1 << 32) - (1 << 28) - (1 << 12)
    config = Config(asids=8, data_width=width, walks=walks, walk_cache=4, memory_bytes=memory)
    simulate(
        Walker(config, 10),
        "signalbox.tb.units.mmu.cocotb_walker",
        simulator=simulator,
        name=f"mmu-walker-{walks}",
        env={"WIDTH": str(width), "WALKS": str(walks), "MEMORY": str(memory)},
        **options,
    )


@pytest.mark.parametrize(
    ("clients", "entries", "shared", "ways", "walks"),
    tiers(
        [(3, 4, 64, 4, 8), (4, 16, 128, 8, 2)],
        nightly=[(4, 16, 128, 8, 2)],
    ),
)
def test_mmu(
    simulator: str, clients: int, entries: int, shared: int, ways: int, walks: int
) -> None:
    sizes = {"l1_entries": entries, "l2_entries": shared, "l2_ways": ways, "walks": walks}
    tag = data.StructLayout({"number": 12})
    simulate(
        Mmu(Config(asids=8, memory_bytes=1 << 24, **sizes), clients, tag),
        "signalbox.tb.units.mmu.cocotb_mmu",
        simulator=simulator,
        name=f"mmu-whole-{clients}",
        env={"CLIENTS": str(clients), **{name.upper(): str(n) for name, n in sizes.items()}},
        minimum=10,
    )
