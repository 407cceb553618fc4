"""Plugin of pytest: tests that have passed on the same code with the same seed are not repeated.

    pytest -p signalbox.tb.tools.kept_results --keep-results FILE [--keep-files FILES]

FILE has a line for each test that passed: its name, the digest of everything that its results
depend on (`tb.tools.dependencies`), its seed and the results of its cocotb tests. If a line has the
present digest and seed, the test is reported as passed, with these results and the property `kept`,
which contains the seed.

FILES is a JSON object with the digest of each test file of which all tests have passed. If a digest
is the present one, the tests of the file are reported as passed, too, without results of cocotb
tests. The seed is not compared: the caller must give a FILES of the present seed.

Some tests always run. Without `SIGNALBOX_SEED`, each run has another seed, so all tests run. Tests
in `tb/tools` read all files of the project, and tests in `examples` import modules from outside it.
With `SIGNALBOX_AGAIN=1`, all tests run.
"""

import json
import os
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.simulation.outcomes import PROPERTY, source
from signalbox.tb.tools.dependencies import digest

__all__ = ["AGAIN", "KEPT", "KeptResults", "passed_files"]

AGAIN = "SIGNALBOX_AGAIN"
"""Environment variable: 1 to repeat tests although their results are kept."""

KEPT = "kept"
"""Name of the JUnit property of a test that was not repeated."""

_DIGEST = "digest"
"""Name of the JUnit property with the digest of a test."""

_SEED = "seed"
"""Name of the JUnit property with the seed of a test that ran."""

_OPTION = "--keep-results"
_FILES = "--keep-files"


@dataclass(frozen=True)
class _Passed:
    """A test that passed. `cocotb` : results as in `tb.simulation.outcomes`."""

    test: str
    digest: str
    seed: str
    cocotb: list[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, metavar="FILE", help="do not repeat what is in FILE")
    parser.addoption(_FILES, type=Path, metavar="FILES", help="nor the test files in FILES")


def pytest_configure(config: pytest.Config) -> None:
    if file := config.getoption(_OPTION):
        writes = not hasattr(config, "workerinput")
        files = config.getoption(_FILES)
        known = json.loads(files.read_text()) if files else {}
        config.pluginmanager.register(KeptResults(file, known, writes=writes))


def passed_files(junit: Path) -> dict[str, str]:
    """Test files in a JUnit file of which all tests have passed, with their digests."""
    digests: dict[str, str] = {}
    other: set[str] = set()
    for case in ElementTree.parse(junit).iter("testcase"):
        file, found = source(case), [one for one in case.iter("property")]
        tested = next((one.get("value", "") for one in found if one.get("name") == _DIGEST), "")
        good = all(case.find(kind) is None for kind in ("failure", "error", "skipped"))
        if not good or not tested or digests.setdefault(file, tested) != tested:
            other.add(file)
    return {file: tested for file, tested in sorted(digests.items()) if file not in other}


class KeptResults:
    """Skips tests that are known to pass, and remembers tests that pass. `writes` : whether this
    process writes `file`: of several processes of pytest-xdist, only one does."""

    def __init__(self, file: Path, files: Mapping[str, str], *, writes: bool) -> None:
        self._file, self._files, self._writes = file, files, writes
        reads = file.exists() and os.environ.get(AGAIN, "0") in {"", "0"}
        lines = file.read_text().splitlines() if reads else []
        whole = [line for line in lines if line.endswith("}")]  # a killed run leaves a cut line
        passed = [_Passed(**json.loads(line)) for line in whole]
        self._known = {(one.test, one.digest, one.seed): one for one in passed}
        self._fresh: dict[str, _Passed] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """After other plugins have selected the tests, make known tests report their results only,
        and give the other tests the digest of the code about to be tested."""
        yield
        for item in items:
            now, seed = _digest(item.nodeid), _seed(item)
            if not now or not seed:
                continue
            item.user_properties.append((_DIGEST, now))
            known = self._known.get((item.nodeid, now, seed))
            if known or self._files.get(item.nodeid.partition("::")[0]) == now:
                vars(item).update(setup=lambda: None, runtest=lambda: None)
                item.user_properties += [(PROPERTY, one) for one in (known.cocotb if known else [])]
                item.user_properties.append((KEPT, f"seed {seed}"))
            else:
                item.user_properties.append((_SEED, seed))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a passed test to the file when it is torn down."""
        properties = [(str(name), str(value)) for name, value in report.user_properties]
        named = dict(properties)
        seed = named.get(_SEED)
        if self._writes and report.when == "call" and report.passed and seed:
            results = [value for name, value in properties if name == PROPERTY]
            self._fresh[report.nodeid] = _Passed(report.nodeid, named[_DIGEST], seed, results)
        elif report.when == "teardown" and report.passed and report.nodeid in self._fresh:
            with self._file.open("a") as file:
                file.write(f"\n{json.dumps(asdict(self._fresh.pop(report.nodeid)))}\n")


def _digest(test: str) -> str | None:
    """Digest for a test by its name; None if it always runs."""
    file = Path(test.partition("::")[0])
    always = file.is_relative_to("tb/tools") or file.is_relative_to("examples")
    return None if always else digest(ROOT / file)


def _seed(item: pytest.Item) -> str:
    """Seed of a test's random numbers, with `--seeds` that of the repetition; "" if each run has
    another."""
    call = getattr(item, "callspec", None)
    seed = os.environ.get("SIGNALBOX_SEED", "")
    return str(call.params.get("chosen_seed", seed) if call else seed)
