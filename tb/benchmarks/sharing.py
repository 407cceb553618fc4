"""Many applications: all in one universal context, and each in its own context, in turn
(SHARE-11)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from signalbox.driver.kernels.timing import TimingTask
from signalbox.driver.server.settings import ServerSettings
from signalbox.tb.benchmarks.compute_machine import MACHINE
from signalbox.tb.benchmarks.plots import Panel, save_plot
from signalbox.tb.simulation.residents import Residence

__all__ = [
    "CASES",
    "EXAMPLE",
    "IDLE",
    "KERNELS",
    "MACHINE_SHARED",
    "SMALL",
    "TIMELINE",
    "WAYS",
    "Application",
    "example_key",
    "idle_key",
    "key",
    "keys",
    "plot",
    "settings",
    "table",
    "timeline",
    "use",
]

_SMS = 8

MACHINE_SHARED = replace(
    MACHINE,
    channels=64,
    slots=64,
    sms=_SMS,
    save_places=2 * _SMS * MACHINE.sm_blocks,
    memory_bytes=1 << 25,
)
"""Eight SMs of 16 hardware warps, for 48 applications."""

WAYS = {"shared": False, "in turn": True}
"""Whether each application has a context of its own."""

SLICE = 5000
"""Cycles for which a context runs while others wait, if each application has its own."""

# Many applications

COUNTS = (1, 2, 4, 8, 16, 32, 48)

_MOST = {"shared": max(COUNTS), "in turn": MACHINE_SHARED.contexts}

CASES = tuple((way, count) for way, most in _MOST.items() for count in COUNTS if count <= most)
"""Ways, and numbers of applications. A machine has 16 contexts at most."""

KERNELS = 4
"""Kernels of an application, one after the other: each is pushed when the previous one has
ended."""


@dataclass(frozen=True)
class Application:
    """An application with `kernels` kernels of `blocks` blocks of `warps` warps, each with
    `timing`."""

    kernels: int
    blocks: int
    warps: int
    timing: TimingTask


SMALL = Application(KERNELS, 2, 4, TimingTask(cycles=6000, spread=2047))
"""A small application, which fills a sixteenth of the machine's warps."""

MEASURES = ("makespan", "use", "first", "fair", "changes", "change")
"""Total cycles; warps in use, in thousandths of all warps; mean cycles from a push to the first
warp; end of the first application, in thousandths of the end of the last; changes of context, and
mean cycles of a change."""

# Idle applications

IDLE = (0, 1, 3, 7, 15, 31, 47)
"""Connected applications without work, beside one that has some."""

# Worked example

_WHOLE = TimingTask(cycles=8000)

EXAMPLE = tuple(Application(3, blocks, MACHINE.sm_warps, _WHOLE) for blocks in (3, 2, 3))
"""Applications of the worked example, which need three, two and three whole SMs."""

TIMELINE = "timelines.json"
"""Name of the file in the run folder with the timelines of the worked example, by way."""

_COLUMNS = 64


def settings(way: str) -> ServerSettings:
    """Settings of the server."""
    return ServerSettings(
        applications=_MOST[way],
        memory_each=1 << 16,
        system_each=1 << 17,
        context_each=WAYS[way],
        slice_cycles=SLICE,
    )


def key(what: str, way: str, count: int) -> str:
    """Name of a measurement of many applications."""
    return f"sharing, {what}, {way}, {count} applications"


def idle_key(count: int) -> str:
    """Name of the time from a push to the first warp, beside idle applications."""
    return f"sharing, push to first warp, beside {count} idle applications"


def example_key(what: str, way: str) -> str:
    """Name of a measurement of the worked example."""
    return f"sharing, worked example, {what}, {way}"


def keys() -> list[str]:
    """Names of all measurements."""
    found = [key(what, way, count) for way, count in CASES for what in MEASURES]
    found += [idle_key(count) for count in IDLE]
    return found + [example_key(what, way) for way in WAYS for what in ("makespan", "use")]


# -- trace -----------------------------------------------------------------------------------------


def use(found: Sequence[Residence], span: int) -> int:
    """Mean number of warps in use during `span` cycles, in thousandths of the machine's warps."""
    warps = MACHINE_SHARED.sms * MACHINE_SHARED.sm_warps
    return round(1000 * sum(one.ended - one.began for one in found) / (warps * span))


def timeline(found: Sequence[Residence], begun: int, end: int, names: Mapping[int, str]) -> str:
    """A line per SM: for each interval, the name of the application that is on the SM in the middle
    of the interval, or a point."""
    lines = []
    for sm in range(MACHINE_SHARED.sms):
        row = ""
        for column in range(_COLUMNS):
            at = begun + (2 * column + 1) * (end - begun) // (2 * _COLUMNS)
            there = {names[r.asid] for r in found if r.sm == sm and r.began <= at < r.ended}
            row += there.pop() if there else "."
        lines.append(f"SM {sm}  {row}")
    return "\n".join(lines)


# -- tables ----------------------------------------------------------------------------------------

_CONTEXTS = MACHINE_SHARED.contexts

_TITLE = f"""\
Applications of {KERNELS} kernels each, one after the other; a kernel has {SMALL.blocks} blocks of
{SMALL.warps} warps that compute for {SMALL.timing.cycles} to
{SMALL.timing.cycles + SMALL.timing.spread} cycles, and so fills 1/16 of the machine of
{MACHINE_SHARED.sms} SMs. Shared: all in the universal context. In turn: each in a context of its
own, with slices of {SLICE} cycles and blocks that are saved and restored (CILP). A machine has
{_CONTEXTS} contexts at most (`contexts`), and a context belongs to one application, so
the rows in turn end with {_CONTEXTS} applications. Both through the server.

A slice is shorter than a kernel, so that each change saves and restores blocks; with longer ones
there are fewer changes, and others wait for longer. Messages of the clients, which are in the
server's process, take no cycles.

Makespan: from the first push to the end of the last kernel. Use: warps that are on SMs, of all that
fit, those that are being saved included. First warp: from the arrival of a pointer at the server to
the first warp of its kernel, mean. Fair: end of the first application ÷ end of the last. Changes of
context, and mean cycles of each (CONTEXT_SWITCH: leave and bind); the shared
context starts once, with all address spaces. One more: increase of the makespan per further
application."""


def table(values: Mapping[str, int], timelines: Mapping[str, str]) -> str:
    """All measurements in Markdown, and the timelines of the worked example."""
    return "\n\n".join([_many(values), _beside(values), *_example(values, timelines)])


_HEADS = (
    "makespan",
    "÷ shared",
    "use",
    "first warp",
    "fair",
    "changes",
    "cycles each",
    "one more",
)


def _many(values: Mapping[str, int]) -> str:
    lines = [
        _TITLE,
        "",
        f"| applications | way | {' | '.join(_HEADS)} |",
        f"|--:|---|{'--:|' * len(_HEADS)}",
    ]
    for before, count in zip((0, *COUNTS), COUNTS, strict=False):
        for way in WAYS:
            if (way, count) in CASES:
                cells = _row(values, way, before, count)
                lines.append(f"| {count} | {way} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _row(values: Mapping[str, int], way: str, before: int, count: int) -> list[object]:
    """Cells of `_HEADS`. `before`: the last smaller number of applications."""
    span, used, first, fair, changes, each = (values[key(what, way, count)] for what in MEASURES)
    ratio = span / values[key("makespan", "shared", count)]
    more = (
        f"{(span - values[key('makespan', way, before)]) / (count - before):.0f}" if before else "–"
    )
    cost = [changes, each] if changes else ["–", "–"]
    return [span, f"{ratio:.2f}", f"{used / 10:.1f} %", first, f"{fair / 1000:.2f}", *cost, more]


_BESIDE = """\
One application pushes kernels, each when the last one has ended, beside others that are connected
and have no work: cycles from a push to the first warp, mean."""


def _beside(values: Mapping[str, int]) -> str:
    return "\n".join([
        _BESIDE,
        "",
        f"| idle applications | {' | '.join(map(str, IDLE))} |",
        "|---|" + "--:|" * len(IDLE),
        f"| push → first warp | {' | '.join(str(values[idle_key(count)]) for count in IDLE)} |",
    ])


_EXAMPLE_TITLE = f"""\
The worked example: three applications of three kernels each, one after the other, of blocks that
fill an SM and compute for {_WHOLE.cycles} cycles: three for A, two for B, three for C. One column
is 1/{_COLUMNS} of the time in turn, so that both timelines have the same scale. A point:
an empty SM; in turn, most of them are changes of context."""


def _example(values: Mapping[str, int], timelines: Mapping[str, str]) -> Iterator[str]:
    yield _EXAMPLE_TITLE
    for way in WAYS:
        span, used = (values[example_key(what, way)] for what in ("makespan", "use"))
        yield f"{way.capitalize()}: {span} cycles, use {used / 10:.1f} %."
        yield f"```\n{timelines[way]}\n```"


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot makespan and time to the first warp: one line per way."""
    panels = [
        Panel(
            title,
            "applications",
            COUNTS,
            {
                way: [values[key(what, way, count)] for other, count in CASES if other == way]
                for way in WAYS
            },
        )
        for what, title in (("makespan", "makespan"), ("first", "push → first warp"))
    ]
    save_plot(file, "Many applications", "cycles", panels)
