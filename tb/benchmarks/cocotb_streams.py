"""Streams of `tb.benchmarks.streams`."""

import cocotb

from signalbox.tb.benchmarks.scenario import PAGE, Look, Run, Scenario
from signalbox.tb.benchmarks.scenes import report
from signalbox.tb.benchmarks.stage import Sizes
from signalbox.tb.benchmarks.streams import (
    CLASSES,
    COUNTS,
    INTERFERENCE,
    LENGTH,
    MEASURES,
    PAGES,
    groups,
    interference_key,
    sequence,
    space_key,
)

LIMIT = {"timeout_time": 100, "timeout_unit": "ms"}

SIZES = Sizes.of_environment()

WARM = 50_000
"""Cycle by which the warm-up has ended."""


def results(run: Run, asid: int | None, looks: list[Look]) -> dict[str, int]:
    """Measurements of these look-ups, for one space or for all."""
    since = min(look.taken for look in looks)
    asids = range(max(COUNTS)) if asid is None else [asid]
    values = [run.count(kind, asids, since) for kind in ("hit", "found", "walks")]
    last = max(look.answered for look in looks)
    return dict(zip(MEASURES, [last - since, *values], strict=True))


@cocotb.test(**LIMIT, skip=SIZES == INTERFERENCE)
async def spaces(dut):
    """The same stream for each number of spaces, played twice; the second pass is measured."""
    scenario = Scenario.start(dut)
    for asid in range(max(COUNTS)):
        scenario.map(asid, *(n * PAGE for n in range(PAGES)))
    pages = sequence(PAGES, LENGTH, skew=2)
    for count in COUNTS:
        looks = [
            Look(n % count, page * PAGE, alone=n == LENGTH) for n, page in enumerate(pages * 2)
        ]
        run = await scenario.play(looks)
        values = results(run, None, looks[LENGTH:])
        report(**{space_key(SIZES, count, name): value for name, value in values.items()})


def stream(number: int) -> tuple[list[Look], list[Look]]:
    """Look-ups of one class: for warm-up, and for measurement."""
    kind = CLASSES[number]
    pages = sequence(kind.pages, kind.warm + kind.length)
    warm = [Look(number, page * PAGE) for page in pages[: kind.warm]]
    return warm, [Look(number, page * PAGE, WARM) for page in pages[kind.warm :]]


def mixed(streams: list[list[Look]]) -> list[Look]:
    """Interleave streams into one so that all end together."""
    places = [
        ((n + 0.5) / len(looks), order, look)
        for order, looks in enumerate(streams)
        for n, look in enumerate(looks)
    ]
    return [look for _, _, look in sorted(places, key=lambda place: place[:2])]


@cocotb.test(**LIMIT, skip=SIZES != INTERFERENCE)
@cocotb.parametrize(shared=[False, True])
async def interference(dut, shared: bool):
    """Spaces of all classes, alone and together."""
    scenario = Scenario.start(dut)
    for asid, kind in enumerate(CLASSES):
        scenario.map(asid, *(n * PAGE for n in range(kind.pages)))
    for group in groups(shared):
        streams = [stream(number) for number in group]
        both = [[*warm, *looks] for warm, looks in streams]
        if shared:
            both = [mixed([warm for warm, _ in streams]) + mixed([looks for _, looks in streams])]
        run = await scenario.play(*both)
        for number, (warm, looks) in zip(group, streams, strict=True):
            assert max(look.answered for look in warm) < WARM
            values = results(run, number, looks)
            keys = {name: interference_key(shared, group, number, name) for name in MEASURES}
            report(**{keys[name]: value for name, value in values.items()})
