"""Blocks of `tb.benchmarks.clean`. `starts` comes first, as resets leave the storage as it is."""

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble
from signalbox.tb.benchmarks.clean import (
    AGAIN,
    BLOCKS,
    FIRST,
    LATENCY,
    MASKS,
    WRITES,
    Block,
    start_key,
    write_key,
)
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.units.sm.cocotb_clean import fill
from signalbox.tb.units.sm.core_testbench import CONFIG, CoreTestbench, Task
from signalbox.tb.units.sm.programs import ARGUMENTS, DATA, PROGRAM

_HEAD = """
    s2r  r0, tid.x
    ldc  r2, [0]
    ldc  r3, [4]
    lea  r2, r2, r0, 2
    shl  r6, r0, 2
    s2r  r4, lane
    mov  r5, {mask}
    shr  r5, r5, r4
    and  r5, r5, 1
    push r5
    bar
    s2r  r4, clock
"""
_TAIL = """
    sub  r4, r5, r4
    sub  r5, r1, r5
    stg  [r2], r4
    stg  [r2 + 1024], r5
    exit
"""


def launch(text: str, block: Block) -> Launch:
    """Blocks of this size, and room for their results."""
    memory = Memory()
    memory.map(PROGRAM, assemble(text))
    memory.map(ARGUMENTS, np.array([DATA, 0], np.uint64).tobytes())
    memory.map(DATA, bytes(4096))
    threads = (32 * block.warps, 1, 1)
    where = (memory, PROGRAM, ARGUMENTS, 16)
    barrier = "bar" in text
    return Launch(*where, (8, 1, 1), threads, block.registers, block.shared, barrier)


async def run(tb: CoreTestbench, task: Task, number: int) -> int:
    """Run a block of a task that has been launched. Returns the cycles until its last warp has
    ended."""
    begun = tb.cycle
    task.blocks.append((number, 0, 0))
    await tb.rest()
    assert not tb.faults
    return tb.spans[-1].end - begun


async def begin(tb: CoreTestbench, row: int, kernel: Launch) -> Task:
    """Launch a task and run its first block, so that its program is in the cache."""
    tb.launch(task := Task(row, kernel))
    task.blocks.clear()
    await run(tb, task, 0)
    return task


async def ready(dut) -> CoreTestbench:
    tb = CoreTestbench(dut)
    tb.port.latency = (LATENCY, LATENCY)
    return await tb.start()


@cocotb.test()
async def starts(dut):
    """Blocks of each size with storage that was never used, then with storage that others have
    written. Units are used in turn, and these blocks take a part of them only."""
    tb = await ready(dut)
    tasks = [await begin(tb, row, launch("exit", block)) for row, block in enumerate(BLOCKS)]
    used = sum(2 * block.warps * -(-block.registers // 4) for block in BLOCKS)
    assert used <= CONFIG.register_units
    assert sum(2 * block.shared for block in BLOCKS) <= CONFIG.sm_shared
    new = [await run(tb, task, 1) for task in tasks]
    await fill(tb)
    tb.tasks += tasks
    dirty = [await run(tb, task, 2) for task in tasks]
    for state, cycles in (("new", new), ("dirty", dirty)):
        values = zip(BLOCKS, cycles, strict=True)
        report(**{start_key(block, state): value for block, value in values})


@cocotb.test()
@cocotb.parametrize(write=list(WRITES), mask=list(MASKS))
async def first_writes(dut, write: str, mask: str):
    """Warps write the same registers twice, with the clock between."""
    tb = await ready(dut)
    await fill(tb)
    writes = "\n".join(WRITES[write].format(register=8 + n) for n in range(8))
    clocks = (f"{writes}\nbar\ns2r r{register}, clock" for register in (5, 1))
    text = "\n".join([_HEAD.format(mask=MASKS[mask]), *clocks, _TAIL])
    whole = Block(CONFIG.sm_warps, 4 * CONFIG.register_units // CONFIG.sm_warps, CONFIG.sm_shared)
    task = await begin(tb, 0, kernel := launch(text, whole))
    await run(tb, task, 1)
    first, again = (kernel.memory.word(DATA + at) for at in (0, 1024))
    assert 0 < first and 0 < again
    report(**{write_key(write, mask, FIRST): first, write_key(write, mask, AGAIN): again})
