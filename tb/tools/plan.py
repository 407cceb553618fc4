"""The verification plan: which tests, proofs and benchmarks show each requirement.

    python -m signalbox.tb.tools.plan check        fails if a requirement has no test or proof, or
                                                   names one that does not exist
    python -m signalbox.tb.tools.plan check --ran  the same; also fails unless they have run and
                                                   passed
    python -m signalbox.tb.tools.plan table        prints the plan in Markdown, with available
                                                   results

`plan.toml` has one table per requirement id (`title`, `tests`, `proofs`, `bench`); `[pending]`, the
requirements that have not been started; and `nightly`, the names that run in `make nightly` only.
Tests, proofs and benchmarks are named "file::name":

    tests    a pytest function of a `test_*.py` or a cocotb test of a `cocotb_*.py`
    proofs   a class of `tb/proofs/`
    bench    a function of any file

Results are read from the JUnit files of `make test` and `make prove`. With `--ran`, each test and
proof must have passed in `make test` or `make prove`, or be listed in `nightly` and not have run;
and each requirement needs one that ran. With `--nightly`, all must have run and passed.
"""

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.simulation.outcomes import PROPERTY, source

__all__ = ["Entry", "Plan", "check", "check_ran", "load", "results", "table"]

PLAN = Path(__file__).with_name("plan.toml")
RESULTS = [SIM_BUILD / name for name in ("tests.xml", "proofs.xml")]


@dataclass(frozen=True)
class Entry:
    """A requirement, with its tests, proofs and benchmarks."""

    id: str
    title: str
    tests: tuple[str, ...]
    proofs: tuple[str, ...]
    bench: tuple[str, ...]

    def shown(self) -> tuple[str, ...]:
        """Names of the tests and proofs. Benchmarks are not included, as they only measure."""
        return self.tests + self.proofs


@dataclass(frozen=True)
class Plan:
    """The contents of `plan.toml`.

    Members
    -------
    entries : in file order.
    pending : ids that have not been started, with their subjects.
    nightly : names that run in `make nightly` only.
    """

    entries: list[Entry]
    pending: dict[str, str]
    nightly: frozenset[str]


def load(plan: Path = PLAN) -> Plan:
    """Read the plan. Raises `ValueError` for an entry with unknown or missing keys."""
    content = tomllib.loads(plan.read_text())
    pending = content.pop("pending", {})
    nightly = frozenset(content.pop("nightly", []))
    entries = []
    for requirement, values in content.items():
        expected = {"title", "tests", "proofs", "bench"}
        if set(values) != expected:
            raise ValueError(f"{requirement}: keys are {sorted(values)}, not {sorted(expected)}")
        shown = {key: tuple(values[key]) for key in ("tests", "proofs", "bench")}
        entries.append(Entry(requirement, values["title"], **shown))
    return Plan(entries, pending, nightly)


def check(entries: list[Entry], root: Path = ROOT) -> list[str]:
    """Problems of the plan, one sentence each; empty if it is complete."""
    return [problem for entry in entries for problem in _problems(entry, root)]


def _problems(entry: Entry, root: Path) -> Iterator[str]:
    if not entry.tests and not entry.proofs:
        yield f"{entry.id}: neither a test nor a proof"
    for kind, names in (("test", entry.tests), ("proof", entry.proofs), ("bench", entry.bench)):
        for name in names:
            file, separator, function = name.partition("::")
            if not separator:
                yield f"{entry.id}: {name!r} is not of the form file::name"
            elif not (root / file).is_file():
                yield f"{entry.id}: {file} does not exist"
            elif function not in _names(root / file, kind):
                yield f"{entry.id}: {file} has no {kind} {function}"


@cache
def _names(file: Path, kind: str) -> frozenset[str]:
    """Names in `file` that count as `kind` ("test", "proof" or "bench"). A function that no test
    runner runs is not a test."""
    body = ast.parse(file.read_text()).body
    if kind == "proof":
        return frozenset(node.name for node in body if isinstance(node, ast.ClassDef))
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if kind == "bench":
        return frozenset(node.name for node in functions)
    if file.name.startswith("cocotb_"):
        return frozenset(node.name for node in functions if _is_cocotb(node))
    if file.name.startswith("test_"):
        return frozenset(node.name for node in functions if node.name.startswith("test_"))
    return frozenset()


def _is_cocotb(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        ast.unparse(decorator).startswith(("cocotb.test", "cocotb.parametrize"))
        for decorator in function.decorator_list
    )


def check_ran(plan: Plan, passed: dict[str, bool], *, nightly: bool = False) -> list[str]:
    """Deviations of the results from the plan, one sentence each.

    Parameters
    ----------
    passed : results by name.
    nightly : whether the results are those of `make nightly`.
    """
    named = {name for entry in plan.entries for name in entry.shown()}
    later = frozenset() if nightly else plan.nightly
    found = [f"{name} failed" for name in sorted(named) if passed.get(name) is False]
    found += [f"{name} did not run" for name in sorted(named - passed.keys() - later)]
    found += [f"{name} is called nightly and ran" for name in sorted(later & passed.keys())]
    found += [f"{name} is called nightly and not in the plan" for name in plan.nightly - named]
    for entry in plan.entries:
        if not any(name in passed for name in entry.shown()):
            found.append(f"{entry.id}: nothing of it ran")
    return found


def results(files: Iterable[Path]) -> dict[str, bool]:
    """Whether each test and proof in JUnit files passed: with all its parameters, in all files. A
    test that was always skipped is left out.

    A failed cocotb test within a passed pytest test counts as passed: its failure was expected.
    """
    passed: dict[str, bool] = {}
    for file in files:
        for case in ElementTree.parse(file).iter("testcase"):
            for name, good in _outcomes(case):
                passed[name] = passed.get(name, True) and good
    return passed


def _outcomes(case: ElementTree.Element) -> Iterator[tuple[str, bool]]:
    """(name, whether it passed) of a pytest test and of its cocotb tests; none if it was
    skipped."""
    if case.find("skipped") is not None:
        return
    good = case.find("failure") is None and case.find("error") is None
    yield f"{source(case)}::{case.get('name', '').partition('[')[0]}", good
    for entry in case.iter("property"):
        if entry.get("name") == PROPERTY:
            verdict, _, name = entry.get("value", "").partition(" ")
            yield name, good or verdict == "pass"


def table(plan: Plan, passed: dict[str, bool]) -> str:
    """The plan in Markdown, with results where available."""
    lines = ["| id | requirement | tests | proofs | benchmarks |", "|---|---|---|---|---|"]
    for entry in plan.entries:
        columns = (entry.tests, entry.proofs, entry.bench)
        cells = [_cell(names, passed, plan.nightly) for names in columns]
        lines.append(f"| {entry.id} | {entry.title} | {' | '.join(cells)} |")
    if plan.pending:
        lines += ["", "Not started:", ""]
        lines += [f"* {ids}: {subject}" for ids, subject in plan.pending.items()]
    return "\n".join(lines) + "\n"


def _cell(names: tuple[str, ...], passed: dict[str, bool], nightly: frozenset[str]) -> str:
    marks: dict[bool | None, str] = {True: " (pass)", False: " (FAIL)"}
    shown = []
    for name in names:
        mark = marks.get(passed.get(name), " (nightly)" if name in nightly else "")
        shown.append(f"`{name.removeprefix('tb/')}`{mark}")
    return "<br>".join(shown) or "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["check", "table"])
    parser.add_argument("--results", type=Path, nargs="+", help="JUnit files of tests and proofs")
    parser.add_argument("--ran", action="store_true", help="everything has to have run and passed")
    parser.add_argument("--nightly", action="store_true", help="what is nightly, too")
    arguments = parser.parse_args()
    plan = load()
    files = arguments.results or [file for file in RESULTS if file.exists()]
    if arguments.command == "table":
        print(table(plan, results(files)), end="")
        return 0
    problems = check(plan.entries)
    if arguments.ran or arguments.nightly:
        problems += check_ran(plan, results(files), nightly=arguments.nightly)
    for problem in problems:
        print(problem)
    print(f"verification plan: {len(plan.entries)} requirements, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
