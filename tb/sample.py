"""Part of a sweep for Icarus, which is far slower than Verilator."""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

import cocotb

__all__ = ["fewer", "some"]

T = TypeVar("T")


def some(values: Sequence[T], every: int) -> Sequence[T]:
    """All of them; in Icarus one of `every`, from any of the first on: the seed says which."""
    if _fast():
        return values
    numbers = random.Random(int(os.environ["COCOTB_RANDOM_SEED"]))
    return values[numbers.randrange(every) :: every]


def fewer(count: int, every: int) -> int:
    """`count`; in Icarus one of `every`, rounded up."""
    return count if _fast() else -(-count // every)


def _fast() -> bool:
    return cocotb.SIM_NAME.startswith("Verilator")
