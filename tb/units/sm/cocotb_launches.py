"""Kernels that launch kernels in the supplied core (NEST-10, NEST-12)."""

import os
from copy import deepcopy
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from signalbox.hw.errors import CoreCause
from signalbox.tb.models.isa import Launch, run_block
from signalbox.tb.testbench.goals import Rounds
from signalbox.tb.units.sm.cocotb_core import against_model, data_launch, fits
from signalbox.tb.units.sm.core_testbench import CONFIG, Task
from signalbox.tb.units.sm.launching_testbench import CHILDREN, LaunchingTestbench
from signalbox.tb.units.sm.programs import random_launch

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}

ROUNDS = int(os.environ.get("ROUNDS", "1"))

KEY = 0, (0, 0, 0)
"""First block of row 0."""

RECORD, FAILING, REFUSED = 0x12_3456_8900, 0x12_3456_8B00, 0x12_3456_9800
"""Records of three children: one that succeeds, one that fails, one that is refused."""


def address(va: int) -> str:
    """Instructions that put an address in r4:r5."""
    return f"mov r4, {va & 0xFFFF_FFFF}\nmov r5, {va >> 32}"


def kernel(text: str, warps: int = 1) -> Launch:
    launch = data_launch(text, warps)
    launch.children = CHILDREN
    return launch


def launched(launch: Launch) -> int:
    """Number of launches accepted in an undisturbed run."""
    model = deepcopy(launch)
    return sum(run_block(model, (x, 0, 0)).launched for x in range(launch.grid[0]))


@cocotb.test(**LIMIT)
@cocotb.parametrize(rate=[0, 0.003])
async def random_programs(dut: Any, rate: float) -> None:
    """Random kernels that launch others compute the interpreter's results, whether their blocks are
    stopped or not; each launch happens once."""
    tb = await LaunchingTestbench(dut).start()
    tb.rate = rate
    rounds = Rounds(ROUNDS, 40)
    while rounds.more(tb.stopped_waiting > 0 or not rate, tb.stopped_waiting):
        tb.launched.clear()
        tb.failed.clear()
        tb.stops.clear()
        tb.port.latency = tb.random.choice(((1, 2), (3, 20), (30, 90)))
        tb.port.eager = tb.random.choice((1.0, 0.4))
        tb.latency = tb.random.choice(((1, 2), (30, 300), (5, 2000)))
        launches: dict[int, Launch] = {}
        while len(launches) < 2:
            threads = tb.random.choice(((3, 5, 2), (32, 1, 1), (7, 2, 5), (32, 2, 1)))
            blocks, length = tb.random.randint(1, 2), tb.random.randrange(8, 8 + 8 * ROUNDS)
            one = random_launch(tb.random, threads, blocks, length, children=CHILDREN)
            if fits(one):
                launches[len(launches)] = one
        wanted = {row: launched(one) for row, one in launches.items()}
        await against_model(tb, launches)
        accepted = [
            (row, va)
            for (row, _), several in tb.launched.items()
            for va in several
            if not CHILDREN.answer(va)
        ]
        assert {row: sum(one == row for one, _ in accepted) for row in launches} == wanted
        await tb.until(lambda: not tb.children, "all children are complete")
        tb.launched.clear()
        tb.failed.clear()


@cocotb.test(**LIMIT)
async def every_answer(dut: Any) -> None:
    """The result of `launch` is 0, the refusal, or the number of a check, in all active lanes, and
    nothing else changes; `join` reports a failed child (NEST-11)."""
    tb = await LaunchingTestbench(dut).start()
    lines = ["mul r1, r0, 128\nlea r2, r2, r1, 0"]
    for n, va in enumerate((RECORD, REFUSED, FAILING, REFUSED + 0x800, REFUSED + 0x900)):
        lines += [
            f"{address(va - 0x300)}\nmov r6, {n}\nsltu r7, r0, 29\npush r7",
            f"launch r6, [r4 + 0x300]\npop\nstg [r2 + {8 * n}], r6",
            f"join r6\nstg [r2 + {8 * n + 4}], r6",
        ]
    launch = kernel("\n".join(lines))
    await against_model(tb, {0: launch})
    assert len(tb.launched[KEY]) == 5


@cocotb.test(**LIMIT)
async def join_waits(dut: Any) -> None:
    """`join` returns within a few cycles of the end of the last child, and reads no memory
    meanwhile. Without children it does not wait; nor does a block that ends without `join`."""
    tb = await LaunchingTestbench(dut).start()
    tb.holds, tb.port.latency = True, (1, 2)
    text = f"{address(RECORD)}\nlaunch r6, [r4]\nlaunch r6, [r4]\njoin r7\nstg [r2], r6"
    tb.launch(Task(0, kernel(text)))
    await tb.until(lambda: len(tb.children) == 2, "two launches")
    await tb.steps(300)
    tb.port.read.taken.clear()
    await tb.steps(500)
    assert tb.slots and not tb.port.read.taken
    tb.children.pop()
    await tb.steps(200)
    assert tb.slots
    since = tb.cycle
    tb.children.pop()
    await tb.rest(200)
    (stored, _), *_ = tb.port.write.taken
    assert stored - since <= 2 * (25 + 32 // CONFIG.lanes), stored - since
    tb.tasks.clear()
    for text in ("join r7", f"{address(RECORD)}\nlaunch r6, [r4]"):
        tb.launch(Task(0, kernel(text)))
        await tb.rest(1000)
        tb.tasks.clear()


@cocotb.test(**LIMIT)
@cocotb.parametrize(rate=[0, 0.01])
async def children_left(dut: Any, rate: float) -> None:
    """The special register `children` is 0 before a launch and after a refused one; then 1 until
    the last child is complete, whether the block is stopped meanwhile or not. It stays 0 for a
    block of another kernel beside it."""
    tb = await LaunchingTestbench(dut).start()
    tb.holds, tb.port.latency, tb.rate = True, (1, 2), rate
    look = "s2r r6, children\nstg [r2 + {}], r6"
    lines = [
        "mul r1, r0, 128\nlea r2, r2, r1, 0",
        look.format(0),
        f"{address(REFUSED)}\nlaunch r7, [r4]\n{look.format(4)}",
        f"{address(RECORD)}\nlaunch r7, [r4]\nlaunch r7, [r4]",
        "top: s2r r6, children\nbany r6, top",
        look.format(8),
    ]
    other = "mov r5, 99\nagain: s2r r6, children\nor r7, r7, r6\nsub r5, r5, 1\nbany r5, again"
    kernels = {0: kernel("\n".join(lines)), 1: kernel(f"mov r7, 0\n{other}\nstg [r2], r7")}
    run = cocotb.start_soon(against_model(tb, kernels))
    for left in (2, 1):
        while len(tb.children) != left:
            await ClockCycles(dut.clk, 10)
        await ClockCycles(dut.clk, 1000)
        assert not run.done(), "it read 0"
        tb.children.pop()
    await run
    assert len(tb.launched[KEY]) == 3 and (tb.saved > 0 or not rate)


@cocotb.test(**LIMIT)
async def killed_while_waiting(dut: Any) -> None:
    """A warp of a killed row that waits for children ends, and so does one that waits for an
    answer, once it is given; other warps of the core continue."""
    tb = await LaunchingTestbench(dut).start()
    tb.holds = True
    for lines in ("launch r6, [r4]\njoin r7", "top: launch r6, [r4]\nbra top"):
        tb.launch(Task(0, kernel(f"{address(RECORD)}\n{lines}\nstg [r2], r6")))
        tb.launch(Task(1, kernel(f"{address(RECORD)}\nlaunch r6, [r4]\njoin r7\nstg [r2], r6")))
        await tb.until(lambda: {child.key[0] for child in tb.children} == {0, 1}, "launches")
        await tb.steps(tb.random.randrange(200))
        tb.kill(0)
        await tb.until(lambda: 0 not in {tb.key(one)[0] for one in tb.slots}, "its end", 500)
        await tb.steps(100)
        assert len(tb.slots) == 1 and not tb.faults
        tb.revive()
        tb.children.clear()
        await tb.rest(500)
        tb.tasks.clear()


@cocotb.test(**LIMIT)
async def wrong_operands(dut: Any) -> None:
    """A misaligned or out-of-range record, and registers that do not exist, end the warp with the
    address, and so do a special register behind the last one, and a launch in a kernel with local
    memory; no launch happens. Without an
    active lane nothing happens."""
    tb = await LaunchingTestbench(dut).start()
    far, odd = 1 << 40, RECORD + tb.random.choice((1, 4, 128))
    cases = (
        (f"{address(far)}\nlaunch r6, [r4]", CoreCause.MEMORY_FAULT, far),
        (f"{address(odd)}\nlaunch r6, [r4]", CoreCause.MEMORY_ALIGNMENT, odd),
        (f"{address(far + RECORD)}\nlaunch r6, [r4 - 4]", CoreCause.MEMORY_ALIGNMENT, None),
        (f"{address(RECORD)}\nlaunch r8, [r4]", CoreCause.INSTRUCTION, 0),
        ("join r8", CoreCause.INSTRUCTION, 0),
        ("nop", CoreCause.INSTRUCTION, 0),
        (
            "mov r6, 0\npush r6\nlaunch r6, [r6]\npop\nlaunch r6, [r6 + 1]",
            CoreCause.MEMORY_ALIGNMENT,
            1,
        ),
        (f"{address(RECORD)}\nlaunch r6, [r4]", CoreCause.INSTRUCTION, 0),
    )
    launches = [kernel(text) for text, *_ in cases]
    launches[-1].local = 32
    nop = launches[[text for text, *_ in cases].index("nop")]
    nop.memory.write(nop.program, (16 << 32 | 6 << 8 | 0x20).to_bytes(8, "little"))
    for launch, (_, cause, va) in zip(launches, cases, strict=True):
        tb.launch(Task(0, launch))
        await tb.rest(1000)
        (fault,) = tb.faults
        (failure,) = (warp.failure for warp in run_block(deepcopy(launch), (0, 0, 0)).warps)
        assert failure is not None
        assert (fault.cause, fault.at, fault.va) == (failure[0], failure[1], failure[2] or 0)
        assert fault.cause == cause.value and va in {fault.va, None}
        tb.faults.clear()
        tb.tasks.clear()
    assert not tb.launched
