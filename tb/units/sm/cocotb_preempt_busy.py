"""Blocks stop and continue among many warps that leave no cycle of the pipeline unused (PREEMPT-2,
PREEMPT-3, PREEMPT-6)."""

import cocotb

from signalbox.tb.units.sm.cocotb_control import make
from signalbox.tb.units.sm.cocotb_preempt_ways import begin, go_on, stop
from signalbox.tb.units.sm.core_testbench import CONFIG, Task
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

BUSY = {
    "branches": "top: bra top",
    "sums": "top: add r1, r1, 1\nbra top",
    "specials": "top: s2r r1, clock\nbra top",
    "pairs": "top: lea r2, r2, r4, 1\nbra top",
}

START = 200
"""Maximum cycles until a warp starts."""

SAVE = 2500
"""Maximum cycles until two warps without shared memory are saved."""


@cocotb.test(**LIMIT)
@cocotb.parametrize(text=[*BUSY.values()])
async def full_pipeline(dut, text):
    """Warps start, and are saved and restored in bounded time, however many others run."""
    tb = await PreemptingTestbench(dut).start()
    tb.port.latency = (2, 4)
    task = await begin(tb, make("top: bra top", shared=0), 2)
    await tb.until(lambda: len(tb.warps) == 2, "both warps start")
    await stop(tb, task)
    others = CONFIG.sm_warps - 2
    tb.launch(Task(1, make(text, warps=others, shared=0)))
    await tb.until(lambda: len(tb.warps) == others, "the others start", START * others)
    await tb.steps(START)
    for _ in range(3):
        await go_on(tb, task)
        await tb.until(lambda: len(tb.warps) == others + 2, "both warps start", 2 * START)
        await tb.steps(tb.random.randrange(SAVE))
        await stop(tb, task, SAVE)
    for row in (1, 2):
        tb.kill(row)
    await tb.rest()
