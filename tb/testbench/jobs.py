"""Small launches of the supplied kernels, with results computed by numpy."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from signalbox.driver.kernels.library import (
    CHASE,
    MATMUL,
    REDUCE,
    SAXPY,
    SCAN,
    SPIN,
    VECTOR_ADD,
    Kernel,
)

__all__ = ["JOBS", "PROGRAM", "Job", "vectors"]

PROGRAM, ARGUMENTS = 0x1_0000_0000, 0x1_2345_6780
A, B, C = 0x10_0000_1F80, 0x2000_0000, 0x1_FFFF_FFF0_0010


@dataclass
class Job:
    """One launch.

    Members
    -------
    grid, block : blocks of the grid, threads of a block, in x, y, z.
    values : values of the kernel's parameters.
    arrays : words in memory before the launch, by address.
    results : words in memory after it, by address.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    values: dict[str, int]
    arrays: dict[int, np.ndarray] = field(default_factory=dict)
    results: dict[int, np.ndarray] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kernel.name} {self.block}".replace(" ", "-")

    @property
    def shared(self) -> int:
        """Bytes of shared memory per block, in whole units."""
        threads = prod(self.block)
        return -(-threads * self.kernel.shared_per_thread // 1024) * 1024

    def memory(self) -> dict[int, bytes]:
        """Memory contents before the launch, by address: program, arguments and arrays, and zeros
        in place of results."""
        content = {va: words.astype(np.uint32).tobytes() for va, words in self.arrays.items()}
        empty = {va: bytes(words.nbytes) for va, words in self.results.items() if va not in content}
        arguments = self.kernel.arguments(**self.values)
        return {PROGRAM: self.kernel.program, ARGUMENTS: arguments, **content, **empty}

    def launch(self) -> dict[str, Any]:
        """The launch, as arguments of `tb.models.isa.Launch` without `memory`."""
        return {
            "program": PROGRAM,
            "constants": ARGUMENTS,
            "constant_bytes": len(self.kernel.arguments(**self.values)),
            "grid": self.grid,
            "block": self.block,
            "registers": self.kernel.registers,
            "shared": self.shared,
            "barrier": self.kernel.barrier,
        }


def _words(numbers: np.random.Generator, *shape: int) -> np.ndarray:
    return numbers.integers(0, 1 << 32, shape, np.uint32)


def vectors(count: int, grid: int, block: int) -> list[Job]:
    """Vector addition, saxpy and sums per block, on `count` words, with `grid` blocks of `block`
    threads."""
    numbers = np.random.default_rng(count)
    a, b = _words(numbers, count), _words(numbers, count)
    size, shape = (grid, 1, 1), (block, 1, 1)
    add = Job(VECTOR_ADD, size, shape, {"A": A, "B": B, "C": C, "N": count})
    add.arrays, add.results = {A: a, B: b}, {C: a + b}
    saxpy = Job(SAXPY, size, shape, {"X": A, "Y": C, "N": count, "ALPHA": 12345})
    saxpy.arrays, saxpy.results = {A: a, C: b}, {C: np.uint32(12345) * a + b}
    parts = [a[at : at + block].sum(dtype=np.uint32) for at in range(0, grid * block, block)]
    reduce = Job(REDUCE, size, shape, {"X": A, "SUMS": B, "N": count})
    reduce.arrays, reduce.results = {A: a}, {B: np.array(parts, np.uint32)}
    return [add, saxpy, reduce]


def _scan(grid: int, block: int) -> Job:
    x = _words(np.random.default_rng(block), grid, block)
    job = Job(SCAN, (grid, 1, 1), (block, 1, 1), {"X": A, "Y": B})
    job.arrays, job.results = {A: x}, {B: np.cumsum(x, axis=1, dtype=np.uint32)}
    return job


def _matmul(n: int, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Job:
    numbers = np.random.default_rng(n)
    a, b = _words(numbers, n, n), _words(numbers, n, n)
    job = Job(MATMUL, grid, block, {"A": A, "B": B, "C": C, "N": n})
    job.arrays, job.results = {A: a, B: b}, {C: a @ b}
    return job


def _chase(count: int, steps: int, threads: int) -> Job:
    order = np.random.default_rng(count).permutation(count).astype(np.uint32)
    end = np.arange(threads)
    for _ in range(steps):
        end = order[end]
    job = Job(CHASE, (1, 1, 1), (threads, 1, 1), {"NEXT": A, "OUT": B, "STEPS": steps})
    job.arrays, job.results = {A: order}, {B: end.astype(np.uint32)}
    return job


JOBS = (
    *vectors(150, 3, 50),
    _scan(2, 45),
    _matmul(7, (2, 2, 1), (4, 5, 1)),
    _chase(64, 5, 40),
    Job(SPIN, (2, 1, 1), (40, 1, 1), {"CYCLES": 50}),
)
