"""Sequences of pages similar to those of programs, for comparing replacement policies (ASID-11)."""

from collections.abc import Iterator
from random import Random

from signalbox.tb.testbench.sample import fewer

__all__ = ["patterns"]


def patterns(numbers: Random, places: int) -> Iterator[tuple[str, list[int]]]:
    """Name and page numbers of each sequence, for a memory of `places` pages: loops slightly too
    large to fit, uniform and skewed random pages, streams next to pages that are used repeatedly,
    and a moving set of pages."""
    length = fewer(max(200, 8 * places), 2)
    for size in sorted({places + 1, -(-places * 5 // 4), -(-places * 3 // 2)}):
        yield f"loop of {size}", [n % size for n in range(length)]
    yield "uniform", [numbers.randrange(2 * places) for _ in range(length)]
    ranks = range(1, 4 * places + 1)
    yield "skewed", numbers.choices([*ranks], [1 / rank for rank in ranks], k=length)
    hot = max(1, places // 4)
    yield (
        "stream beside hot pages",
        [numbers.randrange(hot) if n % 2 else hot + n // 2 for n in range(length)],
    )
    yield (
        "moving set",
        [n // places + numbers.randrange(max(2, places * 3 // 4)) for n in range(length)],
    )
