"""Line and toggle coverage of the machine's Verilog, measured on Verilator.

    python -m signalbox.tb.tools.coverage [PYTEST ARGUMENTS]

Runs tests (default: directed and random tests of the whole machine at its default size) on builds
with coverage, adds up the counts, prints a table by module, and lists unreached points in
`sim_build/coverage/missing.txt`. `tb/tools/coverage.toml` names the points that cannot or need not
be reached, each with a reason. Temporaries of the Verilog exporter are not counted, but the lines
that use them are.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from signalbox.driver.text_table import table
from signalbox.tb.folders import ROOT, SIM_BUILD, shown
from signalbox.tb.simulation.runner import COVERAGE, DESIGN

__all__ = ["Exclusion", "Point", "main", "missing", "points", "summary"]

FOLDER = SIM_BUILD / "coverage"
EXCLUSIONS = Path(__file__).with_name("coverage.toml")

DEFAULT = (
    "tb/machine/test_host.py",
    "tb/machine/random/test_random.py",
    "-k",
    "verilator and default",
)
"""Tests that run by default."""

_RECORD = re.compile(r"^C '(?P<keys>.*)' (?P<count>\d+)$")
_TEMPORARY = re.compile(r"\$\d")
_ESCAPE = re.compile(r"__0([0-9A-Fa-f]{2})")
_MODULE = re.compile(r"^module ")


@dataclass(frozen=True, order=True)
class Point:
    """A coverage point. It is identical in every build, so that counts can be added up.

    Members
    -------
    module : module in the exported Verilog.
    kind : "toggle", "line" or "branch".
    what : for "toggle", the bit and its direction; for the others, the line's offset from the start
        of its module, and its text.
    """

    module: str
    kind: str
    what: str


@dataclass(frozen=True)
class Exclusion:
    """Points that need not be reached. `module`, `what` : shell patterns."""

    module: str
    what: str
    reason: str

    def covers(self, point: Point) -> bool:
        """Whether the exclusion covers `point`."""
        return fnmatch.fnmatchcase(point.module, self.module) and fnmatch.fnmatchcase(
            point.what, self.what
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run tests and print their coverage. Returns pytest's exit status."""
    chosen = sys.argv[1:] if arguments is None else arguments
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", *(chosen or DEFAULT)]
    done = subprocess.run(command, env={**os.environ, COVERAGE: str(FOLDER)}, cwd=ROOT)
    counts: Counter[Point] = Counter()
    for file in sorted(FOLDER.glob("*.dat")):
        counts.update(points(file))
    wanted = _wanted(counts, _exclusions())
    listing = FOLDER / "missing.txt"
    left = missing(wanted)
    listing.write_text("".join(f"{point.module} {point.kind} {point.what}\n" for point in left))
    print(summary(wanted))
    print(f"\n{len(left)} points were not reached: {shown(listing)}")
    return done.returncode


def points(file: Path) -> Counter[Point]:
    """Counts of one run, read from its coverage file. Points outside the design are left out."""
    counts: Counter[Point] = Counter()
    with file.open(encoding="utf-8") as records:
        for line in records:
            if (match := _RECORD.match(line)) and (point := _point(match["keys"])):
                counts[point] += int(match["count"])
    return counts


@cache
def _point(keys: str) -> Point | None:
    """The point of a record with the keys `\\1key\\2value…`; None if it is not part of the design.
    Cached, as the keys are the same in every run of a build."""
    record = dict(pair.split("\2", 1) for pair in keys.split("\1")[1:])
    kind, _, module = record["page"].removeprefix("v_").partition("/")
    what = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), record["o"])
    if module.partition(".")[0] != DESIGN or (kind == "toggle" and _TEMPORARY.match(what)):
        return None
    if kind != "toggle":
        what = f"{_place(Path(record['f']), int(record['l']))} ({what})"
    return Point(module, kind, what)


def missing(counts: Counter[Point]) -> list[Point]:
    """Points that were never reached."""
    return sorted(point for point, count in counts.items() if not count)


def summary(counts: Counter[Point]) -> str:
    """Table by module: reached and total points, by kind."""
    kinds = sorted({point.kind for point in counts})
    rows = [
        [module, *(_share(list(members), kind, counts) for kind in kinds)]
        for module, members in _by_module(counts)
    ]
    everything = list(counts)
    rows.append(["all", *(_share(everything, kind, counts) for kind in kinds)])
    return table(rows, ["module", *kinds])


def _share(members: Iterable[Point], kind: str, counts: Counter[Point]) -> str:
    mine = [counts[point] for point in members if point.kind == kind]
    reached = sum(count > 0 for count in mine)
    return f"{reached} of {len(mine)} ({100 * reached / len(mine):.1f} %)" if mine else "-"


def _by_module(counts: Counter[Point]) -> list[tuple[str, list[Point]]]:
    grouped = groupby(sorted(counts), lambda point: point.module)
    return [(module, list(members)) for module, members in grouped]


def _wanted(counts: Counter[Point], exclusions: Sequence[Exclusion]) -> Counter[Point]:
    """All points, except excluded ones that were not reached."""
    return Counter({
        point: count
        for point, count in counts.items()
        if count or not any(exclusion.covers(point) for exclusion in exclusions)
    })


def _exclusions() -> list[Exclusion]:
    tables = tomllib.loads(EXCLUSIONS.read_text(encoding="utf-8"))
    return [Exclusion(**entry) for entry in tables["exclude"]]


def _place(file: Path, number: int) -> str:
    """Line `number` of a file, as its offset from the start of its module, and its text."""
    lines, starts = _lines(file)
    start = starts[bisect_right(starts, number - 1) - 1]
    return f"+{number - 1 - start}: {lines[number - 1].strip()}"


@cache
def _lines(file: Path) -> tuple[list[str], list[int]]:
    """Lines of a file, and the indices of those that start a module."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return lines, [number for number, line in enumerate(lines) if _MODULE.match(line)]


if __name__ == "__main__":
    sys.exit(main())
