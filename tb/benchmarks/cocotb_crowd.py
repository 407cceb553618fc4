"""Launches of `tb.benchmarks.crowd`."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble, registers
from signalbox.tb.benchmarks.crowd import CHILDREN, blocks, children, key
from signalbox.tb.benchmarks.nested import LATENCIES
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

ASID = 1
_PARENT, _CHILD, _ARGUMENTS, _RESULTS = 0x1_0000_0000, 0x1_1000_0000, 0x2_0000_0000, 0x3_0000_0000

WARPS = CONFIG.sm_warps // CONFIG.sm_blocks
"""Warps of a parent's block: the blocks fill an SM."""

_LAUNCHES = assemble("""
    s2r    r0, lane
    seq    r0, r0, 0
    push   r0                   # one lane
    s2r    r0, ctaid.x
    ldc    r1, [20]             # warps of a block
    s2r    r2, warp
    mad    r0, r0, r1, r2       # index of the warp
    ldc    r6, [8]              # results
    ldc    r7, [12]
    lea    r6, r6, r0, 4
    ldc    r4, [16]             # children
    mul    r0, r0, r4
    ldc    r2, [0]              # first record of all; the others follow
    ldc    r3, [4]
    lea    r2, r2, r0, 8
    mov    r5, 0
    s2r    r0, clock
next:
    launch r1, [r2]
    or     r5, r5, r1
    lea    r2, r2, 1, 8
    sub    r4, r4, 1
    bany   r4, next
    s2r    r4, clock
    join   r1
    or     r5, r5, r1
    s2r    r1, clock
    stg    [r6], r0
    stg    [r6 + 4], r4
    stg    [r6 + 8], r1
    stg    [r6 + 12], r5
    exit
""")

_CLOCK = assemble("""
    s2r    r0, clock
    ldc    r2, [8]
    ldc    r3, [12]
    stg    [r2], r0
    exit
""")


@dataclass
class Crowd:
    """A kernel. Each of its warps launches `CHILDREN` of the kernels `below`, in order. Then it
    stores three times and an OR of all answers. The times are those of its launches, of the last
    answer, and of the completion of all children of its block. Without `below`, the kernel is one
    thread that stores the time at which it began."""

    number: int
    below: tuple[Launch, ...] = ()

    @property
    def results(self) -> dict[int, np.ndarray]:
        return {}

    @property
    def stored(self) -> int:
        """Address of its results, 16 bytes per warp."""
        return _RESULTS + 16 * self.number

    @property
    def _arguments(self) -> int:
        return _ARGUMENTS + 64 * self.number

    def memory(self) -> dict[int, bytes]:
        record = self.below[0].page << 8 if self.below else 0
        words = np.array([record, self.stored, CHILDREN | WARPS << 32, 0], np.uint64)
        return {_PARENT: _LAUNCHES, _CHILD: _CLOCK, self._arguments: words.tobytes()}

    def launch(self) -> dict[str, Any]:
        program = _LAUNCHES if self.below else _CLOCK
        return {
            "grid": (blocks(CONFIG.sms) if self.below else 1, 1, 1),
            "block": (32 * WARPS if self.below else 1, 1, 1),
            "program": _PARENT if self.below else _CHILD,
            "registers": registers(program),
            "shared": 0,
            "barrier": False,
            "constants": self._arguments,
            "constant_bytes": 32,
        }


@cocotb.test()
@cocotb.parametrize(latency=LATENCIES)
async def all_warps(dut: Any, latency: int) -> None:
    """All warps of all SMs launch children and wait for them. The second run is measured; the first
    one fills the caches."""
    tb = ComputeTestbench(dut, latency, pace=1.0)
    tb.timeout = 500_000
    tb.context(0, range(CONFIG.asids), nesting=2)
    await tb.start()
    count, warps = children(CONFIG.sms), WARPS * blocks(CONFIG.sms)
    below = [Launch(n, Crowd(n), ASID) for n in range(count)]
    for child in below:
        tb.know(child)
    for number in (count, count + 1):
        parent = Launch(number, Crowd(number, tuple(below)), ASID, priority=5)
        for child in below:
            child.over = None
        tb.launch(parent)
        await tb.finish()
    stored = tb.contents.read((ASID, 0), parent.job.stored, 16 * warps)
    start, answer, joined, wrong = np.frombuffer(stored, np.uint32).reshape(warps, 4).T
    stored = tb.contents.read((ASID, 0), below[0].job.stored, 16 * count)
    began = np.frombuffer(stored, np.uint32)[::4]
    first = int(start.min())
    assert not wrong.any() and (start < answer).all() and (answer < joined).all()
    assert (began > first).all() and began.max() < joined.max()
    values = {"answer": answer, "begins": began, "joined": joined}
    report(**{key(step, CONFIG.sms, latency): int(v.max()) - first for step, v in values.items()})
