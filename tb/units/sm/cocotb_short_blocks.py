"""Blocks that end before they have got all their shared memory (PREEMPT-10); fairness of register
writes."""

from dataclasses import replace

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.units.sm.cocotb_core import LIMIT, against_model
from signalbox.tb.units.sm.core_testbench import CONFIG, CoreTestbench, Task
from signalbox.tb.units.sm.programs import ARGUMENTS, DATA, PROGRAM

HALF = CONFIG.sm_shared // 2048 * 1024


def launch(text: str, shared: int, at: int) -> Launch:
    """One block of one warp, with its results from `at` on."""
    memory = Memory()
    memory.map(PROGRAM, assemble(text))
    memory.map(ARGUMENTS, np.array([at & 0xFFFF_FFFF, at >> 32, 0, 0], np.uint32).tobytes())
    memory.map(at, bytes(4096))
    return Launch(memory, PROGRAM, ARGUMENTS, 16, (1, 1, 1), (32, 1, 1), 16, shared)


def keeper(mark: int, at: int) -> Launch:
    """Fills each KiB of half of shared memory with its own numbers, then reads them."""
    units = range(0, HALF, 1024)
    lines = ["s2r r0, lane", "shl r1, r0, 2", "ldc r2, [0]", "ldc r3, [4]"]
    lines += ["mov r6, 4", "mul r7, r0, r6", "add r2, r2, r7"]
    for place in units:
        lines += [f"add r4, r0, {mark + place}", f"sts [r1 + {place}], r4"]
    lines += ["mov r5, 0"]
    for place in units:
        lines += [f"lds r4, [r1 + {place}]", "mul r5, r5, 5", "add r5, r5, r4"]
    return launch("\n".join([*lines, "stg [r2], r5", "exit"]), HALF, at)


@cocotb.test(**LIMIT)
async def neighbours(dut):
    """Two blocks that share all of shared memory keep their contents apart."""
    tb = await CoreTestbench(dut).start()
    await against_model(tb, {0: keeper(0x1000_0000, DATA), 1: keeper(0x2000_0000, DATA)})


@cocotb.test(**LIMIT)
async def short_block(dut):
    """Likewise after a block that ended at once."""
    tb = await CoreTestbench(dut).start()
    tb.launch(Task(2, launch("exit", CONFIG.sm_shared, DATA)))
    await tb.rest()
    tb.tasks.clear()
    await against_model(tb, {0: keeper(0x1000_0000, DATA), 1: keeper(0x2000_0000, DATA)})


@cocotb.test(**LIMIT)
async def short_block_alone(dut):
    """A block of half of shared memory keeps its contents after a block that ended at once."""
    tb = await CoreTestbench(dut).start()
    tb.launch(Task(2, launch("exit", CONFIG.sm_shared, DATA)))
    await tb.rest()
    tb.tasks.clear()
    await against_model(tb, {0: keeper(0x1000_0000, DATA)})


async def slowest(dut, busy: str) -> int:
    """Longest time of ten kernels with a single load, one after the other beside two warps that
    execute `busy`, all of it in the program cache."""
    most, tb = 0, await CoreTestbench(dut).start()
    text = ["mov r1, 1", "mov r8, 10", "again:", *[busy] * 60, "sub r8, r8, 1", "bany r8, again"]
    stream = replace(launch("\n".join([*text, "exit"]), 0, DATA), block=(64, 1, 1))
    tb.launch(Task(1, stream))
    await tb.steps(8_000)
    for _ in range(10):
        await tb.steps(tb.random.randrange(200))
        one = "ldc r2, [0]\nldc r3, [4]\nldg r4, [r2]\nexit"
        tb.launch(Task(0, launch(one, 0, DATA)))
        begun, ended = tb.cycle, len(tb.spans)
        await tb.until(lambda ended=ended: len(tb.spans) > ended, "the load ends", 90_000)
        assert tb.spans[-1].row == 0, "the load waited for the busy kernel"
        most = max(most, tb.cycle - begun)
    await tb.rest(300_000)
    return most


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def load_beside_addresses(dut):
    """A load is as fast beside warps that compute addresses as beside warps that add."""
    plain, pairs = await slowest(dut, "add r6, r6, r1"), await slowest(dut, "lea r6, r6, r1, 0")
    dut._log.info("load: %d beside add, %d beside lea", plain, pairs)
    assert pairs < 3 * plain, (plain, pairs)
