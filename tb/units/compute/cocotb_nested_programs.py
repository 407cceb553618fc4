"""Programs of the supplied core that launch kernels, on the compute engine (NEST-10 … NEST-13)."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble, registers
from signalbox.hw.qmd import SkedCheck
from signalbox.hw.records.launch import Refusal
from signalbox.tb.models.tasks import record_of
from signalbox.tb.units.compute.cocotb_nested import DEPTH, NestedTestbench
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG

PROGRAM, ARGUMENTS, RESULTS = 0x1_0000_0000, 0x2_0000_0000, 0x3_0000_0000

SUM = assemble("""
    ldc   r2, [0]           # children
    ldc   r4, [4]           # record of the first one
    ldc   r5, [8]
    ldc   r7, [12]          # own value
    ldc   r10, [16]         # results of the first child
    ldc   r11, [20]
    mov   r3, r2
    mov   r9, 0             # refusals
    mov   r8, 1
launches:
    bnone r3, join
    launch r6, [r4]
    add   r9, r9, r6
    lea   r4, r4, r8, 8
    sub   r3, r3, 1
    bra   launches
join:
    join  r12               # a descendant has failed
sums:
    bnone r2, done
    ldg   r6, [r10]
    add   r7, r7, r6
    lea   r10, r10, r8, 4
    sub   r2, r2, 1
    bra   sums
done:
    ldc   r10, [24]         # own results
    ldc   r11, [28]
    stg   [r10], r7
    stg   [r10 + 4], r9
    stg   [r10 + 8], r12
    exit
""")
"""Launches children, waits for them, and adds their results to its own value. Results, in 16 bytes:
the sum, the sum of the answers to its launches, whether a child has failed."""


@dataclass
class Sum:
    """A kernel of one warp that runs `SUM`.

    Members
    -------
    unseen : child whose launch is refused.
    refusals : sum of the answers to its launches.
    failed : one of its descendants has failed.
    """

    number: int
    children: tuple["Launch", ...]
    value: int
    unseen: Launch | None = None
    refusals: int = 0
    failed: bool = False

    @property
    def total(self) -> int:
        """Sum of the values of its tree."""
        jobs = [child.job for child in self.children if child is not self.unseen]
        return self.value + sum(job.total for job in jobs if isinstance(job, Sum))

    @property
    def results(self) -> dict[int, np.ndarray]:
        words = [self.total & 0xFFFF_FFFF, self.refusals, self.failed]
        return {RESULTS + 16 * self.number: np.array(words, np.uint32)}

    def memory(self) -> dict[int, bytes]:
        first = self.children[0] if self.children else None
        pair = [first.page << 8 & 0xFFFF_FFFF, first.page >> 24] if first else [0, 0]
        theirs = RESULTS + 16 * (first.number if first else 0)
        words = [len(self.children), *pair, self.value]
        for va in (theirs, RESULTS + 16 * self.number):
            words += [va & 0xFFFF_FFFF, va >> 32]
        return {
            PROGRAM: SUM,
            self.arguments: np.array(words, np.uint32).tobytes(),
            RESULTS + 16 * self.number: bytes(16),
        }

    @property
    def arguments(self) -> int:
        return ARGUMENTS + 64 * self.number

    def launch(self) -> dict[str, Any]:
        return {
            "grid": (1, 1, 1),
            "block": (32, 1, 1),
            "program": PROGRAM,
            "registers": registers(SUM),
            "shared": 0,
            "barrier": False,
            "constants": self.arguments,
            "constant_bytes": 32,
        }


class SumTestbench(NestedTestbench):
    """Kernels are those of `SUM`."""

    def work(self, number: int, children: tuple[Launch, ...], **how: Any) -> Sum:
        return Sum(number, children, self.random.getrandbits(32), **how)

    def refuse(self, parent: Launch, child: Launch, answer: int) -> None:
        """The launch of `child` by `parent` will be refused."""
        assert isinstance(parent.job, Sum)
        child.refused, parent.job.unseen, parent.job.refusals = True, child, answer


def chain(tb: SumTestbench, length: int, asid: int) -> list[Launch]:
    """Kernels each of which launches the one before."""
    line = [tb.kernel(asid=asid)]
    while len(line) < length:
        line.append(tb.kernel(line[-1], asid=asid))
    return line


@cocotb.test()
async def sums(dut: Any) -> None:
    """Each parent reads what its children have stored (NEST-13), down to the deepest level (example
    4)."""
    tb = await SumTestbench(dut).start()
    line = chain(tb, DEPTH, asid=3)
    tb.launch(line[-1])
    await tb.finish()
    assert tb.order == [one.number for one in line]
    for one in line:
        tb.check(one)


@cocotb.test()
async def too_deep(dut: Any) -> None:
    """The launch by a kernel at the limit does not happen: its warp reads the error code, goes on,
    and nothing else is disturbed (NEST-11, example 5)."""
    tb = await SumTestbench(dut).start()
    child, *line = chain(tb, DEPTH + 1, asid=3)
    tb.refuse(line[0], child, Refusal.DEPTH.value)
    tb.launch(line[-1])
    await tb.finish()
    assert tb.order == [one.number for one in line]
    for one in line:
        tb.check(one)


@cocotb.test()
async def bad_record(dut: Any) -> None:
    """A record that fails a check is refused with its number; the other children run."""
    tb = await SumTestbench(dut).start()
    children = [tb.kernel(asid=3) for _ in range(3)]
    parent, bad = tb.kernel(*children, asid=3), children[1]
    check = SkedCheck.THREAD_DIMENSION_ZERO
    tb.refuse(parent, bad, Refusal.CHECK.value | check.value << 8)
    record = record_of(bad.job.launch(), block_x=0)
    tb.contents.write((3, 0), bad.page << 8, record.to_bytes(256, "little"))
    tb.launch(parent)
    await tb.finish()
    for one in (children[0], children[2], parent):
        tb.check(one)


@cocotb.test()
@cocotb.parametrize(turn=range(3))
async def random_trees(dut: Any, turn: int) -> None:
    """Random trees of kernels, two at a time, beside kernels of the host: all sums are right."""
    tb = SumTestbench(dut)
    tb.random.seed(tb.random.random() + turn)
    await tb.start()
    rng, roots = tb.random, []

    def grow(asid: int, depth: int) -> Launch:
        children = []
        if depth < 3 and rng.random() < 0.5:
            children = [grow(asid, depth + 1)]
        elif depth < 3:
            children = [tb.kernel(asid=asid) for _ in range(rng.randrange(4))]
        return tb.kernel(*children, asid=asid, priority=rng.choice((0, 10, 63)))

    for n in range(12):
        root = grow(1 + n % (CONFIG.asids - 1), 1)
        roots.append(root)
        tb.launch(root)
        await tb.steps(rng.choice((0, 100, 600)))
        if n % 2:
            await tb.until(lambda: all(one.over is not None for one in roots), "trees are over")
    await tb.finish()
    tb.check_order()
    for one in tb.tasks.values():
        tb.check(one)
