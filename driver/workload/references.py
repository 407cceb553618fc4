"""Reference models of the supplied kernels, for workload files: memory needs, and results computed
by numpy.

    reference = REFERENCES["saxpy"]
    reference.words(shape, {"N": 512, "ALPHA": 3})          {"X": 512, "Y": 512}
    reference.compute(shape, {"X": x, "Y": y, "N": 512, "ALPHA": 3})    changes y
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from signalbox.driver.kernels.launching import LAUNCH_BOTH, LAUNCH_IN_TURN
from signalbox.driver.kernels.library import (
    CHASE,
    ENDLESS,
    MATMUL,
    REDUCE,
    SAXPY,
    SCAN,
    SPIN,
    VECTOR_ADD,
    Kernel,
)
from signalbox.driver.kernels.timing import TIMING
from signalbox.hw.config import WARP_THREADS

__all__ = ["REFERENCES", "Reference", "Shape"]

Values = Mapping[str, Any]
"""Arguments by name: numbers, and for `compute` arrays of 32-bit words for pointers."""


@dataclass(frozen=True)
class Shape:
    """Sizes of grid and block in x, y, z."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]

    @property
    def blocks(self) -> int:
        """Number of blocks of the grid."""
        return prod(self.grid)

    @property
    def warps(self) -> int:
        """Number of warps of a block."""
        return -(-prod(self.block) // WARP_THREADS)

    @property
    def across(self) -> tuple[int, int]:
        """Number of threads of the grid in x and in y."""
        return self.grid[0] * self.block[0], self.grid[1] * self.block[1]


def _nothing(shape: Shape, values: Values) -> None:
    """A kernel without a result."""


@dataclass(frozen=True)
class Reference:
    """A kernel with a model of its effect on memory.

    Members
    -------
    words : minimum number of 32-bit words at each pointer; for the output, the exact number.
    output : parameter that points to the result; "" if there is none.
    compute : applies the effect of the kernel to the arrays among its arguments, in place.
    dimensions : maximum number of dimensions of grid and block.
    follows : pointer parameter to an array of indices into itself (`data = "permutation"`), or "".
    optional : numbers that default to 0.
    spare : pointers that may be missing, each with the number that must then be 0.
    ends : whether it ends by itself; otherwise it must be cancelled.
    children : parameters that are kernels to launch; the first is required.
    ordered : whether it launches each child only when the previous one is complete.
    apart : whether its result must not overwrite its inputs, because threads read the inputs of
        other threads.
    status : parameter that points to a word for the answer to a refused launch, or "".
    """

    kernel: Kernel
    words: Callable[[Shape, Values], dict[str, int]]
    output: str = ""
    compute: Callable[[Shape, Values], None] = _nothing
    dimensions: int = 1
    follows: str = ""
    optional: tuple[str, ...] = ()
    spare: Mapping[str, str] = field(default_factory=dict)
    ends: bool = True
    children: tuple[str, ...] = ()
    ordered: bool = False
    apart: bool = False
    status: str = ""

    @property
    def pointers(self) -> tuple[str, ...]:
        """Names of the parameters that point to data."""
        others = (*self.children, self.status)
        sizes = self.kernel.parameters.items()
        return tuple(name for name, size in sizes if size == 8 and name not in others)


def _no_memory(shape: Shape, values: Values) -> dict[str, int]:
    return {}


def _vectors(*names: str) -> Callable[[Shape, Values], dict[str, int]]:
    return lambda shape, values: {name: values["N"] for name in names}


def _add(shape: Shape, values: Values) -> None:
    some = slice(min(values["N"], shape.across[0]))
    values["C"][some] = values["A"][some] + values["B"][some]


def _saxpy(shape: Shape, values: Values) -> None:
    some = slice(min(values["N"], shape.across[0]))
    alpha = np.uint32(values["ALPHA"] & 0xFFFF_FFFF)
    values["Y"][some] = alpha * values["X"][some] + values["Y"][some]


def _squares(shape: Shape, values: Values) -> dict[str, int]:
    return {name: values["N"] ** 2 for name in "ABC"}


def _matmul(shape: Shape, values: Values) -> None:
    a, b, c = (values[name][: values["N"] ** 2].reshape(values["N"], -1) for name in "ABC")
    columns, rows = (min(threads, values["N"]) for threads in shape.across)
    c[:rows, :columns] = a[:rows] @ b[:, :columns]


def _reduction(shape: Shape, values: Values) -> dict[str, int]:
    return {"X": values["N"], "SUMS": shape.blocks}


def _reduce(shape: Shape, values: Values) -> None:
    parts = np.zeros(shape.across[0], np.uint32)
    some = min(values["N"], len(parts))
    parts[:some] = values["X"][:some]
    values["SUMS"][: shape.blocks] = parts.reshape(shape.blocks, -1).sum(axis=1, dtype=np.uint32)


def _scans(shape: Shape, values: Values) -> dict[str, int]:
    return dict.fromkeys("XY", shape.across[0])


def _scan(shape: Shape, values: Values) -> None:
    parts = values["X"][: shape.across[0]].reshape(shape.blocks, -1)
    values["Y"][: shape.across[0]] = np.cumsum(parts, axis=1, dtype=np.uint32).reshape(-1)


def _steps(shape: Shape, values: Values) -> dict[str, int]:
    return {"NEXT": shape.block[0], "OUT": shape.block[0]}


def _chase(shape: Shape, values: Values) -> None:
    at = np.arange(shape.block[0])
    for _ in range(values["STEPS"]):
        at = values["NEXT"][at]
    values["OUT"][: len(at)] = at


def _accesses(shape: Shape, values: Values) -> dict[str, int]:
    """Memory up to the last bus beat, of at most 64 bytes, that the last warp accesses."""
    last = (shape.blocks - 1) * values["BLOCK_BYTES"] + (shape.warps - 1) * values["WARP_BYTES"]
    last += max(0, values["ACCESSES"] - 1) * values["STRIDE"]
    return {"BASE": -(-(last + 64) // 4)}


REFERENCES = {
    reference.kernel.name: reference
    for reference in (
        Reference(VECTOR_ADD, _vectors(*"ABC"), "C", _add),
        Reference(SAXPY, _vectors(*"XY"), "Y", _saxpy),
        Reference(MATMUL, _squares, "C", _matmul, dimensions=2, apart=True),
        Reference(REDUCE, _reduction, "SUMS", _reduce, apart=True),
        Reference(SCAN, _scans, "Y", _scan),
        Reference(CHASE, _steps, "OUT", _chase, follows="NEXT", apart=True),
        Reference(SPIN, _no_memory, dimensions=3),
        Reference(ENDLESS, _no_memory, dimensions=3, ends=False),
        *(
            Reference(
                kernel,
                _no_memory,
                optional=("SECOND",),
                children=("FIRST", "SECOND"),
                ordered=kernel is LAUNCH_IN_TURN,
                status="STATUS",
            )
            for kernel in (LAUNCH_BOTH, LAUNCH_IN_TURN)
        ),
        Reference(
            TIMING,
            _accesses,
            dimensions=3,
            optional=("ACCESSES", "STRIDE", "SPREAD", "BLOCK_BYTES", "WARP_BYTES"),
            spare={"BASE": "ACCESSES"},
        ),
    )
}
"""References by kernel name. "timing" is the only kernel for machines with timing cores."""
