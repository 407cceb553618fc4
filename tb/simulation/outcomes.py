"""Results of the cocotb tests within each pytest test, for the verification plan.

`simulate` of `runner` stores them here. `tb/conftest.py` writes them to the JUnit file as
properties of the pytest test: `cocotb` = "pass tb/units/unit/cocotb_unit.py::test".
"""

from collections.abc import Sequence
from xml.etree import ElementTree

__all__ = ["PROPERTY", "keep", "reason", "source", "take"]

PROPERTY = "cocotb"
"""Name of the property in the JUnit file."""

_kept: list[str] = []


def keep(cases: Sequence[ElementTree.Element]) -> None:
    """Store the results of tests that ran; `cases` are elements of cocotb's `results.xml`."""
    for case in cases:
        module = source(case)
        test = case.get("name", "").partition("/")[0]  # without parameter values
        _kept.append(f"{'fail' if reason(case) else 'pass'} {module}::{test}")


def source(case: ElementTree.Element) -> str:
    """Source file of a case, relative to the top folder. The module in `case` may begin with the
    name of the package."""
    return case.get("classname", "").removeprefix("signalbox.").replace(".", "/") + ".py"


def take() -> list[str]:
    """Return and clear the stored results, without duplicates."""
    taken = sorted(set(_kept))
    _kept.clear()
    return taken


def reason(case: ElementTree.Element) -> str | None:
    """Traceback of a failed cocotb test; None if it passed."""
    for kind in ("failure", "error"):
        element = case.find(kind)
        if element is not None:
            return (element.text or element.get("message") or kind).strip()
    return None
