"""Streams of look-ups of several address spaces: measurements and tables.

* Spaces: one client plays a fixed stream of page numbers, with its look-ups in 1 … 64 spaces in
  turn, for several sizes of both levels.
* Interference: one client per space, each with a stream of a different hit class, alone and
  together; and the same streams through a single first level.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from random import Random

from signalbox.tb.benchmarks.stage import Sizes

__all__ = [
    "CLASSES",
    "COUNTS",
    "INTERFERENCE",
    "LENGTH",
    "MEASURES",
    "PAGES",
    "SPACES",
    "HitClass",
    "groups",
    "interference_key",
    "interference_table",
    "keys",
    "sequence",
    "space_key",
    "space_table",
]

MEASURES = ("cycles", "L1 hits", "L2 hits", "walks")
"""Measurements of one stream."""

COUNTS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of address spaces."""

LENGTH, PAGES = 2048, 32
"""Look-ups of the stream, and pages of each space."""

SPACES = [
    Sizes(l1_entries=first, l2_entries=second) for first in (16, 64) for second in (128, 512, 2048)
]
"""Sizes of both levels, with the default misses and walks."""


@dataclass(frozen=True)
class HitClass:
    """Pages of a space, and the look-ups of its stream for warm-up and for measurement."""

    title: str
    pages: int
    warm: int
    length: int


INTERFERENCE = Sizes(clients=3, l1_entries=64, l1_misses=8, l2_entries=512, l2_ways=16, walks=24)

CLASSES = (
    HitClass("fits L1", 48, 192, 16_384),
    HitClass("fits L2", 256, 1024, 5120),
    HitClass("misses both", 2048, 1024, 640),
)
"""One class per space; alone they take about the same time."""


def sequence(pages: int, length: int, *, skew: float = 1.0) -> list[int]:
    """Page numbers, the same in each run. If `skew` is above 1, low numbers are more frequent."""
    numbers = Random(pages)
    return [int(pages * numbers.random() ** skew) for _ in range(length)]


def keys() -> list[str]:
    """Names of all measurements."""
    return [*_space_keys(), *_interference_keys()]


# -- spaces ----------------------------------------------------------------------------------------


def space_key(sizes: Sizes, count: int, measure: str) -> str:
    """Name of one measurement."""
    return f"{count} spaces, L1 {sizes.l1_entries}, L2 {sizes.l2_entries}, {measure}"


def _space_keys() -> list[str]:
    """Names of all measurements."""
    return [
        space_key(sizes, count, measure)
        for sizes in SPACES
        for count in COUNTS
        for measure in MEASURES
    ]


def space_table(values: Mapping[str, int]) -> str:
    """Table in Markdown: hit rates of both levels and cycles, by number of spaces and sizes."""
    sizes = " | ".join(f"{one.l1_entries} / {one.l2_entries}" for one in SPACES)
    lines = [
        f"{LENGTH} look-ups of one client, spaces in turn, {PAGES} pages each, memory latency 100:",
        "hits in L1, % of look-ups / hits in L2, % of misses in L1 / cycles per look-up.",
        "",
        f"| spaces | L1 / L2 {sizes} |",
        "|--:|" + "--:|" * len(SPACES),
    ]
    for count in COUNTS:
        cells = [_rates(LENGTH, _of(values, one, count)) for one in SPACES]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(values: Mapping[str, int], sizes: Sizes, count: int) -> dict[str, int]:
    return {measure: values[space_key(sizes, count, measure)] for measure in MEASURES}


def _rates(length: int, values: Mapping[str, int]) -> str:
    """Hit rates of both levels in percent, and cycles per look-up."""
    return f"{_hits(length, values)} / {values['cycles'] / length:.1f}"


def _hits(length: int, values: Mapping[str, int]) -> str:
    came = values["L2 hits"] + values["walks"]
    second = f"{values['L2 hits'] / came:.0%}" if came else "–"
    return f"{values['L1 hits'] / length:.0%} / {second}".replace("%", "")


# -- interference ----------------------------------------------------------------------------------


def groups(shared: bool) -> Iterator[tuple[int, ...]]:
    """Groups of classes that run together. Classes alone are measured only without `shared`."""
    numbers = range(len(CLASSES))
    for size in range(2 if shared else 1, len(CLASSES) + 1):
        yield from combinations(numbers, size)


def interference_key(shared: bool, group: tuple[int, ...], number: int, measure: str) -> str:
    """Name of one measurement, of class `number` in a group."""
    others = " and ".join(CLASSES[other].title for other in group if other != number)
    where = f"beside {others}, {'one L1' if shared else 'own L1'}" if others else "alone"
    return f"space that {CLASSES[number].title}, {where}, {measure}"


def _interference_keys() -> list[str]:
    """Names of all measurements."""
    return [
        interference_key(shared, group, number, measure)
        for shared in (False, True)
        for group in groups(shared)
        for number in group
        for measure in MEASURES
    ]


def interference_table(values: Mapping[str, int]) -> str:
    """Table in Markdown: hit rates and cycles of each class in each group, and the ratio to the
    cycles alone."""
    sizes = INTERFERENCE
    ways = f"{sizes.l2_entries} entries of {sizes.l2_ways} ways"
    lines = [
        f"Spaces that have a first level of {sizes.l1_entries} entries each, or share one, and",
        f"share a second level of {ways}, memory latency 100:",
        "hits in L1, % of look-ups / hits in L2, % of misses in L1; cycles; cycles / cycles alone.",
        "",
        "| space | beside | first level | hits | cycles | ratio |",
        "|---|---|---|--:|--:|--:|",
    ]
    for shared in (False, True):
        for group in groups(shared):
            lines += [_line(values, shared, group, number) for number in group]
    return "\n".join(lines)


def _line(values: Mapping[str, int], shared: bool, group: tuple[int, ...], number: int) -> str:
    mine = {name: values[interference_key(shared, group, number, name)] for name in MEASURES}
    alone = values[interference_key(False, (number,), number, "cycles")]
    others = ", ".join(CLASSES[other].title for other in group if other != number)
    kind = CLASSES[number]
    hits, ratio = _hits(kind.length, mine), mine["cycles"] / alone
    level = "one" if shared else "own"
    return f"| {kind.title} | {others} | {level} | {hits} | {mine['cycles']} | {ratio:.2f} |"
