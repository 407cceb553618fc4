"""Results of nightly parts: kept where they ran, recorded in `docs/nightly/`, shown on a page."""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from signalbox.driver.text_table import table
from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.tools import plan
from signalbox.tb.tools.dependencies import code

__all__ = [
    "FOLDER",
    "Outcome",
    "keep",
    "known",
    "page",
    "planned",
    "present_commit",
    "record",
    "same_sources",
]

FOLDER = SIM_BUILD / "nightly"
"""Logs and results of the parts that ran here."""

RECORDED = ROOT / "docs" / "nightly"
"""Results that were recorded, from any machine."""

PAGE = ROOT / "docs" / "nightly.md"

_PAGES = (
    ":!docs",
    ":(exclude,glob)**/README.md",
    ":!CHANGELOG.md",
    ":!CONTRIBUTING.md",
    ":!LICENSE",
)
"""Pathspecs that leave out files without an effect on results, except of parts that read the
pages."""


@dataclass(frozen=True)
class Outcome:
    """Result of a part on a commit.

    Members
    -------
    part, commit, seed : name of the part, hash of the commit, seed of the part.
    passed, seconds : whether it passed, and its duration.
    counts : summary of its tests, as text.
    tests : whether each test and proof of the verification plan that ran has passed.
    files : test files of which all tests in this part have passed, with the digests of their code
        (`kept_results`).
    """

    part: str
    commit: str
    seed: int
    passed: bool
    seconds: float
    counts: str
    tests: Mapping[str, bool] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def keep(outcome: Outcome) -> None:
    """Keep a result for the next run."""
    _write(outcome, FOLDER)


def _write(outcome: Outcome, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(asdict(outcome), indent=1)
    (folder / f"{outcome.part}.json").write_text(content + "\n")


def known(parts: Iterable[str], counts: Callable[[Outcome], bool]) -> dict[str, Outcome]:
    """A result of each part that has one, kept here or recorded. If there are both, the result here
    is preferred, unless only the recorded one applies to the present sources. `counts` : whether a
    result applies to them."""
    found: dict[str, Outcome] = {}
    for part, folder in product(parts, (FOLDER, RECORDED)):
        file = folder / f"{part}.json"
        if file.exists():
            outcome = Outcome(**json.loads(file.read_text()))
            if part not in found or (counts(outcome) and not counts(found[part])):
                found[part] = outcome
    return found


def record(outcomes: Iterable[Outcome], text: str) -> None:
    """Write results and the page to `docs/`, to be committed. `text` : the page."""
    for outcome in outcomes:
        _write(outcome, RECORDED)
    PAGE.write_text(text)


def present_commit() -> str:
    """Hash of the present commit, with "+" if there are uncommitted changes other than recorded
    results; "unknown+" without a repository."""
    changes = _git("status", "--porcelain", "--", ".", *_apart())
    head = _git("rev-parse", "HEAD")
    return head + "+" * bool(changes) if head else "unknown+"


def same_sources(one: str, other: str, *, pages: bool = False) -> bool:
    """Whether two commits differ in nothing that can change a result. They may differ in pages,
    comments and docstrings, or, with `pages`, in recorded results only. A commit with "+", that is,
    with uncommitted changes, equals no commit."""
    if "+" in one + other:
        return False
    if one == other:
        return True
    command = ["git", "diff", "--name-only", "--no-renames", "-z", one, other, "--", "."]
    command += _apart() if pages else _PAGES
    differ = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    files = [file for file in differ.stdout.split("\0") if file]
    if differ.returncode != 0 or (files and pages):
        return False
    return all(
        file.endswith(".py") and _code(one, file) == _code(other, file) is not None
        for file in files
    )


def _code(commit: str, file: str) -> str | None:
    """Code of a Python file; None if the commit has no such file."""
    shown = subprocess.run(["git", "show", f"{commit}:{file}"], cwd=ROOT, capture_output=True)
    if shown.returncode != 0:
        return None
    return code(shown.stdout)


def _apart() -> list[str]:
    """Pathspecs that leave out the recorded results."""
    return [f":!{path.relative_to(ROOT)}" for path in (RECORDED, PAGE)]


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def page(
    commit: str,
    outcomes: Sequence[Outcome],
    missing: Sequence[str],
    abouts: Mapping[str, str],
    showing: Sequence[str],
) -> str:
    """Page of results, in Markdown.

    Parameters
    ----------
    commit : present commit.
    outcomes : known results, of any commit.
    missing : parts that have not run on the sources of this commit.
    abouts : description of each part.
    showing : parts with results that show the requirements of the plan.
    """
    rows = [
        [
            one.part,
            abouts[one.part],
            "pass" if one.passed else "FAIL",
            f"{one.seconds / 60:.1f} min",
            str(one.seed),
            one.commit[:9].removesuffix("+")
            + "+" * one.commit.endswith("+")
            + " (other)" * (one.part in missing),
            one.counts,
        ]
        for one in outcomes
    ]
    lines = [
        "# Nightly results",
        "",
        f"On the sources of commit {commit}. A result counts for every commit that differs only in",
        "pages, comments and docstrings.",
        "",
        "```",
        table(rows, ["part", "what it runs", "result", "time", "seed", "commit", "counts"]),
        "```",
        "",
        f"Not run on these sources: {', '.join(missing) or 'nothing'}.",
        "",
        *_plan_lines([part for part in missing if part in showing], outcomes, showing),
    ]
    return "\n".join(lines) + "\n"


def _plan_lines(
    missing: Sequence[str], outcomes: Sequence[Outcome], showing: Sequence[str]
) -> list[str]:
    """Section of the page about the verification plan."""
    ran = {one.part for one in outcomes}
    if never := [part for part in showing if part not in ran]:
        return [f"Verification plan: not checked without {', '.join(never)}."]
    passed: dict[str, bool] = {}
    for outcome in outcomes:
        for name, good in outcome.tests.items():
            passed[name] = passed.get(name, True) and good
    problems = plan_problems(passed)
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    others = f", with {', '.join(missing)} of other sources" if missing else ""
    return [f"Verification plan: {count}{others}.", *(f"* {problem}" for problem in problems)]


def plan_problems(passed: dict[str, bool]) -> list[str]:
    """Problems of the plan; requirements and tests not shown by these results."""
    whole = plan.load()
    return plan.check(whole.entries) + plan.check_ran(whole, passed, nightly=True)


def planned(files: Iterable[Path]) -> dict[str, bool]:
    """Results, in JUnit files, of the tests and proofs that the plan names."""
    named = {name for entry in plan.load().entries for name in entry.shown()}
    return {name: good for name, good in sorted(plan.results(files).items()) if name in named}
