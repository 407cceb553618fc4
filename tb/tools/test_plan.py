"""The checker of the verification plan finds each kind of gap."""

from pathlib import Path

import pytest

from signalbox.tb.tools.plan import Entry, Plan, check, check_ran, load, results, table

TESTS = """
import cocotb
def test_real(): ...
def helper(): ...
@cocotb.test()
async def inner(dut): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "test_unit.py").write_text(TESTS)
    (tmp_path / "cocotb_unit.py").write_text(TESTS)
    (tmp_path / "proof.py").write_text("class Sound: ...\n")
    return tmp_path


def entry(tests=(), proofs=(), bench=()) -> Entry:
    return Entry("COPY-1", "title", tuple(tests), tuple(proofs), tuple(bench))


def test_complete(root: Path):
    shown = entry(
        ["test_unit.py::test_real", "cocotb_unit.py::inner"],
        ["proof.py::Sound"],
        ["test_unit.py::test_real"],
    )
    assert check([shown], root) == []


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        ({}, "COPY-1: neither a test nor a proof"),
        ({"bench": ["test_unit.py::test_real"]}, "COPY-1: neither a test nor a proof"),
        ({"tests": ["test_unit.py"]}, "COPY-1: 'test_unit.py' is not of the form file::name"),
        ({"tests": ["absent.py::test_real"]}, "COPY-1: absent.py does not exist"),
        ({"tests": ["test_unit.py::test_no"]}, "COPY-1: test_unit.py has no test test_no"),
        ({"tests": ["test_unit.py::helper"]}, "COPY-1: test_unit.py has no test helper"),
        ({"tests": ["cocotb_unit.py::helper"]}, "COPY-1: cocotb_unit.py has no test helper"),
        (
            {"bench": ["proof.py::Sound"], "proofs": ["proof.py::Sound"]},
            "COPY-1: proof.py has no bench Sound",
        ),
        ({"proofs": ["proof.py::Other"]}, "COPY-1: proof.py has no proof Other"),
    ],
)
def test_gap(root: Path, names: dict, problem: str):
    assert check([entry(**names)], root) == [problem]


def test_unknown_key(tmp_path: Path):
    plan = tmp_path / "plan.toml"
    plan.write_text('[COPY-1]\ntitle = "x"\ntest = []\nproofs = []\nbench = []\n')
    with pytest.raises(ValueError, match="COPY-1: keys are"):
        load(plan)


JUNIT = """<testsuites><testsuite>
<testcase classname="signalbox.tb.x.test_unit" name="test_a[verilator]"><properties>
<property name="cocotb" value="pass tb/x/cocotb_unit.py::inner"/>
<property name="cocotb" value="fail tb/x/cocotb_unit.py::refused"/>
</properties></testcase>
<testcase classname="signalbox.tb.x.test_unit" name="test_a[icarus]"><failure/><properties>
<property name="cocotb" value="fail tb/x/cocotb_unit.py::other"/>
</properties></testcase>
<testcase classname="signalbox.tb.x.test_unit" name="test_b"/>
<testcase classname="signalbox.tb.x.test_unit" name="test_c"><skipped/></testcase>
<testcase classname="signalbox.tb.x.proof" name="Sound[unit.sound]"/>
</testsuite></testsuites>"""


@pytest.fixture
def passed(tmp_path: Path) -> dict[str, bool]:
    junit = tmp_path / "tests.xml"
    junit.write_text(JUNIT)
    return results([junit])


def test_results(passed: dict[str, bool]):
    """A failed cocotb test within a passed pytest test counts as passed."""
    assert {name.removeprefix("tb/x/"): good for name, good in passed.items()} == {
        "test_unit.py::test_a": False,
        "test_unit.py::test_b": True,
        "cocotb_unit.py::inner": True,
        "cocotb_unit.py::refused": True,
        "cocotb_unit.py::other": False,
        "proof.py::Sound": True,
    }


def test_table_shows_results(passed: dict[str, bool]):
    names = [f"tb/x/test_unit.py::test_{letter}" for letter in "abc"]
    plan = Plan(
        [entry([*names, "tb/x/cocotb_unit.py::inner", "tb/x/test_unit.py::test_late"])],
        {"HOST-7": "runlists"},
        frozenset({"tb/x/test_unit.py::test_late"}),
    )
    row = table(plan, passed).splitlines()[2]
    assert "test_a` (FAIL)<br>" in row
    assert "test_b` (pass)<br>" in row
    assert "test_c`<br>" in row
    assert "inner` (pass)<br>" in row
    assert "test_late` (nightly) |" in row


@pytest.mark.parametrize(
    ("names", "nightly", "problems"),
    [
        (["test_unit.py::test_b", "cocotb_unit.py::inner"], [], []),
        (["test_unit.py::test_b", "test_unit.py::late"], ["test_unit.py::late"], []),
        (["test_unit.py::test_b", "test_unit.py::late"], [], ["test_unit.py::late did not run"]),
        (
            ["test_unit.py::late"],
            ["test_unit.py::late"],
            ["COPY-1: nothing of it ran"],
        ),
        (
            ["test_unit.py::test_b"],
            ["test_unit.py::test_b"],
            ["test_unit.py::test_b is called nightly and ran"],
        ),
        (["cocotb_unit.py::other"], [], ["cocotb_unit.py::other failed"]),
        (
            ["test_unit.py::test_b"],
            ["test_unit.py::no"],
            ["test_unit.py::no is called nightly and not in the plan"],
        ),
    ],
)
def test_ran(passed: dict[str, bool], names: list[str], nightly: list[str], problems: list[str]):
    found = {name.removeprefix("tb/x/"): good for name, good in passed.items()}
    assert check_ran(Plan([entry(names)], {}, frozenset(nightly)), found) == problems


def test_nightly_runs_everything(passed: dict[str, bool]):
    late = "tb/x/test_unit.py::late"
    plan = Plan([entry(["tb/x/test_unit.py::test_b", late])], {}, frozenset({late}))
    assert check_ran(plan, passed, nightly=True) == [f"{late} did not run"]


def test_plan_of_this_project_is_readable():
    plan = load()
    ids = [entry.id for entry in plan.entries]
    assert len(ids) == len(set(ids)) >= 25
    assert not set(ids) & set(plan.pending)
