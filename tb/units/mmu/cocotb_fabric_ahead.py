"""Number of reads of one client that the fabric has in flight."""

import os
from typing import Any

import cocotb

from signalbox.hw.config import Config
from signalbox.tb.testbench.clocked import Testbench
from signalbox.tb.testbench.ends import Source
from signalbox.tb.units.mmu.identity import IdentityFabric

AHEAD = int(os.environ["AHEAD"])


@cocotb.test(timeout_time=10, timeout_unit="us")
async def physical_reads(dut: Any) -> None:
    """While memory does not answer, exactly the configured number of physical reads reaches the
    bus."""
    design = IdentityFabric(Config(), readers=2, writers=2, physical=1, physical_reads=AHEAD)
    tb = await Testbench(dut, design).start()
    request = Source(tb, "read__0__request")
    tb.drive(axi__arready=1)
    reads = 0
    for _ in range(300):
        if not request.pending:
            request.put({"va": 0x1000, "physical": 1})
        await tb.step()
        reads += tb.get("axi__arvalid")
    assert reads == AHEAD
