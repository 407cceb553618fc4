"""Samples of sweeps for Icarus, which is far slower than Verilator."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import cocotb

__all__ = ["fewer", "goals", "some"]

T = TypeVar("T")


def some(values: Sequence[T], every: int) -> Sequence[T]:
    """All values on Verilator. On Icarus one in `every`, starting at an index that the seed
    chooses."""
    if _fast():
        return values
    numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    return values[numbers.randrange(every) :: every]


def fewer(count: int, every: int) -> int:
    """`count` on Verilator; on Icarus `count` / `every`, rounded up."""
    return count if _fast() else -(-count // every)


def goals(count: int) -> int:
    """Number of times that a random test must meet each of its goals: `count` on Verilator, 0 on
    Icarus. Goals check the stimulus, not the design, so the check on Verilator suffices."""
    return count if _fast() else 0


def _fast() -> bool:
    return cocotb.SIM_NAME.startswith("Verilator")
