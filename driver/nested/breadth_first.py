"""Breadth-first search with nested launches. A root kernel launches one kernel per level of the
search; that kernel launches one more for each vertex with many edges."""

from dataclasses import dataclass

import numpy as np

from signalbox.driver.compute.tasks import Task
from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.family import STATUS, Family
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = [
    "BREADTH_FIRST",
    "EDGES",
    "EDGES_OF",
    "IN_FRONTIER",
    "LEVEL",
    "THREADS",
    "UNREACHED",
    "VERTEX",
    "WALK",
    "BreadthFirst",
    "check",
    "start",
]

UNREACHED = 0xFFFF_FFFF
"""Distance of a vertex that cannot be reached."""

BREADTH_FIRST = Kernel(
    "breadth first",
    f"""
    ldc   r2, [LEVEL]
    ldc   r3, [LEVEL + 4]
    ldc   r4, [STATE]
    ldc   r5, [STATE + 4]
    mov   r0, 0
    mov   r1, 0
next:
    stg   [r4], r0                  # distance of the frontier
    stg   [r4 + 4], r1              # no vertex found
    launch r23, [r2]
    bany  r23, refused
    join  r7
    bany  r7, end
    ldg   r6, [r4 + 4]
    add   r0, r0, 1
    bany  r6, next
end:
    exit
refused:
    {STATUS}
    exit
    """,
    {"LEVEL": 8, "STATE": 8, "STATUS": 8},
)
"""The root. Launches the child LEVEL once per distance, from 0 up, until a level finds no vertex,
is refused or fails. STATE: two words, the distance of the frontier, and whether the level has found
a vertex."""

_FRONTIER = """
    ldc   r10, [STATE]
    ldc   r11, [STATE + 4]
    ldg   r9, [r10]
"""
"""Sets r10 to the address of STATE, and r9 to the distance of the frontier."""

IN_FRONTIER = f"""
    ldc   r4, [DISTANCES]
    ldc   r5, [DISTANCES + 4]
    lea   r6, r4, r0, 2
    ldg   r8, [r6]
    {_FRONTIER}
    seq   r8, r8, r9
"""
"""Sets r8: whether vertex r0 is in the frontier. Also sets r4 and r10 to the addresses of DISTANCES
and STATE, and r9 to the distance of the frontier."""

VERTEX = f"""
    s2r   r0, ctaid.x
    s2r   r1, ntid.x
    s2r   r2, tid.x
    mad   r0, r0, r1, r2
    ldc   r1, [N]
    sltu  r1, r0, r1
    push  r1
    {IN_FRONTIER}
    push  r8
"""
"""Sets r0 to the vertex of the thread, and r4, r8, r9, r10 as IN_FRONTIER does. Only lanes with a
vertex in the frontier stay active."""

EDGES_OF = """
    ldc   r6, [ROWS]
    ldc   r7, [ROWS + 4]
    lea   r6, r6, r0, 2
    ldg   r16, [r6]
    ldg   r17, [r6 + 4]
"""
"""Sets r16 to the first edge of vertex r0, r17 to the edge after its last one."""

WALK = """
    ldc   r2, [COLUMNS]
    ldc   r3, [COLUMNS + 4]
edges:
    sltu  r18, r16, r17
    bnone r18, end
    push  r18
    lea   r6, r2, r16, 2
    ldg   r19, [r6]
    lea   r6, r4, r19, 2
    ldg   r20, [r6]
    seq   r20, r20, -1              # not reached before
    push  r20
    add   r21, r9, 1
    stg   [r6], r21
    mov   r22, 1
    stg   [r10 + 4], r22
    pop
    pop
    add   r16, r16, r1
    bra   edges
end:
    exit
"""
"""Follows every r1-th edge from r16 on, below r17, sets the distance of each vertex that has not
been reached before, and ends the kernel. r4, r9, r10 are as IN_FRONTIER sets them."""

LEVEL = Kernel(
    "search level",
    f"""
    {VERTEX}
    bnone r8, end
    ldc   r2, [RECORDS]
    ldc   r3, [RECORDS + 4]
    lea   r2, r2, r0, 3
    ldg   r12, [r2]
    ldg   r13, [r2 + 4]
    or    r14, r12, r13             # it has a kernel for its edges
    sne   r14, r14, 0
    bnone r14, light
    mov   r15, 0
lanes:                              # a launch is for one lane
    s2r   r16, lane
    seq   r16, r16, r15
    and   r16, r16, r14
    push  r16
    bnone r16, passed
    launch r23, [r12]
    bnone r23, passed
    {STATUS}
passed:
    pop
    add   r15, r15, 1
    sltu  r16, r15, 32
    bany  r16, lanes
light:
    seq   r16, r14, 0
    push  r16
    bnone r16, end
    {EDGES_OF}
    mov   r1, 1
    {WALK}
    """,
    {
        "ROWS": 8,
        "COLUMNS": 8,
        "DISTANCES": 8,
        "STATE": 8,
        "RECORDS": 8,
        "STATUS": 8,
        "N": 4,
    },
)
"""One level of the search, one thread per vertex. The edges of vertex v are COLUMNS[ROWS[v] …
ROWS[v + 1] - 1]. For each vertex v of the frontier, the thread sets the distance of the neighbours
that have not been reached; if RECORDS[v] is not 0, it launches the child with that record to do
so."""

EDGES = Kernel(
    "search edges",
    f"""
    ldc   r0, [VERTEX]
    ldc   r4, [DISTANCES]
    ldc   r5, [DISTANCES + 4]
    {_FRONTIER}
    {EDGES_OF}
    s2r   r1, tid.x
    add   r16, r16, r1
    s2r   r1, ntid.x
    {WALK}
    """,
    {"ROWS": 8, "COLUMNS": 8, "DISTANCES": 8, "STATE": 8, "STATUS": 8, "VERTEX": 4},
)
"""Follows the edges of VERTEX, a vertex of the frontier; one block."""

THREADS = 32
"""Threads of a block."""


@dataclass
class BreadthFirst:
    """Distances in a graph from one vertex. Created by `prepare`.

    Members
    -------
    distances : distance of each vertex after `run`, a 32-bit word; `UNREACHED` without a path.
    family : its children and the status of their launches.
    """

    distances: Buffer
    _count: int
    family: Family
    _args: dict[str, Argument]

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, rows: np.ndarray, columns: np.ndarray, heavy: int = 32
    ) -> "BreadthFirst":
        """Prepare the search of a graph in compressed rows: edges lead from vertex v to
        `columns[rows[v] : rows[v + 1]]`. Vertices with more than `heavy` edges have kernels of
        their own. The nesting depth must be at least 3.

        Raises `ValueError` for malformed arrays; and as `Stream.child` and `Device.upload`.
        """
        check(rows, columns)
        count = len(rows) - 1
        async with Family.prepare(device, stream) as family:
            distances = await family.buffer(np.full(count, UNREACHED, np.uint32))
            common: dict[str, Argument] = {
                "ROWS": await family.buffer(rows.astype(np.uint32)),
                "COLUMNS": await family.buffer(np.append(columns, 0).astype(np.uint32)),
                "DISTANCES": distances,
                "STATE": await family.buffer(np.zeros(2, np.uint32)),
            }
            records = np.zeros(count, np.uint64)
            for vertex in np.flatnonzero(np.diff(rows) > heavy):
                args = {**common, "VERTEX": int(vertex)}
                records[vertex] = int(await family.child(EDGES, 1, THREADS, args))
            args = {**common, "RECORDS": await family.buffer(records), "N": count}
            level = await family.child(LEVEL, -(-count // THREADS), THREADS, args)
            return cls(distances, count, family, {"LEVEL": level, "STATE": common["STATE"]})

    async def launch(self, source: int, *, priority: int | None = None) -> Task:
        """Launch the search for the distances from vertex `source`; `Family.finish` waits for its
        end. Raises `ValueError` if there is no such vertex, and as `Family.launch`."""
        start(self.distances, self._count, source)
        return await self.family.launch(BREADTH_FIRST, 1, self._args, priority=priority)

    async def run(self, source: int) -> None:
        """Find the distances from vertex `source`. Raises as `launch` and `Family.finish`."""
        await self.family.finish(await self.launch(source))

    async def free(self) -> None:
        """Free its memory, including `distances`, once nothing runs."""
        await self.family.free()


def check(rows: np.ndarray, columns: np.ndarray) -> None:
    """Raise `ValueError` unless the arrays are the compressed rows of a graph."""
    count = len(rows) - 1
    whole = all(one.dtype.kind in "iu" for one in (rows, columns) if one.size)
    spanning = count >= 1 and rows[0] == 0 and rows[-1] == len(columns)
    rising = (rows[:-1] <= rows[1:]).all()
    inside = not len(columns) or 0 <= min(columns) <= max(columns) < count
    if not (whole and spanning and rising and inside):
        raise ValueError("these are not the compressed rows of a graph")


def start(distances: Buffer, count: int, source: int) -> None:
    """Set all distances to `UNREACHED`, and that of `source` to 0. Raises `ValueError` if there is
    no vertex `source`."""
    if not 0 <= source < count:
        raise ValueError(f"vertex {source} is outside 0 … {count - 1}")
    known = np.full(count, UNREACHED, np.uint32)
    known[source] = 0
    distances.write(known)
