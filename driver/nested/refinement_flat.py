"""Adaptive refinement without nested launches: the host reads which cells of a level are rough, and
launches the next level for their quarters."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.refinement import FILL, SCAN, check
from signalbox.driver.nested.workspace import Workspace
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = ["REFINE_LEVEL", "FlatRefinement"]

REFINE_LEVEL = Kernel(
    "refine level",
    f"""
    s2r   r0, ctaid.x
    ldc   r8, [CELLS]
    ldc   r9, [CELLS + 4]
    lea   r8, r8, r0, 2
    ldg   r6, [r8]
    {SCAN}
    ldc   r11, [DIVIDE]
    and   r10, r10, r11
    s2r   r12, ctaid.x
    ldc   r8, [ROUGH]
    ldc   r9, [ROUGH + 4]
    lea   r8, r8, r12, 2
    stg   [r8], r10
    bnone r10, keep
    exit
keep:
    {FILL}
    """,
    {
        "FIELD": 8,
        "LEVELS": 8,
        "CELLS": 8,
        "ROUGH": 8,
        "WIDTH": 4,
        "LOG_SIZE": 4,
        "LEVEL": 4,
        "TOLERANCE": 4,
        "DIVIDE": 4,
    },
    shared_per_thread=8,
)
"""Cells of one level as in REFINE, one warp each; CELLS has their indices. If DIVIDE is 1, ROUGH
becomes 1 for a cell whose words differ by more than TOLERANCE; otherwise it becomes 0, and the
cell's words of LEVELS become LEVEL."""


@dataclass
class FlatRefinement:
    """Refines as `Refinement` does, on any machine with a compute engine. Created by `prepare`.

    Members
    -------
    levels : as in `Refinement`.
    """

    levels: Buffer
    _workspace: Workspace
    _size: int
    _count: int
    _cells: Buffer
    _rough: Buffer
    _args: dict[str, Argument]

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, field: np.ndarray, tolerance: int, levels: int
    ) -> "FlatRefinement":
        """Prepare to refine `field`; see `Refinement.prepare`. Raises as it does."""
        check(field, tolerance, levels)
        size = field.shape[0]
        async with Workspace.prepare(device, stream) as workspace:
            words = await workspace.buffer(np.ascontiguousarray(field, np.uint32))
            result = await workspace.buffer(np.zeros(field.shape, np.uint32))
            most = np.zeros(4 ** (levels - 1), np.uint32)
            cells, rough = await workspace.buffer(most), await workspace.buffer(most)
            args: dict[str, Argument] = {
                "FIELD": words,
                "LEVELS": result,
                "CELLS": cells,
                "ROUGH": rough,
                "WIDTH": size,
                "TOLERANCE": tolerance,
            }
            return cls(result, workspace, size, levels, cells, rough, args)

    async def run(self) -> None:
        """Refine. Raises as `Stream.launch` and `Task.synchronize`."""
        cells = np.zeros(1, np.uint32)
        for level in range(self._count):
            self._cells.write(cells)
            divided = cells[await self._launch(level, len(cells))]
            if not len(divided):
                return
            half = self._size >> level + 1
            corners = np.array([0, half, half * self._size, half * self._size + half], np.uint32)
            cells = np.add.outer(divided, corners).ravel()

    async def _launch(self, level: int, count: int) -> np.ndarray:
        """Launch a level of `count` cells. Returns for each cell whether to divide it."""
        fields = {
            "LOG_SIZE": self._size.bit_length() - 1 - level,
            "LEVEL": level,
            "DIVIDE": int(level + 1 < self._count),
        }
        stream = self._workspace.stream
        task = await stream.launch(REFINE_LEVEL, count, 32, {**self._args, **fields})
        await task.synchronize()
        return self._rough.read(np.uint32, count) != 0

    async def free(self) -> None:
        """Free its memory, including `levels`, once nothing runs."""
        await self._workspace.free()
