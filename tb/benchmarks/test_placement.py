"""Rates and latencies of placement."""

from dataclasses import asdict

import pytest

from signalbox.hw.config import Config
from signalbox.hw.placement.controller import GlobalController
from signalbox.tb.benchmarks import placement
from signalbox.tb.benchmarks.recorded import DOCS, compare, document, recording
from signalbox.tb.benchmarks.scenes import collect
from signalbox.tb.simulation.runner import simulate

SIZES = {"sm_warps": 8, "sm_blocks": 4, "sm_registers": 4096, "sm_shared": 16 * 1024}


def measured(sms: int) -> dict[str, int]:
    """Blocks per cycle and latencies of a machine with `sms` SMs. A large model takes longer to
    compile than to run."""
    config = Config(slots=64, sms=sms, asids=4, **SIZES)
    done = simulate(
        GlobalController(config),
        "signalbox.tb.benchmarks.cocotb_placement",
        simulator="verilator",
        name=f"placement-rates-{sms}",
        env={"CONFIG": repr(asdict(config))},
        seed=0,
        build_args=("-CFLAGS", "-O0"),
        log="bench.log",
    )
    return collect(done)


@pytest.mark.bench
def test_rates() -> None:
    """Rates of all sizes are as recorded."""
    found = {name: value for sms in placement.SIZES for name, value in measured(sms).items()}
    if recording():
        placement.plot(found, DOCS / "placement.png")
    document("placement", "Placement of blocks", "![plot](placement.png)", placement.table(found))
    compare(found, placement.keys())
