"""Breadth-first search without nested launches: the host launches each level of the search, and
reads whether the level has found a vertex."""

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
from signalbox.driver.nested.flat import Flat, FlatLaunch
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
"""As `breadth_first.LEVEL`, without children: threads of vertices with more than MOST edges do
nothing."""

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
"""As `breadth_first.EDGES`, for all vertices in the array HEAVY, one block each. Blocks of vertices
outside the frontier do nothing."""


class FlatBreadthFirst(Flat):
    """Searches as `BreadthFirst` does, on any machine with a compute engine. Created by `prepare`.

    Members
    -------
    distances : as in `BreadthFirst`.
    """

    def __init__(
        self,
        workspace: Workspace,
        graph: dict[str, Buffer],
        count: int,
        most: int,
        heavy: int,
        table: Buffer,
    ) -> None:
        super().__init__(workspace)
        self.distances, self._state = graph["DISTANCES"], graph["STATE"]
        self._count, self._heavy, self._distance = count, heavy, 0
        self._light_args: dict[str, Argument] = {**graph, "N": count, "MOST": most}
        self._heavy_args: dict[str, Argument] = {**graph, "HEAVY": table}

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
            graph = {
                "DISTANCES": await workspace.buffer(np.full(count, UNREACHED, np.uint32)),
                "STATE": await workspace.buffer(np.zeros(2, np.uint32)),
                "ROWS": await workspace.buffer(rows.astype(np.uint32)),
                "COLUMNS": await workspace.buffer(np.append(columns, 0).astype(np.uint32)),
            }
            table = await workspace.buffer(np.append(vertices, 0).astype(np.uint32))
            return cls(workspace, graph, count, heavy, len(vertices), table)

    def start(self, source: int) -> None:
        """Begin a search from vertex `source`. Raises `ValueError` if there is no such vertex."""
        start(self.distances, self._count, source)
        self._distance = 0

    async def step(self, *, priority: int | None = None) -> list[FlatLaunch]:
        """Launch the next level, with its heavy vertices in a kernel beside that of the others.
        Returns none if the last level found no vertex. Raises as `Stream.launch`."""
        if self._distance and not self._state.read(np.uint32, 2)[1]:
            return []
        self._state.write(np.array([self._distance, 0], np.uint32))
        self._distance += 1
        blocks = -(-self._count // THREADS)
        light = LIGHT_VERTICES, blocks, THREADS, self._light_args
        launched = [await self.launch(*light, priority=priority)]
        if self._heavy:
            heavy = HEAVY_VERTICES, self._heavy, THREADS, self._heavy_args
            launched.append(await self.launch(*heavy, priority=priority, overlap=True))
        return launched

    async def run(self, source: int) -> None:
        """Find the distances from vertex `source`. Raises `ValueError` if there is no such vertex,
        and as `Stream.launch` and `Stream.synchronize`."""
        self.start(source)
        while await self.step():
            await self.workspace.stream.synchronize()
