"""Units of the host alone, on both simulators."""

import pytest
from amaranth.lib import wiring

from signalbox.hw.config import CONFIGS
from signalbox.hw.host.channel_block.access_control import AccessControl
from signalbox.hw.host.channel_registers import ChannelRegisters
from signalbox.hw.host.channel_states import ChannelStates
from signalbox.hw.host.copy_launcher import CopyLauncher
from signalbox.hw.host.fetch.arrivals import Arrivals
from signalbox.hw.host.fetch.fetch_unit import FetchUnit
from signalbox.hw.host.methods.execute import Execute
from signalbox.hw.host.outstanding import Outstanding
from signalbox.hw.host.read_share import ReadShare
from signalbox.hw.host.scheduling.acquire_pretest import AcquirePretest
from signalbox.hw.host.scheduling.parking import Parking
from signalbox.hw.host.scheduling.retry_timers import RetryTimers
from signalbox.hw.host.scheduling.runlist import Runlist
from signalbox.hw.host.scheduling.runlist_loader import RunlistLoader
from signalbox.hw.host.scheduling.scheduler import Scheduler
from signalbox.hw.host.scheduling.tsg_rotation import TsgRotation
from signalbox.hw.host.userd_writeback import UserdWriteback
from signalbox.hw.host.waits.barrier import Barrier
from signalbox.hw.host.waits.compute_waits import ComputeWaits
from signalbox.hw.host.waits.mem_ops import MemOps
from signalbox.hw.host.waits.memory_semaphores import MemorySemaphores
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR, tiers
from signalbox.tb.testbench.configs import NESTED, RUNLISTS
from signalbox.tb.units.host import fetch_testbench, read_share_testbench, runlist_loader_testbench


def run(unit: wiring.Component, name: str, simulator: str, size: str, minimum: int) -> None:
    """Run the cocotb tests of module `cocotb_<name>`."""
    simulate(
        unit,
        f"signalbox.tb.units.host.cocotb_{name}",
        simulator=simulator,
        name=f"host-{name}-{size}",
        env={"SIZE": size},
        minimum=minimum,
    )


@pytest.mark.parametrize(
    "size",
    tiers(
        fetch_testbench.CONFIGS,
        smoke={"narrow": ["segments_in_order", "starts_from_an_empty_ring", "rate"]},
        nightly=["default"],
    ),
)
def test_fetch(simulator: str, size: str) -> None:
    run(FetchUnit(fetch_testbench.CONFIGS[size]), "fetch", simulator, size, 9)


@pytest.mark.parametrize("size", tiers(["tiny", "default", "large"], nightly=["tiny", "large"]))
def test_access_control(simulator: str, size: str) -> None:
    run(AccessControl(CONFIGS[size]), "access_control", simulator, size, 2 if size == "tiny" else 3)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["end_and_doorbell_together", "cleared_with_a_doorbell"]},
        nightly=["tiny", "large"],
    ),
)
def test_arrivals(simulator: str, size: str) -> None:
    run(Arrivals(CONFIGS[size]), "arrivals", simulator, size, 5)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "two-engines", "large"],
        smoke=["tiny"],
        nightly=["tiny", "default", "large"],
    ),
)
def test_barrier(simulator: str, size: str) -> None:
    run(Barrier(CONFIGS[size]), "barrier", simulator, size, 3)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["in_turn", "asked_again", "started_anew"]},
        nightly=["tiny", "large"],
    ),
)
def test_memops(simulator: str, size: str) -> None:
    run(MemOps(CONFIGS[size]), "mem_ops", simulator, size, 5)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["by_age", "by_priority", "dropped", "epochs", "epochs_of_methods"]},
        nightly=["tiny", "large"],
    ),
)
def test_compute_waits(simulator: str, size: str) -> None:
    minimum = 11 if size == "tiny" else 12
    run(ComputeWaits(CONFIGS[size]), "compute_waits", simulator, size, minimum)


@ON_VERILATOR
def test_many_tasks(simulator: str) -> None:
    """Tasks of kernels of kernels."""
    run(ComputeWaits(NESTED), "many_tasks", simulator, "nested", 1)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"default": ["patience", "slices_of_the_holder", "turns"]},
        nightly=["tiny", "large"],
    ),
)
def test_scheduler(simulator: str, size: str) -> None:
    run(Scheduler(CONFIGS[size]), "scheduler", simulator, size, 1 if size == "tiny" else 10)


@pytest.mark.parametrize(
    "size",
    tiers(
        RUNLISTS,
        smoke={"default": ["left_early", "expires", "new_lists"]},
        nightly=["tiny", "narrow", "large"],
    ),
)
def test_tsg_rotation(simulator: str, size: str) -> None:
    minimum = 2 if size in {"tiny", "narrow"} else 9
    run(TsgRotation(RUNLISTS[size]), "tsg_rotation", simulator, size, minimum)


@pytest.mark.parametrize(
    "size",
    tiers(
        RUNLISTS,
        smoke={"default": ["in_order", "failed_acquires"]},
        nightly=["tiny", "narrow", "large"],
    ),
)
def test_runlist(simulator: str, size: str) -> None:
    minimum = 1 if size in {"tiny", "narrow"} else 8
    run(Runlist(RUNLISTS[size]), "runlist", simulator, size, minimum)


@pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"], nightly=["default"]))
def test_acquire_pretest(simulator: str, size: str) -> None:
    run(AcquirePretest(CONFIGS[size]), "acquire_pretest", simulator, size, 2)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["every_wait", "turns", "groups_wake"]},
        nightly=["tiny", "large"],
    ),
)
def test_parking(simulator: str, size: str) -> None:
    run(Parking(CONFIGS[size]), "parking", simulator, size, 9)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "two-engines", "large"],
        smoke={"tiny": ["copies_end_in_order", "reservations", "failures"]},
        nightly=["tiny", "large"],
    ),
)
def test_copy_launcher(simulator: str, size: str) -> None:
    minimum = {"tiny": 4, "default": 5}.get(size, 6)
    run(CopyLauncher(CONFIGS[size]), "copy_launcher", simulator, size, minimum)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["in_cycles", "in_units", "stopped_in_time"]},
        nightly=["tiny", "large"],
    ),
)
def test_retry_timers(simulator: str, size: str) -> None:
    run(RetryTimers(CONFIGS[size]), "retry_timers", simulator, size, 4)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default", "large"],
        smoke={"tiny": ["latency", "in_order", "changes"]},
        nightly=["tiny", "large"],
    ),
)
def test_memory_semaphores(simulator: str, size: str) -> None:
    run(MemorySemaphores(CONFIGS[size]), "memory_semaphores", simulator, size, 4)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["tiny", "default"],
        smoke={"tiny": ["state_methods", "own_copies_first", "launches"]},
        nightly=["tiny"],
    ),
)
def test_execute(simulator: str, size: str) -> None:
    run(Execute(CONFIGS[size]), "execute", simulator, size, 26 if size == "tiny" else 27)


@pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"], nightly=["tiny"]))
def test_channel_registers(simulator: str, size: str) -> None:
    run(ChannelRegisters(CONFIGS[size]), "channel_registers", simulator, size, 1)


@pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"]))
def test_channel_states(simulator: str, size: str) -> None:
    run(ChannelStates(CONFIGS[size]), "channel_states", simulator, size, 1)


@pytest.mark.parametrize(
    "size",
    tiers(["tiny", "default", "large"], smoke={"tiny": ["at_once"]}, nightly=["tiny", "large"]),
)
def test_userd_writeback(simulator: str, size: str) -> None:
    run(UserdWriteback(CONFIGS[size]), "userd_writeback", simulator, size, 3)


@pytest.mark.parametrize("size", tiers(["tiny", "default"], smoke=["tiny"]))
def test_outstanding(simulator: str, size: str) -> None:
    run(Outstanding(CONFIGS[size]), "outstanding", simulator, size, 2)


@pytest.mark.parametrize(
    "size",
    tiers(
        ["narrow", "few", "default", "wide"],
        smoke={"few": ["rate", "wrong_kinds", "wrong_channels", "memory_fails", "one_at_a_time"]},
        nightly=["narrow", "few", "wide"],
    ),
)
def test_runlist_loader(simulator: str, size: str) -> None:
    config = runlist_loader_testbench.CONFIGS[size]
    run(RunlistLoader(config), "runlist_loader", simulator, size, 15)


@pytest.mark.nightly
@ON_VERILATOR
def test_longest_runlist(simulator: str) -> None:
    """Separate, because a list with this many entries takes long."""
    simulate(
        RunlistLoader(runlist_loader_testbench.CONFIGS["longest"]),
        "signalbox.tb.units.host.cocotb_runlist_loader",
        simulator=simulator,
        name="host-longest-runlist",
        env={"SIZE": "longest"},
        testcase="longest",
    )


@pytest.mark.parametrize(
    "size", tiers(read_share_testbench.SIZES, smoke=["one"], nightly=["default"])
)
def test_read_share(simulator: str, size: str) -> None:
    unit = ReadShare(*read_share_testbench.SIZES[size])
    run(unit, "read_share", simulator, size, 4 if size == "one" else 5)
