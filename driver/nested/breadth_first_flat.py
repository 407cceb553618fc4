"""Breadth-first search without nested launches: the host launches each level of the search, and
reads whether the level has found a vertex."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.breadth_first import (
    EDGES_OF,
    IN_FRONTIER,
    THREADS,
    UNREACHED,
    VERTEX,
    WALK,
    check,
    start,
)
from signalbox.driver.nested.workspace import Workspace
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = ["HEAVY_VERTICES", "LIGHT_VERTICES", "FlatBreadthFirst"]

_GRAPH = {"ROWS": 8, "COLUMNS": 8, "DISTANCES": 8, "STATE": 8}

LIGHT_VERTICES = Kernel(
    "search light vertices",
    f"""
    {VERTEX}
    bnone r8, end
    {EDGES_OF}
    sub   r14, r17, r16
    ldc   r15, [MOST]
    sleu  r14, r14, r15
    push  r14
    mov   r1, 1
    {WALK}
    """,
    {**_GRAPH, "N": 4, "MOST": 4},
)
"""As LEVEL, but vertices with more than MOST edges do nothing."""

HEAVY_VERTICES = Kernel(
    "search heavy vertices",
    f"""
    s2r   r0, ctaid.x
    ldc   r2, [HEAVY]
    ldc   r3, [HEAVY + 4]
    lea   r2, r2, r0, 2
    ldg   r0, [r2]
    {IN_FRONTIER}
    bnone r8, end
    {EDGES_OF}
    s2r   r1, tid.x
    add   r16, r16, r1
    s2r   r1, ntid.x
    {WALK}
    """,
    {**_GRAPH, "HEAVY": 8},
)
"""As EDGES, for the vertices whose numbers are in HEAVY, one block each; blocks of vertices outside
the frontier do nothing."""


@dataclass
class FlatBreadthFirst:
    """Searches as `BreadthFirst` does, on any machine with a compute engine. Created by `prepare`.

    Members
    -------
    distances : as in `BreadthFirst`.
    """

    distances: Buffer
    _count: int
    _heavy: int
    _workspace: Workspace
    _state: Buffer
    _light_args: dict[str, Argument]
    _heavy_args: dict[str, Argument]

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, rows: np.ndarray, columns: np.ndarray, heavy: int = 32
    ) -> "FlatBreadthFirst":
        """Prepare the search of a graph; see `BreadthFirst.prepare`. Vertices with more than
        `heavy` edges have a block of their own.

        Raises `ValueError` for malformed arrays, and as `Device.upload`.
        """
        check(rows, columns)
        count = len(rows) - 1
        vertices = np.flatnonzero(np.diff(rows) > heavy).astype(np.uint32)
        async with Workspace.prepare(device, stream) as workspace:
            distances = await workspace.buffer(np.full(count, UNREACHED, np.uint32))
            state = await workspace.buffer(np.zeros(2, np.uint32))
            graph: dict[str, Argument] = {
                "ROWS": await workspace.buffer(rows.astype(np.uint32)),
                "COLUMNS": await workspace.buffer(np.append(columns, 0).astype(np.uint32)),
                "DISTANCES": distances,
                "STATE": state,
            }
            light = {**graph, "N": count, "MOST": heavy}
            table = await workspace.buffer(np.append(vertices, 0).astype(np.uint32))
            own = {**graph, "HEAVY": table}
            return cls(distances, count, len(vertices), workspace, state, light, own)

    async def run(self, source: int) -> None:
        """Find the distances from vertex `source`. Raises `ValueError` if there is no such vertex,
        and as `Stream.launch` and `Stream.synchronize`."""
        start(self.distances, self._count, source)
        found, distance = True, 0
        while found:
            self._state.write(np.array([distance, 0], np.uint32))
            await self._level()
            found = self._state.read(np.uint32, 2)[1] != 0
            distance += 1

    async def _level(self) -> None:
        """Launch a level, heavy vertices beside the others, and wait for it."""
        stream, blocks = self._workspace.stream, -(-self._count // THREADS)
        await stream.launch(LIGHT_VERTICES, blocks, THREADS, self._light_args)
        if self._heavy:
            await stream.launch(
                HEAVY_VERTICES, self._heavy, THREADS, self._heavy_args, overlap=True
            )
        await stream.synchronize()

    async def free(self) -> None:
        """Free its memory, including `distances`, once nothing runs."""
        await self._workspace.free()
