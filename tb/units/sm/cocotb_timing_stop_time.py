"""Cycles of the timing core from the acceptance of a stop until the block is saved, by size of
state and memory latency (PREEMPT-6, PREEMPT-9). They are printed, and must be within the bound."""

import cocotb

from signalbox.hw.config import STATE_LINE
from signalbox.hw.sm.timing.layouts import outstanding_accesses
from signalbox.tb.models.isa import Launch
from signalbox.tb.models.timing import Timing, stop_bound
from signalbox.tb.units.sm.cocotb_preempt_time import lines
from signalbox.tb.units.sm.cocotb_preempt_ways import begin, stop
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench
from signalbox.tb.units.sm.timing_launches import DATA, launch

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}


def bound(task: Launch, latency: int) -> int:
    """Maximum cycles for the state of a task's block."""
    return stop_bound(
        lines(task) * STATE_LINE // WIDTH,
        task.warps,
        latency,
        sm_warps=CONFIG.sm_warps,
        under_way=outstanding_accesses(CONFIG) * STATE_LINE // CONFIG.beat_bytes,
    )


@cocotb.test(**LIMIT)
async def stop_until_saved(dut):
    """Stops of blocks with more or less state, at several latencies, are within the bound."""
    tb = await PreemptingTestbench(dut).start()
    most = 4 * (CONFIG.register_units // CONFIG.sm_warps)
    sizes = [(1, 8, 0), (1, 64, 0), (CONFIG.sm_warps, min(8, most), 0), (1, 8, CONFIG.sm_shared)]
    sizes.append((CONFIG.sm_warps, most, CONFIG.sm_shared))
    dut._log.info("warps registers shared   bytes latency  cycles   bound")
    for warps, registers, shared in sizes:
        timing = Timing(0xFFFF, 1, 0, DATA, 10, 31, 0, WIDTH)
        task = launch(timing, (1, 1, 1), warps, 2, registers=registers, shared=shared)
        for latency in (2, 20, 100, 300):
            cycles, limit = await measured(tb, task, latency), bound(task, latency)
            shown = " ".join(f"{n:6}" for n in (warps, registers, shared))
            rest = f"{lines(task) * STATE_LINE:7} {latency:7} {cycles:7} {limit:7}"
            dut._log.info("%s %s", shown, rest)
            assert cycles <= limit


async def measured(tb: PreemptingTestbench, task: Launch, latency: int) -> int:
    """Maximum cycles of several stops."""
    for _ in range(3):
        tb.port.latency = (latency, latency)
        one = await begin(tb, task, 2)
        await tb.until(lambda: len(tb.warps) == task.warps, "all warps start")
        await tb.steps(2 * latency + tb.random.randrange(100))
        await stop(tb, one, 200_000)
        tb.kill(2)
        one.blocks.clear()
        tb.revive()
    return max(saved - accepted for accepted, saved in tb.waits[-3:])
