"""Runlists beside flat scheduling: shares, changes of turn, urgent work (HOST-7)."""

from collections.abc import Mapping
from pathlib import Path

from signalbox.driver.channel.interleave import Interleave
from signalbox.tb.benchmarks.plots import Panel, save_plot

__all__ = [
    "BUSY_GROUPS",
    "FAR",
    "FLAT_PAIRS",
    "LEVELS",
    "LISTS",
    "MOMENTS",
    "SHORT",
    "SLICE",
    "SLICES",
    "arrival_key",
    "command_key",
    "key",
    "keys",
    "pair_key",
    "plot",
    "table",
]

_LOW, _MEDIUM, _HIGH = Interleave

SLICE = 500
"""Cycles of a slice by default."""

LEVELS = (
    (_LOW, _LOW),
    (_LOW, _MEDIUM),
    (_LOW, _HIGH),
    (_LOW, _LOW, _MEDIUM),
    (_LOW, _MEDIUM, _HIGH),
    (_LOW, _LOW, _MEDIUM, _HIGH),
)
"""Levels of busy groups."""

SLICES = (250, 500, 1000)
"""Slices of busy groups of level LOW, in cycles."""

FLAT_PAIRS = ((250, 500), (500, 500), (1000, 250))
"""Slices of two busy channels, scheduled flat, in cycles."""

SHORT = 10
"""Shortest slice, in cycles, with the unit used here."""

FAR = (1, 4, 8)
"""Distances in the list between two busy groups."""

LISTS = (1, 4, 8, 16)
"""TSGs of a submitted list."""

BUSY_GROUPS = 6
"""Busy groups beside an urgent one."""

MOMENTS = 16
"""Doorbells of the urgent group, spread over the slices of the others."""

_KINDS = {"mean": "mean", "most": "at most"}


def key(what: str, *where: object) -> str:
    """Name of a measurement."""
    return ", ".join(("runlist", what, *map(str, where)))


def _name(levels: tuple[Interleave, ...]) -> str:
    return " ".join(level.name for level in levels)


def level_key(levels: tuple[Interleave, ...], place: int) -> str:
    """Share of a group among groups of these levels, in thousandths of the methods."""
    return key("share by level", _name(levels), place)


def slice_key(cycles: int) -> str:
    """Share of the group with this slice, among groups with `SLICES`, in thousandths of the
    methods."""
    return key("share by slice", cycles)


def pair_key(pair: tuple[int, int]) -> str:
    """Share of the first of two channels with these slices, scheduled flat, in thousandths."""
    return key("flat, share of the first", *pair)


def arrival_key(place: int) -> str:
    """Share of a channel among three equal channels, scheduled flat, in thousandths. All commands
    were received at once, in the order of `place`."""
    return key("flat, share by arrival", place)


def command_key(cycles: int) -> str:
    """Share of the channel with this slice among channels with `SLICES`, scheduled flat, in
    thousandths. The commands are received one by one."""
    return key("flat, share by command", cycles)


def keys() -> list[str]:
    """Names of all measurements."""
    found = [level_key(levels, place) for levels in LEVELS for place in range(len(levels))]
    found += [slice_key(cycles) for cycles in SLICES]
    found += [key("gap", far, cycles) for far in FAR for cycles in (SHORT, SLICE)]
    found += [key("turn", far, SHORT) for far in FAR]
    found += [key("submit to first method", groups) for groups in LISTS]
    found += [key("urgent", level.name, kind) for level in Interleave for kind in _KINDS]
    found += [pair_key(pair) for pair in FLAT_PAIRS]
    found += [arrival_key(place) for place in range(3)]
    found += [command_key(cycles) for cycles in SLICES]
    found += [key("flat, gap", cycles) for cycles in (SHORT, SLICE)]
    return found + [key("flat, urgent", kind) for kind in _KINDS]


def table(values: Mapping[str, int]) -> str:
    """All tables in Markdown."""
    parts = (_levels, _slices, _gaps, _urgent, _flat)
    return "\n\n".join(part(values) for part in parts)


def _levels(values: Mapping[str, int]) -> str:
    text = (
        f"Busy groups of one channel each, with slices of {SLICE} cycles: share of the methods by "
        "interleave level."
    )
    lines = [text, "", "| levels | shares |", "|---|---|"]
    for levels in LEVELS:
        shares = (values[level_key(levels, place)] for place in range(len(levels)))
        lines.append(f"| {_name(levels)} | {', '.join(f'{one / 10:.1f} %' for one in shares)} |")
    return "\n".join(lines)


def _slices(values: Mapping[str, int]) -> str:
    cells = (f"| {cycles} | {values[slice_key(cycles)] / 10:.1f} % |" for cycles in SLICES)
    head = ("Three busy groups of level LOW: share of the methods by slice.", "")
    return "\n".join((*head, "| slice in cycles | share |", "|--:|--:|", *cells))


def _gaps(values: Mapping[str, int]) -> str:
    text = (
        "Change of turn between two busy groups, some places apart in the list: cycles from the "
        "last method of one to the first of the other, at most. The next group is looked for "
        "during a turn, one place per cycle, so only a turn shorter than this search takes "
        "longer."
    )
    head = (
        f"| places apart | gap, slices of {SLICE} | gap, slices of {SHORT} | "
        f"methods in a turn of {SHORT} cycles |"
    )
    lines = [text, "", head, "|--:|--:|--:|--:|"]
    for far in FAR:
        cells = (values[key("gap", far, cycles)] for cycles in (SLICE, SHORT))
        lines.append(
            f"| {far} | {' | '.join(map(str, cells))} | {values[key('turn', far, SHORT)]} |"
        )
    lines += ["", "A list is submitted to an idle machine: cycles to the first method.", ""]
    lines += ["| TSGs in the list | cycles |", "|--:|--:|"]
    lines += [f"| {n} | {values[key('submit to first method', n)]} |" for n in LISTS]
    return "\n".join(lines)


def _urgent(values: Mapping[str, int]) -> str:
    text = (
        f"A group gets work while {BUSY_GROUPS} groups of level LOW are busy, all with slices of "
        f"{SLICE} cycles: cycles from its doorbell to its first method, in {MOMENTS} cases. Flat: "
        f"beside {BUSY_GROUPS} channels, each of which gets a further command of {SLICE} methods "
        "when it has begun its last one; the channel waits for all commands received before its "
        "own (COPY-5)."
    )
    lines = [text, "", "| level of the group | mean | at most |", "|---|--:|--:|"]
    names = {level.name: ("urgent", level.name) for level in Interleave} | {
        "flat": ("flat, urgent",)
    }
    for name, where in names.items():
        cells = (values[key(*where, kind)] for kind in _KINDS)
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _flat(values: Mapping[str, int]) -> str:
    """Tables of the shares of channels without a runlist."""

    def percent(name: str) -> str:
        return f"{values[name] / 10:.1f} %"

    pairs = (
        f"| {one} and {other} | {percent(pair_key((one, other)))} |" for one, other in FLAT_PAIRS
    )
    late = ", ".join(percent(arrival_key(place)) for place in range(3))
    commands = ", ".join(percent(command_key(cycles)) for cycles in SLICES)
    long, short = (values[key("flat, gap", cycles)] for cycles in (SLICE, SHORT))
    by_slice = (
        "Flat: without a runlist each channel has a slice of its own (SLICE), and the next channel "
        "is the one whose command was received first. Two busy channels: share of the methods by "
        "slice."
    )
    by_arrival = (
        f"Three busy channels with slices of {SLICE} cycles, all of whose commands were received "
        f"at the beginning, one channel after the other: {late}. The two with the oldest commands "
        "share; the third waits until they have newer ones. A runlist has no such order."
    )
    by_command = (
        f"Three busy channels with slices of {', '.join(map(str, SLICES))} cycles, which get "
        f"a further command of {SLICE} methods when they have begun their last one: {commands}. "
        "The order of the commands counts for more than the slices."
    )
    gaps = (
        "Change between two busy channels: cycles from the last method of one to the first of the "
        f"other, at most: {long} with slices of {SLICE} cycles, {short} with slices of {SHORT}."
    )
    table = (by_slice, "", "| slices in cycles | share of the first |", "|---|--:|", *pairs)
    return "\n".join((*table, "", by_arrival, "", by_command, "", gaps))


def plot(values: Mapping[str, int], file: Path) -> None:
    """Plot the times of an urgent group by its level."""
    lines = {
        text: [values[key("urgent", level.name, kind)] for level in Interleave]
        for kind, text in _KINDS.items()
    }
    panel = Panel("1 LOW, 2 MEDIUM, 3 HIGH", "interleave level of the group", (1, 2, 3), lines)
    save_plot(file, f"A group beside {BUSY_GROUPS} busy ones", "cycles to first method", [panel])
