"""Kept results: dependencies of a test, and tests that are not repeated."""

from pathlib import Path

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.tools import kept_results
from signalbox.tb.tools.dependencies import code, files

pytest_plugins = "pytester"


def test_code():
    """Comments, docstrings and formatting do not count; everything else does."""
    old = code(b'"""Text."""\nA = 1\n"""One."""\ndef f():\n    """No statement."""\n')
    assert old == code(b"A = (1)  # one\ndef f(): 'other'")
    assert old != code(b"A = 2\ndef f(): pass") and old != code(b'"""Text."""\nB = 1\ndef f(): 1')


def test_files():
    """Direct and indirect imports count, and modules named in strings, such as cocotb modules;
    other units do not."""
    found = {
        file.relative_to(ROOT).as_posix() for file in files(ROOT / "tb/units/copy/test_copy.py")
    }
    assert {
        "tb/units/copy/test_copy.py",
        "tb/units/copy/cocotb_copy.py",
        "tb/conftest.py",
        "tb/simulation/runner.py",
        "hw/copy/engine.py",
        "hw/lib/stream.py",
    } <= found
    assert not [
        file for file in found if file.startswith(("hw/placement", "tb/units/sm", "driver"))
    ]


TESTS = """
from pathlib import Path

import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_good(n, record_property):
    open("ran", "a").write(f"{n} ")
    record_property("cocotb", "pass tb/units/x.py::y")

def test_bad():
    open("ran", "a").write("bad ")
    assert False

@pytest.fixture
def torn():
    yield
    assert False

def test_torn(torn):
    open("ran", "a").write("torn ")
"""


@pytest.mark.parametrize("jobs", [(), pytest.param(("-n", "2"), marks=pytest.mark.nightly)])
def test_kept(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, jobs: tuple[str, ...]):
    """Passed tests are not repeated until their code or the seed changes, and are reported with the
    results of their cocotb tests; failed tests are repeated. The recorded digest is that of the
    code before the run."""
    (pytester.path / "digest").write_text("1")
    monkeypatch.setenv("SIGNALBOX_SEED", "7")
    pytester.makeconftest(
        "from pathlib import Path\n"
        f"from {kept_results.__name__} import *\n"
        f"import {kept_results.__name__} as kept\n"
        "kept.digest = lambda _: Path('digest').read_text()\n"
    )
    pytester.makepyfile(test_some=TESTS)

    def run() -> tuple[list[str], str]:
        Path("ran").write_text("")
        plugin = ("-p", kept_results.__name__, "--keep-results", "passed")
        result = pytester.runpytest_subprocess(*plugin, "--junitxml", "junit.xml", *jobs)
        result.assert_outcomes(passed=3, failed=1, errors=1)
        return sorted(Path("ran").read_text().split()), Path("junit.xml").read_text()

    ran, junit = run()
    assert ran == ["1", "2", "bad", "torn"] and "kept" not in junit
    with Path("passed").open("a") as file:
        file.write('\n{"test": "cut sh')  # a run was killed
    ran, junit = run()
    assert ran == ["bad", "torn"]
    assert junit.count('name="kept" value="seed 7"') == 2
    assert junit.count('value="pass tb/units/x.py::y"') == 2
    for seed, first in (("8", ["1", "2"]), ("7", []), ("", ["1", "2"]), ("", ["1", "2"])):
        monkeypatch.setenv("SIGNALBOX_SEED", seed)
        assert run()[0] == [*first, "bad", "torn"]
    monkeypatch.setenv("SIGNALBOX_SEED", "7")
    (pytester.path / "digest").write_text("2")
    assert run()[0] == ["1", "2", "bad", "torn"]
    assert run()[0] == ["bad", "torn"]
    (pytester.path / "digest").write_text("3")
    edits = "Path('digest').write_text('4'); record_property"
    pytester.makepyfile(test_some=TESTS.replace("record_property(", f"{edits}("))
    assert run()[0] == ["1", "2", "bad", "torn"]
    (pytester.path / "digest").write_text("3")  # of the code that was tested
    assert run()[0] == ["bad", "torn"]
    monkeypatch.setenv(kept_results.AGAIN, "1")
    assert run()[0] == ["1", "2", "bad", "torn"]


def test_files_that_passed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Tests of a file are not repeated if its digest is given, until its code changes. A file
    counts as passed if all its tests have passed, now or before."""
    monkeypatch.setenv("SIGNALBOX_SEED", "7")
    (pytester.path / "digest").write_text("1")
    pytester.makeconftest(
        "from pathlib import Path\n"
        f"import {kept_results.__name__} as kept\n"
        "kept.digest = lambda file: f'{Path(file).stem}-{Path(\"digest\").read_text()}'\n"
    )
    good = "def test_{0}(): open('ran', 'a').write('{0} ')\n"
    pytester.makepyfile(
        test_a=good.format("a") + good.format("b"), test_c=good.format("c"), test_some=TESTS
    )
    pytester.makepyfile(test_skip="import pytest\ndef test_skip(): pytest.skip()")

    def run(known: str) -> tuple[list[str], dict[str, str]]:
        """Tests that ran in the files without failures, and the files that passed."""
        Path("ran").write_text("")
        Path("passed").unlink(missing_ok=True)
        Path("files").write_text(known)
        plugin = ("-p", kept_results.__name__, "--keep-results", "passed", "--keep-files", "files")
        pytester.runpytest_subprocess(*plugin, "--junitxml", "junit.xml")
        ran = {"a", "b", "c"}.intersection(Path("ran").read_text().split())
        return sorted(ran), kept_results.passed_files(Path("junit.xml"))

    passed = {"test_a.py": "test_a-1", "test_c.py": "test_c-1"}
    assert run("{}") == (["a", "b", "c"], passed)
    assert run('{"test_a.py": "test_a-1", "test_c.py": "test_c-0"}') == (["c"], passed)
    (pytester.path / "digest").write_text("2")
    assert run('{"test_a.py": "test_a-1"}')[0] == ["a", "b", "c"]


def test_seed_of_a_repetition(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """With `--seeds`, each repetition has its own seed, whatever the first one is."""
    pytester.makeconftest(
        "from signalbox.tb.conftest import *\n"
        f"import {kept_results.__name__} as kept\n"
        "kept.digest = lambda _: '1'\n"
    )
    pytester.makepyfile(
        test_some="def test_simulated(simulator): open('ran', 'a').write(simulator[0])"
    )
    for first, ran in (("7", "vv"), ("8", "v"), ("7", "")):
        Path("ran").write_text("")
        monkeypatch.setenv("SIGNALBOX_SEED", first)
        plugin = ("-p", kept_results.__name__, "--keep-results", "passed")
        result = pytester.runpytest_subprocess(*plugin, "--seeds", "2", "-k", "verilator")
        result.assert_outcomes(passed=2)
        assert Path("ran").read_text() == ran
