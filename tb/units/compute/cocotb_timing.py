"""The compute engine with timing cores: large grids of several address spaces."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import cocotb
import numpy as np

from signalbox.hw.errors import Refusal
from signalbox.hw.records.memory import MemoryStatus
from signalbox.tb.models.timing import Timing
from signalbox.tb.testbench.contents import Failing
from signalbox.tb.units.compute.launch import Launch
from signalbox.tb.units.compute.testbench import CONFIG, ComputeTestbench

RECORD, DATA = 0x1_2345_6780, 0x10_0000_0000


@dataclass
class Stores:
    """A grid whose warps write `count` private beats each, and compute for `cycles` to `cycles` +
    31 cycles before the first beat and after each. Blocks have `shared` bytes of shared memory."""

    grid: tuple[int, int, int]
    warps: int
    count: int
    cycles: int
    shared: int = 0

    @cached_property
    def timing(self) -> Timing:
        width = CONFIG.beat_bytes
        own = self.count * width
        return Timing(self.count, 1, width, DATA, self.cycles, 31, self.warps * own, own)

    @cached_property
    def results(self) -> dict[int, np.ndarray]:
        blocks = range(prod(self.grid))
        places = product(blocks, range(self.warps), range(self.count))
        content = b"".join(Timing.pattern(*at) * (CONFIG.beat_bytes // 8) for at in places)
        return {DATA: np.frombuffer(content, np.uint32)}

    def memory(self) -> dict[int, bytes]:
        return {RECORD: self.timing.record()}

    def launch(self) -> dict[str, Any]:
        return {
            "program": 0,
            "constants": RECORD,
            "constant_bytes": 32,
            "grid": self.grid,
            "block": (32 * self.warps, 1, 1),
            "registers": 8,
            "shared": self.shared,
            "barrier": False,
        }


def once(tb: ComputeTestbench, tasks: list[Launch]) -> None:
    """Check that all results are present and each beat was written once, apart from states of
    blocks: no block is lost or ran twice."""
    for task in tasks:
        tb.check(task)
    bursts = [one for server in tb.sm_writes for one in server.bursts if not one.space[1]]
    writes = Counter((one.space, one.va) for one in bursts)
    assert set(writes.values()) == {1}
    assert len(writes) == sum(task.job.results[DATA].nbytes for task in tasks) // CONFIG.beat_bytes


@cocotb.test()
async def every_block_once(dut: Any) -> None:
    """With tasks of several spaces, contexts and priorities, more than slots, some are evicted and
    continue, and every block runs once (ASID-25, ASID-27)."""
    tb = await ComputeTestbench(dut, slice_cycles=1500).start()
    grids = ((17, 1, 1), (3, 4, 2), (1, 9, 1), (2, 1, 7))
    tasks = [
        Launch(n, Stores(grids[n % 4], 1 + n % 3, n % 2 + 1, 12 * n), n, n % 5, context=n % 2)
        for n in range(10)
    ]
    for task in tasks[:7]:
        tb.launch(task)
    await tb.steps(600)
    for task in tasks[7:]:
        task.priority = 20
        tb.launch(task)
    await tb.finish()
    assert not tb.faults
    once(tb, tasks)
    evicted = [task.number for task in tasks if tb.kept(task)]
    print(f"{len(tasks)} tasks in {tb.cycle} cycles, evicted: {evicted}")
    assert evicted


@cocotb.test()
async def both_sms_work(dut: Any) -> None:
    """A task of many blocks takes about the time that its warps compute on all hardware warps."""
    tb = await ComputeTestbench(dut).start()
    task = Launch(0, Stores((48, 1, 1), 2, 1, 250), asid=3)
    tb.launch(task)
    await tb.finish()
    once(tb, [task])
    job = task.job
    assert isinstance(job, Stores)
    work = sum(2 * job.timing.computes(n, warp) for n in range(48) for warp in range(2))
    ideal = work / (CONFIG.sms * CONFIG.sm_warps)
    assert task.over is not None and task.accepted is not None
    print(f"{task.over - task.accepted} cycles, at least {ideal:.0f}")
    assert ideal < task.over - task.accepted < 1.4 * ideal + 400


@cocotb.test()
async def one_record_is_missing(dut: Any) -> None:
    """A task with a missing record fails; others are not affected (ASID-5)."""
    tb = await ComputeTestbench(dut).start()
    record = range(RECORD, RECORD + 32)
    tb.contents.failing = [Failing((5, 0), record, MemoryStatus.FAULT, write=False)]
    tasks = [Launch(n, Stores((9, 1, 1), 2, 2, 50), asid=4 + 2 * n) for n in range(3)]
    victim = Launch(7, Stores((9, 1, 1), 2, 2, 50), asid=5)
    for task in (*tasks, victim):
        tb.launch(task)
    await tb.finish()
    assert victim.verdict is Refusal.KERNEL and tb.faults
    once(tb, tasks)
