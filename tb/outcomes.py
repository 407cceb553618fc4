"""Results of the cocotb tests that each pytest test ran, for the verification plan.

`tb.runner.simulate` leaves them here; `tb/conftest.py` takes them and writes them into the JUnit
file of the run, as properties of the pytest test: `cocotb` = "pass tb/unit/cocotb_unit.py::test".
"""

from collections.abc import Sequence
from xml.etree import ElementTree

__all__ = ["PROPERTY", "keep", "reason", "source", "take"]

PROPERTY = "cocotb"
"""Name of the property in the JUnit file."""

_kept: list[str] = []


def keep(cases: Sequence[ElementTree.Element]) -> None:
    """Keep the results of these cases of cocotb's `results.xml`: tests that ran."""
    for case in cases:
        module = source(case)
        test = case.get("name", "").partition("/")[0]  # without the values of its parameters
        _kept.append(f"{'fail' if reason(case) else 'pass'} {module}::{test}")


def source(case: ElementTree.Element) -> str:
    """File of a case, from the top of the checkout; its module may be named with the package."""
    return case.get("classname", "").removeprefix("signalbox.").replace(".", "/") + ".py"


def take() -> list[str]:
    """Everything that was kept since the last call, each result once."""
    taken = sorted(set(_kept))
    _kept.clear()
    return taken


def reason(case: ElementTree.Element) -> str | None:
    """Traceback of a cocotb test that failed; None if it passed."""
    for kind in ("failure", "error"):
        element = case.find(kind)
        if element is not None:
            return (element.text or element.get("message") or kind).strip()
    return None
