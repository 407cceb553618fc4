"""Cycles from the acceptance of a stop until the block is saved, by size of state and memory
latency (PREEMPT-6). They are printed, and must be within the bound."""

import cocotb

from signalbox.hw.config import STATE_LINE
from signalbox.hw.sm.core.read_port import OUTSTANDING
from signalbox.tb.models.isa import Launch
from signalbox.tb.units.sm.cocotb_control import make
from signalbox.tb.units.sm.cocotb_preempt_ways import OWN, begin, stop
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH
from signalbox.tb.units.sm.preempting_testbench import PreemptingTestbench

LIMIT = {"timeout_time": 60, "timeout_unit": "ms"}

ACCESSES = 32 // min(CONFIG.lanes, WIDTH // 4)
"""Accesses of a line."""

ROWS = 32 // CONFIG.lanes


def spinning(warps: int, registers: int, shared: int, masks: int) -> Launch:
    """Warps that load forever."""
    pushes = "push r6\n" * masks
    text = f"{OWN}mov r6, 1\n{pushes}top: ldg r4, [r2]\nbra top"
    launch = make(text, warps=warps, shared=shared)
    launch.registers = registers
    return launch


def lines(launch: Launch) -> int:
    """Number of lines that are written."""
    registers = -(-launch.registers // 4) * 4
    return 1 + launch.shared // STATE_LINE + launch.warps * (1 + registers)


def bound(launch: Launch, masks: int, latency: int) -> int:
    """Maximum cycles of a stop. Sum of: the longest access under way, behind those of other warps;
    all lines at the speed of the port, with at most `OUTSTANDING` accesses; some cycles per warp,
    per mask of a warp and per unit of shared memory; and the latencies of two last writes, of the
    warps and of the rest."""
    units = launch.shared // 1024
    warp = 6 * ROWS + 80 + masks * (ROWS + 4)
    unit = 10 * ROWS + 40
    access = latency + 4 * ACCESSES * CONFIG.sm_warps
    pace = 1 if ACCESSES == ROWS else 2
    line = ACCESSES * max(pace, -(-(latency + 12) // OUTSTANDING))
    ends = 2 * (latency + 12) + 6 * ROWS + 60
    return access + lines(launch) * line + launch.warps * warp + units * unit + ends


@cocotb.test(**LIMIT)
async def stop_until_saved(dut):
    """Stops of blocks with more or less state, at several latencies, are within the bound."""
    tb = await PreemptingTestbench(dut).start()
    most = CONFIG.sm_warps - CONFIG.sm_warps % 2
    sizes = [(1, 8, 0, 0), (1, 64, 0, 0), (1, 8, 0, 8), (most, 8, 0, 0), (1, 8, 4096, 0)]
    sizes.append((most, 4 * CONFIG.register_units // most, 4096, 8))
    dut._log.info("warps registers shared masks   bytes latency  cycles   bound")
    for size in sizes:
        launch = spinning(*size)
        for latency in (2, 20, 100, 300):
            cycles = await measured(tb, launch, latency)
            limit = bound(launch, size[3], latency)
            shown = " ".join(f"{n:6}" for n in size)
            rest = f"{lines(launch) * STATE_LINE:7} {latency:7} {cycles:7} {limit:7}"
            dut._log.info("%s %s", shown, rest)
            assert cycles <= limit


async def measured(tb: PreemptingTestbench, launch: Launch, latency: int) -> int:
    """Maximum cycles of several stops."""
    found = []
    for _ in range(3):
        tb.port.latency = (latency, latency)
        task = await begin(tb, launch, 2)
        await tb.until(lambda: len(tb.warps) == launch.warps, "all warps start")
        await tb.steps(2 * latency + 600 + tb.random.randrange(100))
        await stop(tb, task, 200_000)
        accepted, saved = tb.waits[-1]
        found.append(saved - accepted)
        tb.kill(2)
        task.blocks.clear()
        tb.revive()
    return max(found)
