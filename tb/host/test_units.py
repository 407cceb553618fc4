"""Units of the host alone, on both simulators."""

import pytest
from amaranth.lib import wiring

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.tb.host import fetching
from signalbox.tb.runner import simulate
from signalbox.tb.tiers import tiers


def run(unit: wiring.Component, name: str, simulator: str, size: str, minimum: int) -> None:
    """Run the cocotb tests of module `cocotb_<name>`."""
    simulate(
        unit,
        f"signalbox.tb.host.cocotb_{name}",
        simulator=simulator,
        name=f"host-{name}-{size}",
        env={"SIZE": size},
        minimum=minimum,
    )


@pytest.mark.parametrize("size", tiers(fetching.CONFIGS, smoke=["narrow"]))
def test_fetch(simulator: str, size: str) -> None:
    run(FetchUnit(fetching.CONFIGS[size]), "fetch", simulator, size, 8)


@pytest.mark.parametrize(
    "size", tiers(["tiny", "default", "large"], smoke=["tiny"], nightly=["large"])
)
def test_arrivals(simulator: str, size: str) -> None:
    run(Arrivals(CONFIGS[size]), "arrivals", simulator, size, 4)


@pytest.mark.parametrize(
    "size", tiers(["tiny", "default", "two-engines", "large"], smoke=["tiny"], nightly=["large"])
)
def test_barrier(simulator: str, size: str) -> None:
    run(Barrier(CONFIGS[size]), "barrier", simulator, size, 3)


@pytest.mark.parametrize(
    "size", tiers(["tiny", "default", "large"], smoke=["tiny"], nightly=["large"])
)
def test_memops(simulator: str, size: str) -> None:
    run(MemOps(CONFIGS[size]), "memops", simulator, size, 5)


@pytest.mark.parametrize(
    "size", tiers(["tiny", "default", "large"], smoke=["tiny"], nightly=["large"])
)
def test_scheduler(simulator: str, size: str) -> None:
    run(Scheduler(CONFIGS[size]), "scheduler", simulator, size, 1 if size == "tiny" else 8)


@pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"]))
def test_channel_registers(simulator: str, size: str) -> None:
    run(ChannelRegisters(CONFIGS[size]), "channel_registers", simulator, size, 1)
