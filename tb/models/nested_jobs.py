"""Results of algorithms whose kernels launch kernels, by numpy and plain Python."""

from collections import deque

import numpy as np

__all__ = ["UNREACHED", "distances", "graph", "refined", "rough_field"]

UNREACHED = 0xFFFF_FFFF


def refined(field: np.ndarray, tolerance: int, levels: int) -> np.ndarray:
    """Level of each word's cell. A cell whose words differ by more than `tolerance` is divided into
    quarters, down to level `levels` - 1."""
    size, result = field.shape[0], np.zeros(field.shape, np.uint32)
    for level in range(levels):
        cell = size >> level
        cells = field.astype(np.int64).reshape(1 << level, cell, 1 << level, cell)
        rough = cells.max((1, 3)) - cells.min((1, 3)) > tolerance
        divided = np.kron(rough, np.ones((cell, cell), bool))
        if level + 1 < levels:
            result[divided & (result == level)] = level + 1
    return result


def rough_field(rng: np.random.Generator, size: int) -> np.ndarray:
    """A field that is smooth but for a few spots."""
    field = np.full((size, size), 1000, np.uint32) + rng.integers(0, 10, (size, size), np.uint32)
    for _ in range(2):
        x, y = rng.integers(0, size, 2)
        field[y, x] += rng.integers(100, 1 << 30)
    return field


def distances(rows: np.ndarray, columns: np.ndarray, source: int) -> np.ndarray:
    """Number of edges from `source` to each vertex."""
    found = np.full(len(rows) - 1, UNREACHED, np.uint32)
    found[source] = 0
    queue = deque([source])
    while queue:
        vertex = queue.popleft()
        for other in columns[rows[vertex] : rows[vertex + 1]]:
            if found[other] == UNREACHED:
                found[other] = found[vertex] + 1
                queue.append(other)
    return found


def graph(rng: np.random.Generator, count: int, heavy: int) -> tuple[np.ndarray, np.ndarray]:
    """A random graph in compressed rows. Two vertices have `heavy` edges, the others few or
    none."""
    degrees = rng.integers(0, 4, count)
    degrees[rng.choice(count, 2, replace=False)] = heavy
    rows = np.concatenate(([0], np.cumsum(degrees)))
    return rows, rng.integers(0, count, int(rows[-1]))
