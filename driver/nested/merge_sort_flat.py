"""Merge sort without nested launches: the host launches each level of the tree."""

import numpy as np

from signalbox.driver.device import Device
from signalbox.driver.kernels.library import Kernel
from signalbox.driver.memory.physical import Buffer
from signalbox.driver.nested.flat import Flat, FlatLaunch
from signalbox.driver.nested.merge_sort import LEAF, MERGE, RANK, check
from signalbox.driver.nested.workspace import Workspace
from signalbox.driver.runtime.stream import Argument, Stream

__all__ = ["MERGE_NODES", "SORT_LEAVES", "FlatMergeSort", "nodes_by_level"]

_Level = tuple[Kernel, int, dict[str, Argument]]
"""Kernel of a level, its blocks and arguments."""

_NODE = """
    s2r   r0, ctaid.x
    ldc   r4, [NODES]
    ldc   r5, [NODES + 4]
    lea   r4, r4, r0, 3
    ldg   r6, [r4]                  # its first word
    ldg   r1, [r4 + 4]              # its words
    ldc   r2, [DATA]
    ldc   r3, [DATA + 4]
    lea   r2, r2, r6, 2
    s2r   r0, tid.x
"""
"""Sets r1 and r2 to the number of words and the address of the block's node, r6 to its first word
in DATA, and r0 to the lane."""

SORT_LEAVES = Kernel("sort leaves", f"{_NODE}{RANK}", {"DATA": 8, "NODES": 8})
"""Sorts leaves, one warp each. NODES has the first word and the number of words, at most 32, of
each."""

MERGE_NODES = Kernel(
    "merge nodes",
    f"""
    {_NODE}
    ldc   r4, [TEMP]
    ldc   r5, [TEMP + 4]
    lea   r4, r4, r6, 2
    {MERGE}
    """,
    {"DATA": 8, "TEMP": 8, "NODES": 8},
)
"""Merges the sorted halves of nodes, one warp each. NODES is as for SORT_LEAVES, of any size; TEMP
has as many words as DATA."""


class FlatMergeSort(Flat):
    """Sorts as `MergeSort` does, on any machine with a compute engine. Created by `prepare`."""

    def __init__(self, workspace: Workspace, levels: list[_Level]) -> None:
        super().__init__(workspace)
        self._levels, self._left = levels, list[_Level]()

    @classmethod
    async def prepare(
        cls, device: Device, stream: Stream, data: Buffer, count: int
    ) -> "FlatMergeSort":
        """Prepare to sort the first `count` words of `data`.

        Raises `ValueError` for no words, or more than `data` has, and as `Device.upload`.
        """
        check(data, count)
        async with Workspace.prepare(device, stream) as workspace:
            temp = await workspace.buffer(np.zeros(count, np.uint32))
            levels: list[_Level] = []
            for nodes in nodes_by_level(count):
                table = await workspace.buffer(np.array(nodes, np.uint32))
                args: dict[str, Argument] = {"DATA": data, "NODES": table}
                kernel = SORT_LEAVES
                if levels:
                    kernel, args["TEMP"] = MERGE_NODES, temp
                levels.append((kernel, len(nodes), args))
            return cls(workspace, levels)

    def start(self) -> None:
        """Begin a sort."""
        self._left = [*self._levels]

    async def step(self, *, priority: int | None = None) -> list[FlatLaunch]:
        """Launch all levels: the host has no results to read between them. Returns none after that.
        Raises as `Stream.launch`."""
        levels, self._left = self._left, []
        return [
            await self.launch(kernel, nodes, LEAF, args, priority=priority)
            for kernel, nodes, args in levels
        ]

    async def run(self) -> None:
        """Sort. Raises as `Stream.launch` and `Stream.synchronize`."""
        self.start()
        await self.step()
        await self.workspace.stream.synchronize()


def nodes_by_level(count: int) -> list[list[tuple[int, int]]]:
    """Nodes of the tree that sorts `count` words, as (first word, number of words), by level: all
    leaves, then the inner nodes, deepest level first."""
    leaves: list[tuple[int, int]] = []
    inner: list[list[tuple[int, int]]] = []
    nodes = [(0, count)]
    while nodes:
        leaves += [one for one in nodes if one[1] <= LEAF]
        inner.append([one for one in nodes if one[1] > LEAF])
        nodes = [
            half
            for at, words in inner[-1]
            for half in ((at, words // 2), (at + words // 2, words - words // 2))
        ]
    return [leaves, *inner[-2::-1]]
