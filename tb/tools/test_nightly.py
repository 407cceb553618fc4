"""`make nightly`: results are kept, passed parts are not repeated, and no failure is hidden."""

import sys
from pathlib import Path

import pytest

from signalbox.tb.tools import nightly
from signalbox.tb.tools.nightly import Part, page, run


def python(code: str, limit: int = 60) -> Part:
    return Part("a part", lambda seed: [[sys.executable, "-c", code, str(seed)]], limit)


GOOD = python("import sys; print('3 passed, seed', sys.argv[1])")
BAD = python("print('1 failed, 2 passed'); raise SystemExit(1)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nightly, "FOLDER", tmp_path)
    monkeypatch.setattr(nightly, "PARTS", {"good": GOOD, "bad": BAD})
    monkeypatch.setattr(nightly, "_commit", lambda: "abc")
    monkeypatch.setattr(nightly, "_SHOWING", ("good",))
    monkeypatch.setattr(nightly, "_plan_problems", problems)
    return tmp_path


def problems() -> list[str]:
    return ["COPY-1: nothing of it ran"]


def test_pass(folder: Path):
    outcome = run("good", GOOD, 7, "abc")
    assert (outcome.passed, outcome.seed, outcome.counts) == (True, 7, "3 passed, seed 7")


def test_failure(folder: Path):
    outcome = run("bad", BAD, 7, "abc")
    assert (outcome.passed, outcome.counts) == (False, "1 failed, 2 passed")


def test_too_long(folder: Path):
    outcome = run("slow", python("import time; time.sleep(60)", limit=1), 7, "abc")
    assert not outcome.passed and outcome.seconds < 30
    assert "not over after 1 s" in (folder / "slow.log").read_text()


def test_later_commands_run_after_a_failure(folder: Path):
    """A failed command does not prevent the following ones."""
    commands = [[sys.executable, "-c", f"print({n}); raise SystemExit({1 - n})"] for n in (0, 1)]
    assert not run("both", Part("", lambda _: commands), 7, "abc").passed
    assert "\n1\n" in (folder / "both.log").read_text()


def test_only_what_passed_is_kept(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert nightly.main(["--seed", "1"]) == 1
    assert nightly.main(["--seed", "2"]) == 1
    text = capsys.readouterr().out
    assert "good: passed before" in text and "bad: passed before" not in text
    assert nightly.main(["--seed", "3", "--again", "good"]) == 0
    assert "3 passed, seed 3" in (folder / "page.md").read_text()


def test_changed_files_are_tested_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nightly, "_commit", lambda: "abc+")
    assert nightly.main(["--seed", "1", "good"]) == 0
    assert nightly.main(["--seed", "2", "good"]) == 0
    assert "3 passed, seed 2" in (folder / "page.md").read_text()


def test_older_results_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Results of an older commit are shown with that commit, and do not count."""
    nightly.main(["--seed", "1", "good"])
    monkeypatch.setattr(nightly, "_commit", lambda: "def")
    nightly.main(["--seed", "2", "bad"])
    text = (folder / "page.md").read_text()
    assert "Nightly results of def" in text and "Not run on this commit: good." in text
    (row,) = (line for line in text.splitlines() if line.startswith("good "))
    assert " abc " in row and "seed 1" in row


def test_page(folder: Path):
    """The page shows failures, parts that have not run, and gaps of the plan."""
    bad = run("bad", BAD, 7, "abc")
    text = page("abc", [bad], problems)
    assert "FAIL" in text and "Not run on this commit: good." in text
    assert "Verification plan: not checked without good." in text and "COPY-1" not in text
    text = page("abc", [bad, run("good", GOOD, 7, "abc")], problems)
    assert "Verification plan: 1 problems.\n* COPY-1: nothing of it ran" in text


def test_unknown_part(folder: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        nightly.main(["best"])
    assert "no part best; there are good, bad" in capsys.readouterr().err
