"""Which values of a test's parameter are run with every change (see `tb/conftest.py`)."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["tiers"]


def tiers(
    values: Iterable[Any], *, smoke: Collection[Any] = (), nightly: Collection[Any] = ()
) -> list[Any]:
    """`values` for `pytest.mark.parametrize`: those of `smoke` on Icarus, too, with every change;
    those of `nightly` on neither simulator.

    Raises `ValueError` for a value in `smoke` or `nightly` that is none of `values`.
    """
    values = [*values]
    unknown = [value for value in (*smoke, *nightly) if value not in values]
    if unknown:
        raise ValueError(f"{unknown} are none of {values}")
    return [_marked(value, value in smoke, value in nightly) for value in values]


def _marked(value: Any, smoke: bool, nightly: bool) -> Any:
    marks = [pytest.mark.smoke] * smoke + [pytest.mark.nightly] * nightly
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks)
