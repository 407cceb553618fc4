"""Registers and shared memory of a block are 0 until it writes them (PREEMPT-10).

Each test first fills all registers and all of shared memory from another row.
"""

from collections.abc import Sequence

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble
from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.units.sm.cocotb_core import LIMIT, against_model
from signalbox.tb.units.sm.core_testbench import CONFIG, CoreTestbench, Task
from signalbox.tb.units.sm.programs import ARGUMENTS, DATA, PROGRAM

WARPS, UNITS = CONFIG.sm_warps, CONFIG.register_units // CONFIG.sm_warps
REGISTERS = 4 * UNITS
OUT = 32
"""Results of each thread, in words: number of registers or words of shared memory examined at
once."""

HEAD = """
    s2r r0, tid.x
    ldc r2, [0]
    ldc r3, [4]
    mul r1, r0, 128
    lea r2, r2, r1, 0
"""
"""r0 is the thread's number, r2:r3 its results."""


def launch(text: str, warps: int, registers: int) -> Launch:
    """One block with all of shared memory."""
    memory = Memory()
    pointer = np.array([DATA & 0xFFFF_FFFF, DATA >> 32, 0, 0], np.uint32)
    numbers = np.arange(32 * warps * OUT, dtype=np.uint32)
    memory.map(PROGRAM, assemble(f"{HEAD}{text}\nexit"))
    memory.map(ARGUMENTS, pointer.tobytes())
    memory.map(DATA, (numbers * np.uint32(0x9E3779B1) | np.uint32(1)).tobytes())
    threads = (32 * warps, 1, 1)
    return Launch(
        memory, PROGRAM, ARGUMENTS, 16, (1, 1, 1), threads, registers, CONFIG.sm_shared, True
    )


async def fill(tb: CoreTestbench) -> None:
    """Write all registers of all hardware warps, and all of shared memory."""
    words = CONFIG.sm_shared // 4
    count = words // (32 * WARPS)
    text = ["mul r5, r0, 0x9e3779b1", "or r5, r5, 1", "shl r4, r0, 2"]
    for _ in range(count):
        text += ["sts [r4], r5", f"add r4, r4, {128 * WARPS}"]
    rest = words - count * 32 * WARPS
    text += [f"sltu r6, r0, {rest}", "push r6", "sts [r4], r5", "pop"]
    text += [f"mov r{n}, r5" for n in range(REGISTERS) if n not in {0, 5}]
    tb.launch(Task(3, launch("\n".join(text), WARPS, REGISTERS)))
    await tb.rest()
    tb.tasks.clear()
    assert not tb.faults


def stored(registers: Sequence[int]) -> str:
    return "\n".join(f"stg [r2 + {4 * n}], r{one}" for n, one in enumerate(registers))


@cocotb.test(**LIMIT)
async def registers_are_clean(dut):
    """All registers that a warp has not written are 0, in all lanes."""
    tb = await CoreTestbench(dut).start()
    for first in range(4, REGISTERS, OUT):
        await fill(tb)
        text = stored(range(first, min(first + OUT, REGISTERS)))
        await against_model(tb, {0: launch(text, WARPS, REGISTERS)})


WRITES = (
    "mov r{d}, 0x55", "lea r{d}, r2, 1, 0", "ldg r{d}, [r2 + 8]", "lds r{d}, [r1]",
    "s2r r{d}, lane", "s2r r{d}, ntid.x", "ldc r{d}, [0]", "add r{d}, r{d}, 3",
)  # fmt: skip


@cocotb.test(**LIMIT)
async def first_write_of_some_lanes(dut):
    """Lanes that the first instruction to write a register leaves out keep 0, for every
    instruction, even if it leaves out whole rows; so do lanes that a later instruction leaves
    out."""
    tb = await CoreTestbench(dut).start()
    masks = (0x1, 0x8000_0000, 0x00FF_FF00, 0xFFFF_FFFF, 0, tb.random.getrandbits(32))
    for mask in masks:
        await fill(tb)
        text = ["s2r r4, lane", "mov r5, 1", "shl r4, r5, r4", "mov r5, 0", "shl r1, r0, 2"]
        text += [f"sts [r1 + {4 * 32}], r0", f"and r4, r4, {mask}", "push r4"]
        for n, write in enumerate(WRITES):
            text.append(write.format(d=8 + 2 * n))
        text += ["else", "mov r8, 7", "pop", f"lds r26, [r1 + {4 * 32}]"]
        text.append(stored(range(8, 8 + 2 * len(WRITES) + 4)))
        await against_model(tb, {0: launch("\n".join(text), 1, 28)})


@cocotb.test(**LIMIT)
async def shared_memory_is_clean(dut):
    """All words of shared memory that a block has not written are 0."""
    tb = await CoreTestbench(dut).start()
    for first in range(0, CONFIG.sm_shared, 128 * OUT):
        await fill(tb)
        text = ["shl r1, r0, 2"]
        for n in range(min(OUT, (CONFIG.sm_shared - first) // 128)):
            text += [f"lds r4, [r1 + {first + 128 * n}]", f"stg [r2 + {4 * n}], r4"]
        await against_model(tb, {0: launch("\n".join(text), 1, 8)})


@cocotb.test(**LIMIT)
async def stores_of_some_words(dut):
    """Stores do not change other words of their line, which stay 0 or as stored before, even if
    rows of an instruction or of two warps store to one line in consecutive cycles."""
    tb = await CoreTestbench(dut).start()
    lanes = CONFIG.lanes
    places = (
        f"shr r4, r4, {lanes.bit_length() - 1}",  # one place per row of lanes
        "shr r4, r4, 4",
        f"mul r4, r4, {tb.random.getrandbits(16) | 1}",
        "and r4, r4, 5",
    )
    for place in places:
        await fill(tb)
        words = tb.random.choice((max(lanes, 2), 32))
        text = [
            "mov r4, r0", place, f"and r4, r4, {words - 1}", "shl r4, r4, 2",
            "s2r r5, lane", f"sltu r5, r5, {tb.random.choice((17, 32))}", "push r5",
            "or r6, r4, 0x400", "sts [r4], r4", "sts [r4 + 256], r6", "pop", "bar",
            "s2r r1, lane", "shl r1, r1, 2",
        ]  # fmt: skip
        for n in range(4):
            text += [f"lds r4, [r1 + {128 * n}]", f"stg [r2 + {4 * n}], r4"]
        warps = 1 if tb.random.random() < 0.3 else min(2, WARPS)
        await against_model(tb, {0: launch("\n".join(text), warps, 8)})


@cocotb.test(**LIMIT)
async def loads_beside_first_stores(dut):
    """A word that one warp stores while another loads its line is read as 0 or as the stored value,
    never as the previous block's contents."""
    tb = await CoreTestbench(dut).start()
    for _ in range(4):
        await fill(tb)
        text = ["s2r r5, lane", "shl r1, r5, 2", "shr r6, r0, 5", "push r6"]
        text += [f"wait {tb.random.randrange(30)}"]
        text += [f"lds r{8 + n}, [r1 + {128 * (n // 2)}]" for n in range(16)]
        text += ["else"]
        for n in range(8):
            text += [f"add r5, r0, {n + 1}", f"sts [r1 + {128 * n}], r5"]
        text += ["pop", stored(range(8, 24))]
        one = launch("\n".join(text), min(2, WARPS), 24)
        tb.launch(Task(0, one))
        await tb.rest()
        tb.tasks.clear()
        assert not tb.faults
        for lane in range(32):
            for n in range(16):
                word = one.memory.word(DATA + 4 * (OUT * (32 + lane) + n))
                assert word in {0, lane + n // 2 + 1}, (lane, n, word)
