"""Long checks, in parts, and one page of results.

    python -m signalbox.tb.tools.nightly [--seed N] [--limit MINUTES] [--again] [--record]
        [PART...]

Without names, all parts run one after another. A part fails if it takes longer than an hour, or
than `--limit` (for slow or busy machines). Its outcome and output are kept in `sim_build/nightly/`.
A part that has passed on the current sources, here or as recorded, is not repeated. In other parts,
with the same seed, these are not repeated (`kept_results`):

* tests that have passed here on the same code,
* if the part is recorded, tests of a file whose tests in it all passed on the same code.

So with its seed, which is printed, an interrupted run can be continued, and a change of one unit
costs only the tests of that unit. With another seed, all tests of these parts run. With `--again`,
everything is repeated.

At the end, all known results are printed and written to `sim_build/nightly/page.md`: parts with
their seeds, commits, counts and times, and whether each requirement is shown. Results of other
sources are marked as such. `--record` also writes results and page to `docs/`, to be committed, so
a nightly run can be spread over several machines and days.
"""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from signalbox.hw.options import program
from signalbox.tb.folders import SIM_BUILD
from signalbox.tb.simulation.limited import run_limited
from signalbox.tb.simulation.runner import choose_seed
from signalbox.tb.tools import kept_results
from signalbox.tb.tools.nightly_results import (
    FOLDER,
    Outcome,
    keep,
    known,
    page,
    planned,
    present_commit,
    record,
    same_sources,
)

__all__ = ["PARTS", "Part", "main", "run"]

HOUR = 3600  # seconds
SEEDS = 2  # per part of that name
SEED_PARTS = 10
ICARUS_SEEDS = 2
MUTANTS = 1000
MUTANT_PARTS = 10

_UNITS = {
    "host": ("host",),
    "streams": ("bus", "compute", "control", "copy", "front_end", "lib", "semaphore", "testbench"),
    "mmu": ("mmu",),
    "placement": ("nested", "placement", "task_unit"),
    "sm": ("sm",),
}
_ROOMS = {
    **{name: tuple(f"tb/units/{one}" for one in rooms) for name, rooms in _UNITS.items()},
    "machine": ("tb/machine",),
}
"""Folders of tests, by part. Each simulator has a part for each of these, and one part for all
other folders."""

_SIMULATED = "{} and not test_runner"
"""Filter for pytest's `-k`: the tests that use a seed, on one simulator."""


@dataclass(frozen=True)
class Part:
    """Commands that run one after another.

    Members
    -------
    about : one sentence for the page.
    commands : function that returns the commands for a seed.
    limit : seconds for all commands together.
    later : offset of the part's seed from the seed of the run.
    pages : whether the result of the part also depends on the pages.
    """

    about: str
    commands: Callable[[int], Sequence[Sequence[str]]]
    limit: int = HOUR
    later: int = 0
    pages: bool = False


def _pytest(part: str, *arguments: str, tests: Sequence[str] = ("examples", "tb")) -> list[str]:
    """Command that runs tests on all cores, with the JUnit file next to the part's log. Tests that
    passed on the same code with the same seed are not repeated."""
    junit = ["--junitxml", str(FOLDER / f"{part}.xml")]
    keep = ["-p", kept_results.__name__, "--keep-results", str(FOLDER / "passed.jsonl")]
    keep += ["--keep-files", str(_files_before(part))]
    return _module("pytest", *tests, "-q", "-n", "auto", *keep, *junit, *arguments)


def _files_before(part: str) -> Path:
    """File with the test files that passed in this part before, and their digests."""
    return FOLDER / f"{part}.files"


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


_TESTS_OF_PAGES = "tb/tools/test_docs.py"

_TYPES = _module("pyright", "--threads", "2", "tb/units")

_EVERY_SIZE = ("--dist", "worksteal", "-m", "not (bench or soak)", "--ignore", _TESTS_OF_PAGES)


def _sizes(simulator: str, chosen: str) -> dict[str, Part]:
    """Parts that run the tests of every size on one simulator: one for each of the `_ROOMS`, and
    one for all other folders. `chosen` : filter for pytest's `-k`."""
    prefix = simulator.lower()

    def part(room: str, about: str, tests: Sequence[str], *ignored: str) -> Part:
        command = _pytest(f"{prefix}_{room}", *_EVERY_SIZE, "-k", chosen, *ignored, tests=tests)
        return Part(f"every size on {simulator}, {about}", lambda _: [command])

    parts = {f"{prefix}_{room}": part(room, room, folders) for room, folders in _ROOMS.items()}
    apart = [word for folders in _ROOMS.values() for one in folders for word in ("--ignore", one)]
    others = part("others", "other folders", ("examples", "tb"), *apart)
    return parts | {f"{prefix}_others": others}


def _mutants(number: int) -> Part:
    """Part that runs a share of a sample of mutants."""
    share = f"{number}/{MUTANT_PARTS}"
    options = ("--sample", str(MUTANTS), "--share", share, "--proofs", "hw", "driver", "--seed")
    about = f"a sample of {MUTANTS} mutants is killed, {number} of {MUTANT_PARTS}"
    return Part(about, lambda seed: [_module("signalbox.tb.tools.mutation", *options, str(seed))])


def _seeds(number: int) -> Part:
    """Part that runs the simulating tests of `make test` on Verilator, with further seeds."""
    about = f"{SEEDS} further seeds on Verilator"
    name, first = f"seeds_{number}", number * SEEDS
    return Part(about, lambda _: [_repeated(name, "verilator", SEEDS)], later=first)


def _icarus_seeds(name: str) -> Part:
    """Part that runs the tests of `make test` on Icarus, with the seeds after those on
    Verilator."""
    about, later = f"{ICARUS_SEEDS} further seeds on Icarus", (SEED_PARTS + 1) * SEEDS
    return Part(about, lambda _: [_repeated(name, "icarus", ICARUS_SEEDS)], later=later)


def _repeated(part: str, simulator: str, seeds: int) -> list[str]:
    chosen = ("-k", _SIMULATED.format(simulator), "--seeds", str(seeds))
    return _pytest(part, "--dist", "worksteal", *chosen)


_SYNTHESISED = {
    "host": ("host.*", "semaphore*", "copy", "control"),
    "mmu": ("mmu*",),
    "tasks": ("task_unit*", "nested*"),
    "placement": ("placement", "placement-saving", "placement-nested", "placement.choice"),
    "wide": ("placement*-32", "placement*-132"),
    "sm": ("sm.*", "top"),
}
"""Patterns of units to synthesise, by part; each unit is in one part."""


def _synth(about: str, units: Sequence[str]) -> Part:
    """Part that synthesises the units, one after another on one core."""
    command = _module("signalbox.tb.tools.synth", "--check", *units)
    return Part(f"sizes and clocks, {about}", lambda _: [command])


_SITE = _module("sphinx", *"-q -W --keep-going -b html -c docs/site . sim_build/site".split())

PARTS = {
    "types": Part("types of the units' testbenches", lambda _: [_TYPES]),
    **_sizes("Verilator", "not icarus"),
    **_sizes("Icarus", "icarus"),
    **{f"seeds_{n}": _seeds(n) for n in range(1, SEED_PARTS + 1)},
    "seeds_icarus": _icarus_seeds("seeds_icarus"),
    "proofs": Part("all proofs", lambda _: [_module("signalbox.tb.proofs.run", "--all")]),
    "breaks": Part(
        "each proof fails on broken designs",
        lambda _: [_module("signalbox.tb.proofs.run", "--all", "--break")],
    ),
    **{f"mutants_{n}": _mutants(n) for n in range(1, MUTANT_PARTS + 1)},
    "soak": Part(
        "long random tests", lambda _: [_pytest("soak", "-m", "soak", "-k", "not export")]
    ),
    "exports": Part(
        "exported Verilog of every size",
        lambda _: [_pytest("exports", "-m", "soak", "-k", "export")],
    ),
    "docs": Part(
        "the pages are right, and build as a site",
        lambda _: [_module("pytest", "-q", _TESTS_OF_PAGES), _SITE],
        pages=True,
    ),
    "coverage": Part("coverage of the machine", lambda _: [_module("signalbox.tb.tools.coverage")]),
    "bench": Part(
        "cycles are as recorded",
        lambda _: [_pytest("bench", "-m", "bench", "--dist", "loadfile")],
    ),
    **{f"synth_{name}": _synth(name, units) for name, units in _SYNTHESISED.items()},
}
"""Parts, in the order in which they run: those that fail soonest come first."""

_SIMULATORS = [name for name in PARTS if name.startswith(("verilator", "icarus"))]
_SHOWING = (*_SIMULATORS, "soak", "exports", "bench", "proofs")
"""Parts with results that show the requirements of the plan."""


def run(
    name: str,
    part: Part,
    seed: int,
    commit: str,
    *,
    before: Outcome | None = None,
    again: bool = False,
) -> Outcome:
    """Run a part, with its output in `<name>.log`. `before` : last known result of the part, of any
    commit. `again` : repeat tests although their results are known."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in (*FOLDER.glob(f"{name}.*"), _junit(name)):
        old.unlink(missing_ok=True)
    reused = before if before and before.seed == seed and not again else None
    _files_before(name).write_text(json.dumps(dict(reused.files) if reused else {}))
    began = time.monotonic()
    statuses: list[int | None] = []
    env = {**os.environ, "SIGNALBOX_SEED": str(seed), "SIGNALBOX_REQUIRE_ICARUS": "1"}
    env |= {kept_results.AGAIN: str(int(again))}
    log = FOLDER / f"{name}.log"
    for command in part.commands(seed):
        _add(log, f"$ {shlex.join(command)}")
        left = max(part.limit - (time.monotonic() - began), 1)
        statuses.append(run_limited(command, env, log, left))
        if statuses[-1] is None:
            _add(log, f"not over after {part.limit} s")
            break
    seconds = time.monotonic() - began
    counts = _counts(log) + _before(name)
    tests = {**(reused.tests if reused else {}), **_shown(name)}
    # An interrupted run reports only some of a file's tests.
    whole = set(statuses) <= {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}
    files = kept_results.passed_files(_junit(name)) if whole and _junit(name).exists() else {}
    passed = not any(status != 0 for status in statuses)
    return Outcome(name, commit, seed, passed, seconds, counts, tests, files)


def _junit(name: str) -> Path:
    """File with the results of the part's tests."""
    return SIM_BUILD / "proofs.xml" if name == "proofs" else FOLDER / f"{name}.xml"


def _shown(name: str) -> dict[str, bool]:
    """Results of the part that show requirements."""
    try:
        return planned([_junit(name)]) if name in _SHOWING else {}
    except (FileNotFoundError, ElementTree.ParseError):
        return {}


def _before(name: str) -> str:
    """Text with the number of tests of the part that were not repeated; "" for none."""
    try:
        properties = ElementTree.parse(_junit(name)).iter("property")
    except (FileNotFoundError, ElementTree.ParseError):
        return ""
    count = sum(one.get("name") == kept_results.KEPT for one in properties)
    return f", {count} of them before" if count else ""


def _add(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def _counts(log: Path) -> str:
    """The last line of the log that contains counts."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    counting = [line for line in lines if any(word in line for word in (" passed", " of "))]
    return (counting or lines or [""])[-1].strip("= ").replace("|", "/")[:80]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts and print the page. Returns 0 if all requested parts have passed, else 1."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.tools.nightly"), description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, help="of all random numbers (a fresh one)")
    parser.add_argument("--limit", type=int, metavar="MINUTES", help="time of a part (60)")
    parser.add_argument("--again", action="store_true", help="run what has passed, too")
    parser.add_argument("--record", action="store_true", help="write results to docs/, too")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    seed, commit = choose_seed(options.seed), present_commit()
    if options.record and commit.endswith("+"):
        parser.error("results of uncommitted changes cannot be recorded")

    def counts(outcome: Outcome) -> bool:
        pages = PARTS[outcome.part].pages
        return same_sources(outcome.commit, commit, pages=pages)

    outcomes = known(PARTS, counts)
    for name in options.parts or PARTS:
        before = outcomes.get(name)
        if before and before.passed and counts(before) and not options.again:
            print(f"{name}: passed before")
            continue
        part = PARTS[name]
        if options.limit:
            part = replace(part, limit=60 * options.limit)
        print(f"{name}: {part.about}, seed {seed} ...", flush=True)
        outcomes[name] = run(
            name, part, seed + part.later, commit, before=before, again=options.again
        )
        keep(outcomes[name])
        verdict = "passed" if outcomes[name].passed else f"FAILED, see {FOLDER / name}.log"
        print(f"{name}: {verdict} ({outcomes[name].seconds / 60:.1f} min)", flush=True)
    shown = [outcomes[name] for name in PARTS if name in outcomes]
    current = [one for one in shown if counts(one)]
    missing = [name for name in PARTS if name not in {one.part for one in current}]
    text = page(commit, shown, missing, {n: part.about for n, part in PARTS.items()}, _SHOWING)
    (FOLDER / "page.md").write_text(text)
    print(f"\n{text}")
    if options.record:
        record((one for one in shown if not one.commit.endswith("+")), text)
    return 0 if all(outcomes[name].passed for name in options.parts or PARTS) else 1


if __name__ == "__main__":
    sys.exit(main())
