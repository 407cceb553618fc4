"""The rows of `tb.benchmarks.translation`: speed of both levels, walks, bursts of misses,
invalidations.

Spaces 0 … 3 belong to clients 0 … 3. Each has contiguous pages from address 0 on.
"""

from collections.abc import Iterator
from itertools import pairwise

import cocotb

from signalbox.tb.benchmarks.scenario import PAGE, START, Command, Look, Run, Scenario
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.stage import Sizes
from signalbox.tb.benchmarks.translation import (
    BURST,
    HITS,
    INVALIDATIONS,
    LATENCIES,
    LOOKS,
    NEAR,
    WINDOW,
    burst_key,
    invalidation_key,
)

LIMIT = {"timeout_time": 10, "timeout_unit": "ms"}

SIZES = Sizes.of_environment()
CLIENTS = range(SIZES.clients)
PAGES = 64
"""Pages per space: more than the first level holds, but all together fit into the second level."""

LATER = 20_000
"""Cycle by which all earlier look-ups have ended."""


def start(dut) -> Scenario:
    """Spaces with their pages."""
    scenario = Scenario.start(dut)
    for asid in CLIENTS:
        scenario.map(asid, *(n * PAGE for n in range(PAGES)))
    return scenario


def around(asid: int, count: int, pages: int, at: int = START) -> list[Look]:
    """`count` look-ups of `pages` pages in turn."""
    return [Look(asid, n % pages * PAGE, at) for n in range(count)]


def span(cycles: list[int]) -> int:
    """Cycles from the first to the last event, inclusive."""
    return cycles[-1] - cycles[0] + 1


@cocotb.test(**LIMIT)
async def first_level(dut):
    """All clients look up pages that are in the first level."""
    scenario = start(dut)
    streams = [around(n, 16, 16) + around(n, HITS, 16, LATER) for n in CLIENTS]
    run = await scenario.play(*streams)
    assert run.count("hit", CLIENTS, LATER) == HITS * len(CLIENTS)
    hits = [look for looks in run.looks for look in looks[16:]]
    report(
        l1_hit=max(look.took for look in hits),
        l1_lookups=max(span([look.taken for look in looks[16:]]) for looks in run.looks),
    )


@cocotb.test(**LIMIT)
async def second_level(dut):
    """Clients look up pages that are in the second level only: a single look-up; as many as can
    wait, all at once; and a continuous stream."""
    scenario = start(dut)
    warm = [around(n, PAGES, PAGES) for n in CLIENTS]
    alone = await scenario.play([*warm[0], Look(0, 0, LATER)])
    (hit,) = [cycles for since, cycles in second_level_hits(alone) if since >= LATER]
    waiting = await from_second_level(scenario, warm, SIZES.l1_misses)
    sustained = await from_second_level(scenario, warm, LOOKS)
    report(
        l2_hit=hit,
        l2_hit_whole=alone.looks[0][-1].took,
        l2_lookups=waiting,
        l2_sustained=sustained,
    )


async def from_second_level(scenario: Scenario, warm: list[list[Look]], count: int) -> int:
    """Cycles from the first to the last of `count` look-ups per client in the second level."""
    run = await scenario.play(*(warm[n] + around(n, count, PAGES, LATER) for n in CLIENTS))
    probes = [cycle for cycle in run.cycles("probe") if cycle >= LATER]
    assert run.count("found", CLIENTS, LATER) == len(probes) == count * len(CLIENTS)
    return span(probes)


def second_level_hits(run: Run) -> Iterator[tuple[int, int]]:
    """Cycle of the look-up, and cycles until the result, for each hit in the second level."""
    began: dict[int, int] = {}
    for cycle, kind, number in sorted(
        [(cycle, 1, number) for cycle, number in run.events["probe"]]
        + [(cycle, 0, number) for cycle, _, number in run.events["found"]]
    ):
        if kind:
            began[number] = cycle
        else:
            yield began[number], cycle - began[number]


@cocotb.test(**LIMIT)
async def walk(dut):
    """A single walk of five levels, and one with a known region."""
    scenario = start(dut)
    run = await scenario.play([Look(0, 0), Look(0, PAGE, alone=True)], latency=NEAR)
    reads, beats = run.cycles("read"), run.cycles("beat")
    assert len(reads) == 5 + 2
    full, known = run.looks[0]
    report(
        walk_level=max(read - beat for read, beat in zip(reads[1:5], beats, strict=False)),
        walk_full=full.took - 5 * NEAR,
        walk_known=known.took - 2 * NEAR,
    )


@cocotb.test(**LIMIT)
async def duplicates(dut):
    """All clients request the same page at once, several times each."""
    scenario = start(dut)
    run = await scenario.play(*([Look(0, 0)] * 4 for _ in CLIENTS))
    report(walk_merged=len(run.cycles("read")))


@cocotb.test(**LIMIT)
async def walks_in_flight(dut):
    """All clients miss continuously: number of walks in flight while more wait."""
    scenario = start(dut)
    count = len(CLIENTS) * PAGES
    run = await scenario.play(*(around(n, PAGES, PAGES) for n in CLIENTS))
    changes = sorted(
        [(cycle, 1) for cycle in run.cycles("walks")]
        + [(cycle, -1) for cycle in run.cycles("walked")]
    )
    assert len(changes) == 2 * count
    first, last = run.cycles("walks")[SIZES.walks - 1], run.cycles("walks")[-1]
    flying, area, least = 0, 0, count
    for (cycle, change), (following, _) in pairwise(changes):
        flying += change
        if first <= cycle < last:
            area += flying * (following - cycle)
            least = min(least, flying) if following > cycle else least
    report(walks_in_flight=area // (last - first), walks_least=least)


@cocotb.test(**LIMIT)
@cocotb.parametrize(far=[False, True])
async def bursts(dut, far: bool):
    """Misses on different pages, all at once and one after another."""
    scenario = Scenario.start(dut)
    step = 1 << 38 if far else PAGE
    pages = [n * step for n in range(BURST)]
    scenario.map(0, *pages)
    for latency in LATENCIES:
        shares = [[Look(0, va) for va in pages[n :: len(CLIENTS)]] for n in CLIENTS]
        run = await scenario.play(*shares, latency=latency)
        report(**{burst_key(far, True, latency): whole(run)})
        run = await scenario.play([Look(0, va, alone=True) for va in pages], latency=latency)
        report(**{burst_key(far, False, latency): whole(run)})


def whole(run: Run) -> int:
    """Cycles from the first look-up to the last answer."""
    looks = [look for looks in run.looks for look in looks]
    assert run.count("walks", [0]) == BURST
    return max(look.answered for look in looks) - min(look.taken for look in looks)


@cocotb.test(**LIMIT)
@cocotb.parametrize(kind=list(INVALIDATIONS))
async def invalidations(dut, kind: str):
    """Space 0 is invalidated while client 0 looks up its page, client 1 hits in the first level and
    client 2 in the second, each in its own space."""
    scenario, (scope, bind) = start(dut), INVALIDATIONS[kind]
    event = LATER + 2000
    streams = [
        around(0, 4000, 1, LATER),
        around(1, 16, 16) + around(1, 4000, 16, LATER),
        around(2, PAGES, PAGES) + around(2, 2000, PAGES, LATER),
    ]
    command = Command(scope, 0, 0, event, bind=bind, alone=False)
    run = await scenario.play(*streams, commands=[command, command])
    (taken, again), (done, _) = run.cycles("command"), run.cycles("done")
    hits = [hit[0] for hit in run.events["hit"] if hit[1] == 0]
    missed = min(miss[0] for miss in run.events["miss"] if miss[0] > taken and miss[1] == 0)
    others = [1, 2, 3]
    report(**{
        invalidation_key(kind, "effect"): max(hit for hit in hits if hit < missed) - taken,
        invalidation_key(kind, "acknowledge"): done - taken,
        invalidation_key(kind, "next"): again - taken,
        invalidation_key(kind, "lost"): run.count("walks", others, taken),
        invalidation_key(kind, "served"): answers(run, 1, taken),
        invalidation_key(kind, "fewer"): answers(run, 2, taken - WINDOW) - answers(run, 2, taken),
    })


def answers(run: Run, client: int, since: int) -> int:
    """Answers to a client in the window that begins at cycle `since`."""
    window = range(since, since + WINDOW)
    return sum(look.answered in window for look in run.looks[client])
