"""The checker of the verification plan: it must find each kind of gap."""

from pathlib import Path

import pytest

from tb.plan import Entry, check, load, results, table

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


def test_table_shows_results(tmp_path: Path):
    junit = tmp_path / "tests.xml"
    junit.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tb.x.test_unit" name="test_a[verilator]"/>'
        '<testcase classname="tb.x.test_unit" name="test_a[icarus]"><failure/></testcase>'
        '<testcase classname="tb.x.test_unit" name="test_b"/>'
        '<testcase classname="tb.x.test_unit" name="test_c"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    shown = [entry([f"tb/x/test_unit.py::test_{letter}" for letter in "abc"])]
    row = table(shown, {"HOST-7": "runlists"}, results(junit)).splitlines()[2]
    assert "test_a` (FAIL)<br>" in row
    assert "test_b` (pass)<br>" in row
    assert "test_c` |" in row


def test_plan_of_this_project_is_readable():
    entries, pending = load()
    ids = [entry.id for entry in entries]
    assert len(ids) == len(set(ids)) >= 25
    assert not set(ids) & set(pending)
