"""Adaptive refinement without nested launches: the host reads which cells of a level are rough, and
launches the next level for their quarters."""

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.flat import Flat, FlatLaunch
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
"""Examines the cells of one level, one warp each. CELLS has the index of the first word of each
cell, ROUGH one word for each; other parameters are as for `refinement.REFINE`. If DIVIDE is 1 and
the words of a cell differ by more than TOLERANCE, its word of ROUGH becomes 1. Otherwise its word
becomes 0, and the cell's words in LEVELS become LEVEL."""


class FlatRefinement(Flat):
    """Refines as `Refinement` does, on any machine with a compute engine. Created by `prepare`.

    Members
    -------
    levels : as in `Refinement`.
    """

    def __init__(
        self, workspace: Workspace, count: int, size: int, args: dict[str, Buffer], tolerance: int
    ) -> None:
        super().__init__(workspace)
        self.levels, self._cells, self._rough = args["LEVELS"], args["CELLS"], args["ROUGH"]
        self._count, self._size = count, size
        self._args: dict[str, Argument] = {**args, "WIDTH": size, "TOLERANCE": tolerance}
        self._level = count
        self._now = np.zeros(0, np.uint32)

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, field: np.ndarray, tolerance: int, levels: int
    ) -> "FlatRefinement":
        """Prepare to refine `field`; see `Refinement.prepare`. Raises as it does."""
        check(field, tolerance, levels)
        async with Workspace.prepare(device, stream) as workspace:
            most = np.zeros(4 ** (levels - 1), np.uint32)
            args = {
                "FIELD": await workspace.buffer(np.ascontiguousarray(field, np.uint32)),
                "LEVELS": await workspace.buffer(np.zeros(field.shape, np.uint32)),
                "CELLS": await workspace.buffer(most),
                "ROUGH": await workspace.buffer(most),
            }
            return cls(workspace, levels, field.shape[0], args, tolerance)

    def start(self) -> None:
        """Begin a refinement."""
        self._level, self._now = 0, np.zeros(1, np.uint32)

    async def step(self, *, priority: int | None = None) -> list[FlatLaunch]:
        """Launch the next level: the quarters of all rough cells of the last one. Returns none if
        there are no rough cells. Raises as `Stream.launch`."""
        level, cells = self._level, self._now if self._level == 0 else self._quarters()
        if not len(cells):
            return []
        self._cells.write(cells)
        self._level, self._now = level + 1, cells
        fields = {
            "LOG_SIZE": self._size.bit_length() - 1 - level,
            "LEVEL": level,
            "DIVIDE": int(level + 1 < self._count),
        }
        args = {**self._args, **fields}
        return [await self.launch(REFINE_LEVEL, len(cells), 32, args, priority=priority)]

    def _quarters(self) -> np.ndarray:
        """Indices of the quarters of all rough cells of the last level."""
        rough = self._rough.read(np.uint32, len(self._now)) != 0
        half = self._size >> self._level
        corners = np.array([0, half, half * self._size, half * self._size + half], np.uint32)
        return np.add.outer(self._now[rough], corners).ravel()

    async def run(self) -> None:
        """Refine. Raises as `Stream.launch` and `Task.synchronize`."""
        self.start()
        while launched := await self.step():
            await launched[-1].task.synchronize()
