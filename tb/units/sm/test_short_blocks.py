"""Blocks of the supplied core that end before they have got all their shared memory; fairness of
register writes."""

import json

from signalbox.hw.config import Config
from signalbox.hw.sm.core.core import Core
from signalbox.tb.simulation.runner import simulate
from signalbox.tb.simulation.tiers import ON_VERILATOR

FIELDS = {
    "lanes": 1, "data_width": 64, "sm_warps": 3, "sm_blocks": 2, "sm_registers": 3072,
    "slots": 4, "sm_shared": 64 * 1024,
}  # fmt: skip


@ON_VERILATOR
def test_short_block(simulator: str) -> None:
    simulate(
        Core(Config(**FIELDS)),
        "signalbox.tb.units.sm.cocotb_short_blocks",
        simulator=simulator,
        name="sm-short-blocks",
        env={"CONFIG": json.dumps(FIELDS)},
        minimum=4,
    )
