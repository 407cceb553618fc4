"""Launches of `tb.benchmarks.nested`."""

from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np

from signalbox.driver.kernels.assembler import assemble, registers
from signalbox.tb.benchmarks.nested import COUNTS, LATENCIES, key
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

ASID = 1
_PARENT, _CHILD, _ARGUMENTS, _RESULTS = 0x1_0000_0000, 0x1_1000_0000, 0x2_0000_0000, 0x3_0000_0000

_LAUNCHES = assemble("""
    ldc   r2, [0]           # first record; the others follow
    ldc   r3, [4]
    ldc   r4, [16]          # children
    ldc   r8, [8]           # results
    ldc   r9, [12]
    mov   r12, 0
    mov   r13, 1
    mov   r14, 0            # the clock is read from the cache line of `launch`
    s2r   r0, clock
next:
    launch r6, [r2]
    or    r12, r12, r6
    lea   r2, r2, r13, 8
    sub   r4, r4, 1
    bany  r4, next
    s2r   r1, clock
    join  r6
    s2r   r7, clock
    stg   [r8], r0
    stg   [r8 + 4], r1
    stg   [r8 + 8], r7
    stg   [r8 + 12], r12
    exit
""")

_CLOCK = assemble("""
    s2r   r0, clock
    ldc   r8, [8]
    ldc   r9, [12]
    stg   [r8], r0
    exit
""")


@dataclass
class Clocks:
    """A kernel of one thread. Without `children`, it stores the time at which it began. With
    `children`, it launches them, and stores the answers and three times: of the launches, of the
    last answer, and of the completion of all children."""

    number: int
    children: tuple[Launch, ...] = ()

    @property
    def results(self) -> dict[int, np.ndarray]:
        return {}

    @property
    def stored(self) -> int:
        """Address of its results."""
        return _RESULTS + 16 * self.number

    @property
    def _arguments(self) -> int:
        return _ARGUMENTS + 64 * self.number

    def memory(self) -> dict[int, bytes]:
        record = self.children[0].page << 8 if self.children else 0
        words = np.array([record, self.stored, len(self.children), 0], np.uint64)
        return {_PARENT: _LAUNCHES, _CHILD: _CLOCK, self._arguments: words.tobytes()}

    def launch(self) -> dict[str, Any]:
        program = _LAUNCHES if self.children else _CLOCK
        return {
            "grid": (1, 1, 1),
            "block": (1, 1, 1),
            "program": _PARENT if self.children else _CHILD,
            "registers": registers(program),
            "shared": 0,
            "barrier": False,
            "constants": self._arguments,
            "constant_bytes": 32,
        }


@cocotb.test()
@cocotb.parametrize(count=COUNTS, latency=LATENCIES)
async def launches(dut: Any, count: int, latency: int) -> None:
    """A warp launches children and waits for them. The second run is measured; the first one fills
    the caches."""
    tb = ComputeTestbench(dut, latency, pace=1.0)
    tb.context(0, range(CONFIG.asids), nesting=2)
    await tb.start()
    children = [Launch(n, Clocks(n), ASID) for n in range(count)]
    for child in children:
        tb.know(child)
    for number in (count, count + 1):
        parent = Launch(number, Clocks(number, tuple(children)), ASID, priority=5)
        for child in children:
            child.over = None
        tb.launch(parent)
        await tb.finish()

    def words(job: Clocks, number: int) -> list[int]:
        content = tb.contents.read((ASID, 0), job.stored, 4 * number)
        return np.frombuffer(content, np.uint32).tolist()

    start, answer, joined, answers = words(parent.job, 4)
    (began,) = words(children[-1].job, 1)
    assert answers == 0 and start < began < joined
    values = {"answer": answer - start, "begins": began - start, "joined": joined - start}
    report(**{key(step, count, latency): value for step, value in values.items()})
