"""Measurements of translation alone: rows with the budgets of page 70. All values are cycles."""

from collections.abc import Mapping

from signalbox.hw.mmu.records import Scope
from signalbox.tb.benchmarks import streams
from signalbox.tb.benchmarks.rows import Row
from signalbox.tb.benchmarks.stage import Sizes

__all__ = [
    "BURST",
    "BURSTS",
    "HITS",
    "INVALIDATIONS",
    "LATENCIES",
    "LOOKS",
    "NEAR",
    "ROWS",
    "SIZES",
    "WINDOW",
    "burst_key",
    "burst_table",
    "invalidation_key",
    "keys",
]

SIZES = Sizes(clients=4, l1_misses=16, walks=32)
"""Enough misses for all walks of the default size."""

HITS, LOOKS = 1000, 512
"""Look-ups of each client that hit in the first level, and in the second."""

NEAR = 100
"""Memory latency for a single walk."""

BURST, LATENCIES = 60, (50, 100, 200)
"""Misses on different pages, and memory latencies."""

WINDOW = 100
"""Cycles during which answers to other spaces are counted after an invalidation."""

INVALIDATIONS = {
    "page": (Scope.PAGE, False),
    "space": (Scope.ASID, False),
    "bind": (Scope.ASID, True),
    "everything": (Scope.ALL, False),
}
"""Scope of each invalidation, and whether it is a bind."""


def invalidation_key(kind: str, what: str) -> str:
    """Name of one measurement of an invalidation."""
    return f"invalidation, {kind}, {what}"


def burst_key(far: bool, together: bool, latency: int) -> str:
    """Name of one measurement of a burst of misses."""
    where = "regions of their own" if far else "one region"
    when = "at once" if together else "one after the other"
    return f"{BURST} misses, {where}, {when}, latency {latency}"


def _invalidation(kind: str) -> dict[str, Row]:
    """Rows of one kind. Other spaces lose nothing, except when everything is invalidated."""
    rows = {
        "effect": Row("taken → last answer by what it covers", 1),
        "acknowledge": Row("taken → acknowledged"),
        "next": Row("taken → next one taken"),
        "lost": Row("pages of other spaces walked for again", 0),
        "served": Row(f"another space's L1 hits in {WINDOW} cycles from then on", least=WINDOW),
        "fewer": Row(f"another space's L2 hits, fewer than in {WINDOW} cycles before"),
    }
    if kind == "everything":
        rows |= {name: Row(rows[name].what) for name in ("lost", "served")}
    return {
        invalidation_key(kind, name): Row(
            f"invalidation of {kind}: {row.what}", row.budget, row.least
        )
        for name, row in rows.items()
    }


BURSTS = [
    burst_key(far, together, latency)
    for far in (False, True)
    for latency in LATENCIES
    for together in (True, False)
]
"""Names of the measurements of bursts."""


def burst_table(values: Mapping[str, int]) -> str:
    """Table of bursts of misses in Markdown."""
    lines = [
        f"| {BURST} misses of pages in | memory latency | at once | one after the other | ratio |",
        "|---|--:|--:|--:|--:|",
    ]
    for far in (False, True):
        for latency in LATENCIES:
            once, after = (values[burst_key(far, together, latency)] for together in (True, False))
            where = "regions of their own" if far else "one region"
            lines.append(f"| {where} | {latency} | {once} | {after} | {after / once:.1f} |")
    return "\n".join(lines)


def keys() -> list[str]:
    """Names of all measurements of translation."""
    return [*ROWS, *BURSTS, *streams.keys()]


_ALL = SIZES.clients

ROWS = {
    "l1_hit": Row("hit in the first level", 1),
    "l1_lookups": Row(
        f"{HITS} look-ups that hit in the first level, of each of {_ALL} clients at once", HITS
    ),
    "l2_hit": Row("hit in the second level: from its look-up to the page", 4),
    "l2_hit_whole": Row("the same, from the client's look-up to its answer"),
    "l2_lookups": Row(
        f"{_ALL * SIZES.l1_misses} look-ups in the second level at once, which hit",
        _ALL * SIZES.l1_misses,
    ),
    "l2_sustained": Row(
        f"{_ALL * LOOKS} look-ups in the second level, as fast as {_ALL} clients can"
    ),
    "walk_level": Row("walk: from the entry of one level to the request for the next", 2),
    "walk_full": Row("look-up that walks five levels, without 5 × memory latency"),
    "walk_known": Row(
        "look-up that walks two levels of a known region, without 2 × memory latency"
    ),
    "walk_merged": Row(f"reads of memory when {_ALL} clients ask for one page, 4 times each", 5),
    "walks_in_flight": Row("walks in flight while more wait, on average", least=32),
    "walks_least": Row("the same, at least"),
    **{name: row for kind in INVALIDATIONS for name, row in _invalidation(kind).items()},
}
