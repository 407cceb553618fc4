"""The supplied core against the interpreter of its instruction set (ASID-1, ASID-27)."""

from collections import Counter
from copy import deepcopy

import cocotb
import numpy as np

from tb.models.isa import Block, Launch, Memory, run_block
from tb.sm.corebench import CONFIG, WIDTH, Bench, Task
from tb.sm.jobs import JOBS, Job

LIMIT = {"timeout_time": 20, "timeout_unit": "ms"}


def job_memory(job: Job) -> Memory:
    memory = Memory()
    for va, content in job.memory().items():
        memory.map(va, content)
    return memory


def fits(launch: Launch) -> bool:
    """Whether the core can hold a block, if its warps wait for each other."""
    units = -(-launch.registers // 4)
    warps = launch.warps if launch.barrier else 1
    return (
        warps <= CONFIG.sm_warps
        and warps * units <= CONFIG.register_units
        and launch.shared <= CONFIG.sm_shared
    )


@cocotb.test(**LIMIT)
async def kernels(dut):
    """Each supplied kernel, several at once, each in a row of its own."""
    bench = Bench(dut)
    await bench.start()
    jobs = [job for job in JOBS if fits(Launch(Memory(), **job.launch()))]
    assert len(jobs) >= 3
    for first in range(0, len(jobs), 3):
        several = dict(enumerate(jobs[first : first + 3]))
        for row, job in several.items():
            bench.launch(Task(row, Launch(job_memory(job), **job.launch())))
        await bench.run()
        assert not bench.faults
        for row, job in several.items():
            for va, expected in job.results.items():
                words = np.frombuffer(bench.memories[row].read(va, expected.nbytes), np.uint32)
                assert np.array_equal(words, expected.ravel()), job.kernel.name
