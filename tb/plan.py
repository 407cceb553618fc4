"""The verification plan: which tests, proofs and benchmarks show each requirement.

    python -m tb.plan check     fails when a requirement has none, or names one that is not there
    python -m tb.plan table     prints the plan in Markdown, with results of `make test` if any

`plan.toml` has one table per requirement id (`title`, `tests`, `proofs`, `bench`) and `[pending]`
for what has not been started. Tests, proofs and benchmarks are named "file::name":

    tests    a pytest function of a `test_*.py` or a cocotb test of a `cocotb_*.py`
    proofs   a class of `tb/proofs/`
    bench    a function of any file
"""

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Entry", "check", "load", "results", "table"]

ROOT = Path(__file__).resolve().parent.parent
PLAN = Path(__file__).with_name("plan.toml")
RESULTS = ROOT / "sim_build" / "tests.xml"


@dataclass(frozen=True)
class Entry:
    """One requirement and what shows it."""

    id: str
    title: str
    tests: tuple[str, ...]
    proofs: tuple[str, ...]
    bench: tuple[str, ...]


def load(plan: Path = PLAN) -> tuple[list[Entry], dict[str, str]]:
    """Entries in the order of the file, and the pending ids with their subjects.

    Raises `ValueError` for an entry with unknown or missing keys.
    """
    content = tomllib.loads(plan.read_text())
    pending = content.pop("pending", {})
    entries = []
    for requirement, values in content.items():
        expected = {"title", "tests", "proofs", "bench"}
        if set(values) != expected:
            raise ValueError(f"{requirement}: keys are {sorted(values)}, not {sorted(expected)}")
        shown = {key: tuple(values[key]) for key in ("tests", "proofs", "bench")}
        entries.append(Entry(requirement, values["title"], **shown))
    return entries, pending


def check(entries: list[Entry], root: Path = ROOT) -> list[str]:
    """What is wrong with the plan, one sentence each; empty when it is complete."""
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
    """Names in `file` that count as `kind`; a function that nothing would run does not."""
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


def results(file: Path) -> dict[str, bool]:
    """Whether each pytest function of a JUnit file passed, all its parameters together; one that
    was only skipped is left out."""
    passed: dict[str, bool] = {}
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        function = case.get("name", "").partition("[")[0]
        name = f"{case.get('classname', '').replace('.', '/')}.py::{function}"
        good = case.find("failure") is None and case.find("error") is None
        passed[name] = passed.get(name, True) and good
    return passed


def table(entries: list[Entry], pending: dict[str, str], passed: dict[str, bool]) -> str:
    """The plan in Markdown; pytest functions with their result where there is one."""
    lines = ["| id | requirement | tests | proofs | benchmarks |", "|---|---|---|---|---|"]
    for entry in entries:
        cells = [_cell(names, passed) for names in (entry.tests, entry.proofs, entry.bench)]
        lines.append(f"| {entry.id} | {entry.title} | {' | '.join(cells)} |")
    if pending:
        lines += ["", "Not started:", ""]
        lines += [f"* {ids}: {subject}" for ids, subject in pending.items()]
    return "\n".join(lines) + "\n"


def _cell(names: tuple[str, ...], passed: dict[str, bool]) -> str:
    marks = {True: " (pass)", False: " (FAIL)", None: ""}
    shown = [f"`{name.removeprefix('tb/')}`{marks[passed.get(name)]}" for name in names]
    return "<br>".join(shown) or "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["check", "table"])
    parser.add_argument("--results", type=Path, default=RESULTS, help="JUnit file of the tests")
    arguments = parser.parse_args()
    entries, pending = load()
    if arguments.command == "table":
        passed = results(arguments.results) if arguments.results.exists() else {}
        print(table(entries, pending, passed), end="")
        return 0
    problems = check(entries)
    for problem in problems:
        print(problem)
    print(f"verification plan: {len(entries)} requirements, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
