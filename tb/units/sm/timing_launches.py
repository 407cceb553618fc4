"""Kernels of timing cores, and their effects on memory."""

import itertools
import struct
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from random import Random

from signalbox.tb.models.isa import Launch, Memory
from signalbox.tb.models.timing import Timing
from signalbox.tb.units.sm.core_testbench import CONFIG, WIDTH, CoreTestbench

__all__ = [
    "DATA",
    "PAGE",
    "RECORD",
    "accesses",
    "computed",
    "launch",
    "made",
    "random_launch",
    "random_timing",
    "timing_of",
    "warps_of",
]

RECORD, DATA = 0x1_2345_6FE0, 0x10_0000_0000
"""The record is at the end of its page."""
PAGE = 4096


def launch(
    timing: Timing,
    grid: tuple[int, int, int] = (1, 1, 1),
    warps: int = 1,
    pages: int = 1,
    *,
    registers: int = 4,
    shared: int = 0,
    barrier: bool = False,
) -> Launch:
    """A task with `pages` of data."""
    memory = Memory()
    memory.map(RECORD, timing.record())
    memory.map(DATA, bytes(PAGE * pages))
    threads = (32 * warps - 3, 1, 1)
    return Launch(memory, 0, RECORD, 32, grid, threads, registers, shared, barrier)


def timing_of(task: Launch) -> Timing:
    """Contents of its record."""
    return Timing(*struct.unpack("<HHIQIIII", task.memory.read(task.constants, 32)))


def warps_of(task: Launch) -> list[tuple[tuple[int, int, int], int, int]]:
    """Position and number of the block, and index in it, of each warp of a grid."""
    x, y, z = task.grid
    places = [(a, b, c) for c, b, a in itertools.product(range(z), range(y), range(x))]
    return [(at, n, warp) for n, at in enumerate(places) for warp in range(task.warps)]


def accesses(task: Launch, timing: Timing) -> Counter[int]:
    """Number of accesses of each beat of memory."""
    return Counter(
        timing.at(number, warp, n) // WIDTH * WIDTH
        for _, number, warp in warps_of(task)
        for n in range(timing.accesses)
    )


def made(tb: CoreTestbench, row: int) -> tuple[Counter[int], Counter[int]]:
    """Loads and stores of a row, except those of its record and of states."""
    loads, stores = (
        Counter(
            request["va"]
            for _, request in sink.taken
            if request["row"] == row and not request.get("physical")
        )
        for sink in (tb.port.read, tb.port.write)
    )
    del loads[RECORD]
    return loads, stores


def computed(task: Launch) -> Memory:
    """Memory after all blocks."""
    memory, timing = deepcopy(task.memory), timing_of(task)
    for _, number, warp in warps_of(task):
        for n in range(timing.accesses if timing.store else 0):
            va = timing.at(number, warp, n) // WIDTH * WIDTH
            memory.write(va, timing.pattern(number, warp, n) * (WIDTH // 8))
    return memory


def random_timing(numbers: Random, task_warps: int) -> Timing:
    """Random timing, in which no two warps write the same beat."""
    stride = numbers.choice((WIDTH, 3 * WIDTH))
    count = numbers.choice((0, 1, 2, 5))
    own = stride * max(count, 1)
    return Timing(
        accesses=count,
        store=numbers.randrange(2),
        stride=stride,
        base=DATA + numbers.randrange(4) * WIDTH,
        cycles=numbers.choice((0, 1, 20)),
        spread=numbers.choice((0, 7, 31)),
        warp_bytes=own,
        block_bytes=own * task_warps,
    )


def random_launch(
    numbers: Random, blocks: int, warps: int = CONFIG.sm_warps, cycles: int = 300
) -> Launch:
    """A task of blocks with at most `warps` warps, with random timing and needs, whose warps
    compute for up to `cycles` cycles between accesses. A block fits into the SM."""
    warps = numbers.randint(1, warps)
    timing = random_timing(numbers, warps)
    if numbers.random() < 0.5:
        timing = replace(timing, cycles=cycles)
    return launch(
        timing,
        (blocks, 1, 1),
        warps,
        2 + blocks * timing.block_bytes // PAGE,
        registers=numbers.randint(1, min(24, 4 * (CONFIG.register_units // warps))),
        shared=numbers.choice((0, 0, 100, 1024, 2048)),
        barrier=numbers.random() < 0.3,
    )
