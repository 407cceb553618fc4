"""Runs the tests of a unit, then its proofs, for each mutant."""

import json
import os
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from signalbox.driver.text_table import table
from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.simulation.limited import run_limited
from signalbox.tb.tools.mutation import fates, limits
from signalbox.tb.tools.mutation.sites import Mutant, mutants

__all__ = [
    "Result",
    "Unit",
    "explanations",
    "find",
    "report",
    "run",
    "sample",
    "share",
    "unit_of",
    "units",
]

FOLDER = SIM_BUILD / "mutation"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Unit:
    """Sources below a path, with their tests and the prefixes of the names of their proofs."""

    sources: str
    tests: tuple[str, ...]
    proofs: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """Fate of a mutant (one of `fates.FATES`), with the test or the reason."""

    mutant: Mutant
    fate: str
    detail: str
    seconds: float


@dataclass(frozen=True)
class _Baseline:
    """A run of a unit's tests without a mutant: seconds of each test, and the mutants that it
    reached, by kind."""

    seconds: Mapping[str, float]
    reached: Mapping[str, frozenset[int]]


def units() -> list[Unit]:
    read = tomllib.loads((HERE / "units.toml").read_text())["unit"]
    return [Unit(one["sources"], tuple(one["tests"]), tuple(one["proofs"])) for one in read]


def unit_of(file: str) -> Unit:
    """The unit of a source file. Raises `ValueError` if there is none."""
    fitting = [unit for unit in units() if file.startswith(unit.sources)]
    if not fitting:
        raise ValueError(f"{file} belongs to no unit of units.toml")
    return max(fitting, key=lambda unit: len(unit.sources))


def find(paths: Iterable[str]) -> list[Mutant]:
    """Mutants of files or folders, or of one line of a file (`FILE:LINE`).

    Raises `ValueError` for a path without sources.
    """
    found = []
    for path in paths:
        name, _, line = path.partition(":")
        whole = (ROOT / name).resolve()
        files = sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]
        if not all(file.is_file() for file in files) or not files:
            raise ValueError(f"{path}: no such source")
        for file in files:
            all_of_file = mutants(file.relative_to(ROOT).as_posix(), file.read_text())
            found += [one for one in all_of_file if not line or one.line == int(line)]
    return found


def sample(found: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` random mutants in source order; all if there are fewer."""
    chosen = random.Random(seed).sample(range(len(found)), min(count, len(found)))
    return [found[n] for n in sorted(chosen)]


def share(chosen: Sequence[Mutant], number: int, count: int) -> Sequence[Mutant]:
    """Share `number`, from 1, of `count` shares of about the same size. Shares are in source order,
    so that few units are in two of them."""
    ends = [len(chosen) * n // count for n in (number - 1, number)]
    return chosen[slice(*ends)]


def run(chosen: Sequence[Mutant], *, seed: int, jobs: int, proofs: bool) -> list[Result]:
    """Try each mutant, printing each fate when it is known."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = []
    by_unit: dict[Unit, list[Mutant]] = {}
    for mutant in chosen:
        by_unit.setdefault(unit_of(mutant.file), []).append(mutant)
    for unit, group in by_unit.items():
        campaign = _Campaign(unit, group, seed)
        campaign.prepare(jobs)
        with ThreadPoolExecutor(jobs) as pool:
            done = list(pool.map(campaign.test, range(1, len(group) + 1)))
        for number, result in enumerate(done, 1):
            if proofs and result.fate in fates.LEFT:
                result = campaign.prove(number, result)
            results.append(result)
    return results


class _Campaign:
    """Mutants of one unit, numbered from 1 in the given order."""

    def __init__(self, unit: Unit, group: Sequence[Mutant], seed: int) -> None:
        self._unit, self._group = unit, group
        self._name = unit.sources.strip("/").replace("/", "-")
        self._base = _Baseline({}, {})
        active: dict[str, dict[int, int]] = {}
        for number, mutant in enumerate(group, 1):
            active.setdefault(mutant.file, {})[mutant.number] = number
        file = FOLDER / f"{self._name}.json"
        file.write_text(json.dumps(active))
        self._seconds = FOLDER / f"{self._name}-seconds.json"
        self._env = {
            **os.environ,
            "SIGNALBOX_MUTANTS": str(file),
            "SIGNALBOX_SECONDS": str(self._seconds),
            "SIGNALBOX_SEED": str(seed),
        }

    def prepare(self, jobs: int) -> None:
        """Build everything and run the tests without a mutant.

        Raises `RuntimeError` if a test fails.
        """
        seen = FOLDER / f"{self._name}-reached.txt"
        seen.unlink(missing_ok=True)
        log = self._log(0)
        print(
            f"{self._unit.sources}: {len(self._group)} mutants, the tests without any ...",
            flush=True,
        )
        began = time.monotonic()
        env = {**self._env, "SIGNALBOX_REACHED": str(seen)}
        if self._pytest(["-n", str(jobs)], env, log, None) != 0:
            raise RuntimeError(f"tests of {self._unit.sources} fail without a mutant, see {log}")
        reached: dict[str, set[int]] = {"hardware": set(), "invalid": set(), "python": set()}
        for line in seen.read_text().splitlines():
            kind, *numbers = line.split()
            reached[kind] |= set(map(int, numbers))
        self._base = _Baseline(
            limits.known(self._seconds),
            {kind: frozenset(of) for kind, of in reached.items()},
        )
        print(f"{self._unit.sources}: passed in {time.monotonic() - began:.0f} s")

    def test(self, number: int) -> Result:
        """Run the tests until one fails."""
        mutant, reached = self._group[number - 1], self._base.reached
        hardware = number in reached["hardware"]
        began = time.monotonic()
        if not hardware and number not in reached["python"]:
            if number in reached["invalid"]:
                return self._told(Result(mutant, "not built", "not valid hardware", 0.0))
            return self._told(Result(mutant, "unreached", "", 0.0))
        log, fate = self._log(number), FOLDER / f"{self._name}-{number}.json"
        fate.unlink(missing_ok=True)
        elaborated = not hardware and mutant.file.startswith("hw/")
        env = {
            **self._env,
            "SIGNALBOX_MUTANT": str(number),
            "SIGNALBOX_MUTANT_ELABORATED": str(int(elaborated)),
            "SIGNALBOX_FATE": str(fate),
        }
        limit = limits.of_all(self._base.seconds, builds=elaborated)
        status = self._pytest(["-n", "0", "-x"], env, log, limit)
        shown = ("survived", "") if status == 0 else fates.told(fate, status)
        return self._told(Result(mutant, *shown, time.monotonic() - began))

    def prove(self, number: int, before: Result) -> Result:
        """Run the proofs of the unit until one fails."""
        names = [name for name in _proofs() if name.startswith(self._unit.proofs)]
        env = {**self._env, "SIGNALBOX_MUTANT": str(number), "SIGNALBOX_MUTANT_BUILT": "1"}
        began = time.monotonic()
        for name in names:
            command = [sys.executable, "-m", "signalbox.tb.tools.mutation.prove", name]
            log = self._log(number, f"-{name}")
            if status := run_limited(command, env, log, None):
                seconds = before.seconds + time.monotonic() - began
                fate = "not built" if status == fates.NOT_BUILT else "proof"
                return self._told(Result(before.mutant, fate, name, seconds))
        return before

    def _log(self, number: int, suffix: str = "") -> Path:
        log = FOLDER / f"{self._name}-{number}{suffix}.log"
        log.unlink(missing_ok=True)
        return log

    def _pytest(
        self, arguments: list[str], env: Mapping[str, str], log: Path, limit: float | None
    ) -> int | None:
        options = [
            "-q",
            "-p",
            "signalbox.tb.tools.mutation.plugin",
            "-p",
            "no:cacheprovider",
            "--tb",
            "line",
        ]
        chosen = ["-k", "not icarus and not apart"]  # plusargs do not reach separate models
        command = [sys.executable, "-m", "pytest", *self._unit.tests, *options, *chosen, *arguments]
        return run_limited(command, env, log, limit)

    def _told(self, result: Result) -> Result:
        if result.fate == "survived" and (why := _why(result.mutant)):
            result = Result(result.mutant, "explained", why, result.seconds)
        line = f"{result.fate:9} {result.seconds:4.0f} s  {result.mutant}  {result.detail}"
        print(line.rstrip(), flush=True)
        return result


def report(results: Sequence[Result], seed: int) -> str:
    """Score of each file, and each mutant that is neither killed nor explained."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.mutant.file, Counter())[result.fate] += 1
    total: Counter[str] = sum(counts.values(), Counter())
    rows = [
        [file, sum(of.values()), *(of[fate] for fate in fates.FATES), _score(of)]
        for file, of in [*sorted(counts.items()), ("all", total)]
    ]
    left = [str(one.mutant) for one in results if one.fate in fates.LEFT]
    seconds = [one.seconds for one in results]
    lines = [
        f"Mutants of seed {seed}",
        "",
        table(rows, ["file", "mutants", *fates.FATES, "score"]),
        "",
        f"Seconds per mutant: {mean(seconds):.1f} on average, {max(seconds):.1f} at most.",
        f"{len(left)} neither killed nor explained{':' if left else '.'}",
        *left,
    ]
    return "\n".join(lines)


def _score(counts: Counter[str]) -> str:
    """Share of the noticed mutants among those that could be built."""
    built = counts.total() - counts["not built"]
    return f"{100 * sum(counts[fate] for fate in fates.NOTICED) // built} %" if built else "–"


def explanations() -> dict[tuple[str, str, str], str]:
    """Reasons why mutants do not indicate a gap, by file, text of the line and change."""
    read = tomllib.loads((HERE / "explained.toml").read_text()).get("mutant", [])
    return {(one["file"], one["text"], one["change"]): one["why"] for one in read}


def _why(mutant: Mutant) -> str | None:
    return explanations().get((mutant.file, mutant.text, mutant.change))


def _proofs() -> list[str]:
    from signalbox.tb.proofs.run import proofs  # takes a second, and is rarely needed

    return [name for name, proof in proofs().items() if not proof.long]
