"""`make nightly`: results are kept, passed parts are not repeated, and no failure is hidden."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.tools import nightly, nightly_results, plan, synth
from signalbox.tb.tools.nightly import PARTS, Part, run
from signalbox.tb.tools.nightly_results import Outcome, known, page, present_commit, same_sources


def python(code: str, limit: int = 60) -> Part:
    return Part("a part", lambda seed: [[sys.executable, "-c", code, str(seed)]], limit)


GOOD = python("import sys; print('3 passed, seed', sys.argv[1])")
BAD = python("print('1 failed, 2 passed'); raise SystemExit(1)")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (nightly, nightly_results):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(nightly_results, "RECORDED", tmp_path / "recorded")
    monkeypatch.setattr(nightly_results, "PAGE", tmp_path / "recorded.md")
    monkeypatch.setattr(nightly, "PARTS", {"good": GOOD, "bad": BAD})
    monkeypatch.setattr(nightly, "present_commit", lambda: "abc")
    monkeypatch.setattr(nightly, "_SHOWING", ("good",))
    monkeypatch.setattr(nightly_results, "plan_problems", problems)
    return tmp_path


def problems(passed: dict[str, bool]) -> list[str]:
    return [] if passed.get("COPY-1") else ["COPY-1: nothing of it ran"]


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


def test_longer_limit(folder: Path, monkeypatch: pytest.MonkeyPatch):
    slow = python("import time; time.sleep(2); print('1 passed')", limit=1)
    monkeypatch.setattr(nightly, "PARTS", {"slow": slow})
    assert nightly.main(["slow"]) == 1
    assert nightly.main(["--limit", "1", "slow"]) == 0


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
    monkeypatch.setattr(nightly, "present_commit", lambda: "abc+")
    assert nightly.main(["--seed", "1", "good"]) == 0
    assert nightly.main(["--seed", "2", "good"]) == 0
    text = (folder / "page.md").read_text()
    assert "3 passed, seed 2" in text and " abc+ (other) " in text
    assert "Not run on these sources: good, bad." in text
    with pytest.raises(SystemExit):
        nightly.main(["--record", "good"])


def test_older_results_are_shown(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Results of an older commit are shown with that commit, and do not count."""
    nightly.main(["--seed", "1", "good"])
    monkeypatch.setattr(nightly, "present_commit", lambda: "def")
    nightly.main(["--seed", "2", "bad"])
    text = (folder / "page.md").read_text()
    assert "sources of commit def" in text and "Not run on these sources: good." in text
    (row,) = (line for line in text.splitlines() if line.startswith("good "))
    assert " abc (other) " in row and "seed 1" in row


def test_results_of_other_machines(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Recorded results count if nothing else is known, on commits with the same sources."""
    assert nightly.main(["--seed", "1", "--record", "good"]) == 0
    monkeypatch.setattr(nightly, "present_commit", lambda: "xyz")
    assert nightly.main(["--seed", "4", "good"]) == 0
    monkeypatch.setattr(nightly, "present_commit", lambda: "def")
    monkeypatch.setattr(nightly, "same_sources", lambda *both, **_: "xyz" not in both)
    nightly.main(["--seed", "2", "--record"])
    text = (folder / "recorded.md").read_text()
    assert "3 passed, seed 1" in text and "Not run on these sources: nothing." in text
    assert text == (folder / "page.md").read_text()


def test_a_night_of_several_days(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Results of other sources are recorded beside results of the present sources."""
    monkeypatch.setattr(nightly, "same_sources", lambda one, other, **_: one == other)
    nightly.main(["--seed", "1", "good"])
    monkeypatch.setattr(nightly, "present_commit", lambda: "def")
    nightly.main(["--seed", "2", "--record", "bad"])
    recorded = known(["good", "bad"], lambda _: False)
    assert {name: one.commit for name, one in recorded.items()} == {"good": "abc", "bad": "def"}
    assert sorted(file.stem for file in (folder / "recorded").glob("*.json")) == ["bad", "good"]


def test_same_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Changes of pages and docstrings affect only parts that read them; changes of recorded results
    affect none."""
    for name, path in (("ROOT", "."), ("RECORDED", "docs/nightly"), ("PAGE", "docs/nightly.md")):
        monkeypatch.setattr(nightly_results, name, tmp_path / path)

    def changed(path: str, more: str = "more = 1\n") -> str:
        """A commit that adds to a file."""
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        with (tmp_path / path).open("a") as file:
            file.write(more)
        assert present_commit().endswith("+") != path.startswith("docs/nightly")
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        me = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        subprocess.run(["git", *me, "commit", "-qm", path], cwd=tmp_path, check=True)
        return present_commit()

    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    first, results, _, page, source = map(
        changed, ("hw/a.py", "docs/nightly/bench.json", "hw/README.md", "docs/a.md", "hw/ISA.md")
    )
    assert same_sources(first, results) and same_sources(first, results, pages=True)
    assert same_sources(first, page) and not same_sources(first, page, pages=True)
    assert not same_sources(first, source) and not same_sources("unknown", first)
    assert not same_sources(first + "+", first + "+") and not same_sources(first, page + "+")
    text = changed("hw/a.py", '"""Number of a."""  # the only one\n')
    assert same_sources(source, text) and not same_sources(source, text, pages=True)
    code, new = changed("hw/a.py"), changed("hw/new.py", '"""Nothing else."""\n')
    assert not same_sources(text, code) and not same_sources(code, new)


def test_nothing_to_compare_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without a repository, nothing is reused."""
    for name, path in (("ROOT", "."), ("RECORDED", "docs/nightly"), ("PAGE", "docs/nightly.md")):
        monkeypatch.setattr(nightly_results, name, tmp_path / path)
    assert present_commit() == "unknown+"


def test_results_of_tests(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A part keeps the results of the tests and proofs that the plan names, of this run only."""
    good, other = plan.load().entries[0].tests[0], "tb/tools/test_none.py::test_none"
    cases = "".join(
        f'<testcase classname="{file[:-3].replace("/", ".")}" name="{name}[verilator]"/>'
        for file, name in (test.split("::") for test in (good, other))
    )
    junit, junit_text = folder / "good.xml", f"<testsuite>{cases}</testsuite>"
    write = f"import sys; open({str(junit)!r}, 'w').write({junit_text!r}); print('2 passed')"
    assert run("good", python(write), 7, "abc").tests == {good: True}
    assert run("good", GOOD, 7, "abc").tests == {}
    nightly_results.keep(run("good", python(write), 7, "abc"))
    assert known(["good"], lambda _: True)["good"].tests == {good: True}
    monkeypatch.setattr(nightly, "SIM_BUILD", folder)
    monkeypatch.setattr(nightly, "_SHOWING", ("proofs",))
    (folder / "proofs.xml").write_text(junit_text)
    assert run("proofs", BAD, 7, "abc").tests == {}


def test_kept_results(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The number of tests that were not repeated is shown; with `again`, all are repeated."""
    junit = folder / "good.xml"
    text = '<testcase><properties><property name="kept" value="seed 1"/></properties></testcase>'
    write = f"open({str(junit)!r}, 'w').write({text!r}); print('2 passed')"
    assert run("good", python(write), 7, "abc").counts == "2 passed, 1 of them before"
    again = "import os; print(os.environ['SIGNALBOX_AGAIN'], 'passed')"
    for options, shown in ((["--again"], "1 passed"), (["--seed", "2"], "0 passed")):
        monkeypatch.setattr(nightly, "PARTS", {shown[0]: python(again)})
        assert nightly.main(options) == 0
        assert shown in (folder / "page.md").read_text()


def test_files_that_passed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A part with its recorded seed is told which files have passed, and keeps the results of
    their tests."""
    show = "import sys, pathlib; print(pathlib.Path(sys.argv[2]).read_text(), 'passed')"
    command = [sys.executable, "-c", show, "7", str(folder / "good.files")]
    part = Part("a part", lambda _: [command])
    before = Outcome("good", "xyz", 7, False, 1, "", {"COPY-1": True}, {"test_a.py": "0123"})
    outcome = run("good", part, 7, "abc", before=before)
    assert outcome.counts == '{"test_a.py": "0123"} passed'
    assert outcome.tests == {"COPY-1": True}
    for fresh in (run("good", part, 8, "abc", before=before), run("good", part, 7, "abc")):
        assert (fresh.counts, fresh.tests) == ("{} passed", {})
    again = run("good", part, 7, "abc", before=before, again=True)
    assert (again.counts, again.tests) == ("{} passed", {})


@pytest.mark.parametrize(("status", "known"), [(0, True), (1, True), (2, False), (-15, False)])
def test_files_of_an_interrupted_run(folder: Path, status: int, known: bool):
    """Files count as passed only if the run was not interrupted: otherwise results of some of their
    tests may be missing."""
    case = '<testcase classname="tb.test_a" name="test_a"><properties>'
    case += '<property name="digest" value="0123"/></properties></testcase>'
    end = f"os.kill(os.getpid(), {-status})" if status < 0 else f"os._exit({status})"
    code = f"import os; open({str(folder / 'good.xml')!r}, 'w').write({case!r}); {end}"
    outcome = run("good", python(code), 7, "abc")
    assert outcome.passed == (status == 0)
    assert outcome.files == ({"tb/test_a.py": "0123"} if known else {})


@pytest.mark.parametrize("simulator", ["verilator", "icarus"])
def test_each_folder_has_a_part(simulator: str):
    """Each folder of tests belongs to one of the parts of a simulator."""
    apart: list[str] = []
    for name, part in PARTS.items():
        if name.startswith(f"{simulator}_") and name != f"{simulator}_others":
            (command,) = part.commands(0)
            apart += command[3 : command.index("-q")]
    (others,) = PARTS[f"{simulator}_others"].commands(0)
    ignored = [word for option, word in pairwise(others) if option == "--ignore"]
    assert len(apart) == len(set(apart)) and set(apart) < set(ignored)
    assert all((ROOT / one).is_dir() for one in apart)
    assert {one.name for one in (ROOT / "tb/units").iterdir() if [*one.glob("test_*.py")]} <= {
        Path(one).name for one in apart
    }


def test_further_seeds():
    """No two parts have a seed in common, nor one with `make test`; they are on both simulators."""
    seeds, simulators = [0], set()
    for name, part in PARTS.items():
        if name.startswith("seeds_"):
            (command,) = part.commands(0)
            count = int(command[command.index("--seeds") + 1])
            seeds += range(part.later, part.later + count)
            simulators.add(command[command.index("-k") + 1].partition(" ")[0])
    assert len(seeds) == len(set(seeds)) == 1 + 20 + 2
    assert simulators == {"verilator", "icarus"}


def test_each_unit_is_synthesised_once():
    units = []
    for name, part in PARTS.items():
        if name.startswith("synth_"):
            (command,) = part.commands(0)
            units += synth.matching(command[command.index("--check") + 1 :])
    assert sorted(units) == sorted(synth.UNITS)


def test_page(folder: Path):
    """The page shows failures, parts that have not run, and gaps of the plan."""
    abouts = {"good": "a part", "bad": "another"}
    bad = run("bad", BAD, 7, "abc")
    text = page("abc", [bad], ["good"], abouts, ["good"])
    assert "FAIL" in text and "Not run on these sources: good." in text
    assert "Verification plan: not checked without good." in text and "COPY-1" not in text
    old = Outcome("good", "xyz", 7, True, 1, "", {"COPY-1": True})
    text = page("abc", [bad, old], ["good"], abouts, ["good"])
    assert "xyz (other)" in text
    assert "Verification plan: 0 problems, with good of other sources." in text
    good = run("good", GOOD, 7, "abc")
    text = page("abc", [bad, good], [], abouts, ["good"])
    assert "Verification plan: 1 problem.\n* COPY-1: nothing of it ran" in text
    shows = Outcome("good", "abc", 7, True, 1, "", {"COPY-1": True})
    assert "Verification plan: 0 problems." in page("abc", [bad, shows], [], abouts, ["good"])


def test_unknown_part(folder: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        nightly.main(["best"])
    assert "no part best; there are good, bad" in capsys.readouterr().err
