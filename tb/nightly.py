"""Everything that takes longer than a change may wait for, in parts, and one page of results.

    python -m signalbox.tb.nightly [--seed N] [--again] [PART...]

Without names, all parts are run, one after the other. A part takes an hour at most, or it fails.
Its outcome and its output are kept in `sim_build/nightly/`; a part that has passed on this very
commit is not run again unless `--again` asks for it. So an interrupted night goes on where it was.

In the end all that is known is written as one page, `sim_build/nightly/page.md`, and printed: parts
with their seeds, counts and times, and whether every requirement was shown. Of a part that was not
run on this commit it shows the last result, with its commit.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from signalbox.driver.text_table import table
from signalbox.hw.options import program
from signalbox.tb import plan
from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.limited import run_limited
from signalbox.tb.runner import choose_seed

__all__ = ["PARTS", "Outcome", "Part", "main", "page", "run"]

FOLDER = SIM_BUILD / "nightly"
HOUR = 3600  # seconds
SEEDS = 5  # of a part of that name
SEED_PARTS = 4

_SIMULATED = "verilator and not test_runner"
"""For pytest's `-k`: what takes a seed."""


@dataclass(frozen=True)
class Part:
    """Commands that are run one after the other.

    `about` : one sentence for the page. `commands` : made for a seed. `limit` : seconds for all of
    them. `later` : its seed comes so much after that of the night.
    """

    about: str
    commands: Callable[[int], Sequence[Sequence[str]]]
    limit: int = HOUR
    later: int = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a part on a commit. `counts` : results of its tests, as words."""

    part: str
    commit: str
    seed: int
    passed: bool
    seconds: float
    counts: str


def _pytest(part: str, *arguments: str) -> list[str]:
    """Tests on all cores; their results lie beside the log of the part."""
    junit = ["--junitxml", str(FOLDER / f"{part}.xml")]
    return _module("pytest", "tb", "-q", "-n", "auto", *junit, *arguments)


def _module(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", name, *arguments]


_EVERY_SIZE = ("--dist", "worksteal", "-m", "not (bench or soak)")


def _mutants(seed: int) -> list[list[str]]:
    sample = ("--sample", "200", "--seed", str(seed))
    return [_module("signalbox.tb.mutation", *sample, "--proofs", "hw", "driver")]


def _seeds(number: int) -> Part:
    """What simulates with every change, with further seeds."""
    about = f"{SEEDS} further seeds on Verilator"
    name, first = f"seeds_{number}", number * SEEDS
    repeated = ("--dist", "worksteal", "-k", _SIMULATED, "--seeds", str(SEEDS))
    return Part(about, lambda _: [_pytest(name, *repeated)], later=first)


PARTS = {
    "verilator": Part(
        "every size on Verilator",
        lambda _: [_pytest("verilator", *_EVERY_SIZE, "-k", "not icarus")],
    ),
    "icarus": Part(
        "every size on Icarus", lambda _: [_pytest("icarus", *_EVERY_SIZE, "-k", "icarus")]
    ),
    **{f"seeds_{n}": _seeds(n) for n in range(1, SEED_PARTS + 1)},
    "proofs": Part("all proofs", lambda _: [_module("signalbox.tb.proofs.run", "--all")]),
    "breaks": Part(
        "each proof fails on broken designs",
        lambda _: [_module("signalbox.tb.proofs.run", "--all", "--break")],
    ),
    "mutants": Part("a sample of mutants is killed", _mutants),
    "soak": Part("long random tests", lambda _: [_pytest("soak", "-m", "soak")]),
    "coverage": Part("coverage of the machine", lambda _: [_module("signalbox.tb.coverage")]),
    "bench": Part(
        "cycles are as recorded",
        lambda _: [_pytest("bench", "-m", "bench", "--dist", "loadfile")],
    ),
}
"""In the order in which they are run: the quickest to fail first."""

_SHOWING = ("verilator", "icarus", "soak", "bench", "proofs")
"""Parts whose results show the requirements of the plan."""


def run(name: str, part: Part, seed: int, commit: str) -> Outcome:
    """Run a part; its output goes into `<name>.log`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob(f"{name}.*"):
        old.unlink()
    began = time.monotonic()
    passed = True
    env = {**os.environ, "SIGNALBOX_SEED": str(seed), "SIGNALBOX_REQUIRE_ICARUS": "1"}
    log = FOLDER / f"{name}.log"
    for command in part.commands(seed):
        _add(log, f"$ {shlex.join(command)}")
        status = run_limited(command, env, log, max(part.limit - (time.monotonic() - began), 1))
        passed &= status == 0
        if status is None:
            _add(log, f"not over after {part.limit} s")
            break
    seconds = time.monotonic() - began
    return Outcome(name, commit, seed, passed, seconds, _counts(FOLDER / f"{name}.log"))


def _add(log: Path, line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


def _counts(log: Path) -> str:
    """The last line of the output that counts something."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    counting = [line for line in lines if any(word in line for word in (" passed", " of "))]
    return (counting or lines or [""])[-1].strip("= ").replace("|", "/")[:80]


def _known() -> dict[str, Outcome]:
    """The last outcome of each part, of whatever commit."""
    found = {}
    for name in PARTS:
        file = FOLDER / f"{name}.json"
        if file.exists():
            found[name] = Outcome(**json.loads(file.read_text()))
    return found


def _commit() -> str:
    """Name of the commit; with "+" for changes beside it, whose outcomes are not kept."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "HEAD") or "unknown") + "+" * bool(git("status", "--porcelain"))


def page(commit: str, outcomes: Sequence[Outcome], problems: Callable[[], Sequence[str]]) -> str:
    """Page of results, in Markdown. `problems` : checks the verification plan against the results
    of the parts `_SHOWING`."""
    rows = [
        [
            one.part,
            PARTS[one.part].about,
            "pass" if one.passed else "FAIL",
            f"{one.seconds / 60:.1f} min",
            str(one.seed),
            "" if one.commit == commit else one.commit[:7],
            one.counts,
        ]
        for one in outcomes
    ]
    fresh = {one.part for one in outcomes if one.commit == commit}
    missing = [name for name in PARTS if name not in fresh]
    lines = [
        f"# Nightly results of {commit}",
        "",
        table(rows, ["part", "what it runs", "result", "time", "seed", "older", "counts"]),
        "",
        f"Not run on this commit: {', '.join(missing) or 'nothing'}.",
        *_plan_lines([name for name in missing if name in _SHOWING], problems),
    ]
    return "\n".join(lines) + "\n"


def _plan_lines(missing: Sequence[str], problems: Callable[[], Sequence[str]]) -> list[str]:
    """Part of the page about the verification plan."""
    if missing:
        return [f"Verification plan: not checked without {', '.join(missing)}."]
    found = problems()
    return [f"Verification plan: {len(found)} problems.", *(f"* {problem}" for problem in found)]


def _plan_problems() -> list[str]:
    """Requirements and tests of the plan that the results in the folder do not show."""
    files = [FOLDER / f"{name}.xml" for name in _SHOWING if name != "proofs"]
    files.append(SIM_BUILD / "proofs.xml")
    present = []
    for file in files:
        try:
            ElementTree.parse(file)
        except (FileNotFoundError, ElementTree.ParseError):
            continue
        present.append(file)
    whole = plan.load()
    return plan.check(whole.entries) + plan.check_ran(whole, plan.results(present), nightly=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run parts and print the page; gives 1 unless all that were asked for have passed."""
    parser = argparse.ArgumentParser(
        prog=program("signalbox.tb.nightly"), description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, help="of all random numbers (a fresh one)")
    parser.add_argument("--again", action="store_true", help="run what has passed, too")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    seed, commit = choose_seed(options.seed), _commit()
    outcomes = _known()
    for name in options.parts or PARTS:
        kept = outcomes.get(name)
        passed_before = kept and kept.passed and kept.commit == commit
        if passed_before and not options.again and not commit.endswith("+"):
            print(f"{name}: passed before")
            continue
        print(f"{name}: {PARTS[name].about}, seed {seed} ...", flush=True)
        outcomes[name] = run(name, PARTS[name], seed + PARTS[name].later, commit)
        (FOLDER / f"{name}.json").write_text(json.dumps(asdict(outcomes[name])))
        verdict = "passed" if outcomes[name].passed else f"FAILED, see {FOLDER / name}.log"
        print(f"{name}: {verdict} ({outcomes[name].seconds / 60:.1f} min)", flush=True)
    text = page(commit, [outcomes[name] for name in PARTS if name in outcomes], _plan_problems)
    (FOLDER / "page.md").write_text(text)
    print(f"\n{text}")
    return 0 if all(outcomes[name].passed for name in options.parts or PARTS) else 1


if __name__ == "__main__":
    sys.exit(main())
