"""More outstanding tasks of a channel than its register can show, with nested launches (HOST-9,
NEST-12)."""

from typing import Any

import cocotb

from signalbox.hw.host.waits.compute_waits import COUNT_BITS, ComputeWaits
from signalbox.tb.testbench.clocked import Testbench, component
from signalbox.tb.testbench.configs import NESTED
from signalbox.tb.testbench.ends import Source

CHANNEL = 1

MOST = (1 << COUNT_BITS) - 1
"""Number of tasks from which on the register shows no difference."""

TASKS = MOST + 3


@cocotb.test()
async def more_than_shown(dut: Any) -> None:
    """Tasks that depend on children are not limited by the room for children: the channel and its
    epoch have outstanding tasks until the last one ends, while the count shows 4095 at most."""
    tb = Testbench(dut, component(ComputeWaits, NESTED))
    ends = Source(tb, "port__over")
    await tb.start()

    def shown() -> tuple[int, int]:
        return tb.get("outstanding__counts")[CHANNEL], tb.get("outstanding__some")

    tb.drive(port__began={"valid": 1, "channel": CHANNEL, "epoch": 0})
    await tb.steps(TASKS)
    tb.drive(port__began={"valid": 0})
    tb.drive(epochs__begins=1)
    await tb.step()
    tb.drive(epochs__begins=0)
    await tb.steps(4)
    for left in range(TASKS, 0, -1):
        assert shown() == (min(left, MOST), 1 << CHANNEL) and tb.get("epochs__before")
        ends.put({"task": {"channel": CHANNEL, "epoch": 0}})
        await tb.until(lambda: not ends.pending, "the end is taken")
        await tb.steps(2)
    assert shown() == (0, 0) and not tb.get("epochs__before")
