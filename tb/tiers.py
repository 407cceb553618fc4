"""Which values of a test's parameter are run with every change (see `tb/conftest.py`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest

__all__ = ["tiers"]


def tiers(
    values: Iterable[Any],
    *,
    smoke: Collection[Any] | Mapping[Any, Sequence[str]] = (),
    nightly: Collection[Any] = (),
) -> list[Any]:
    """`values` for `pytest.mark.parametrize`: those of `smoke` on Icarus, too, with every change;
    those of `nightly` on neither simulator. A mapping `smoke` names, for each value, the cocotb
    tests that Icarus runs with every change.

    Raises `ValueError` for a value in `smoke` or `nightly` that is none of `values`.
    """
    values = [*values]
    unknown = [value for value in (*smoke, *nightly) if value not in values]
    if unknown:
        raise ValueError(f"{unknown} are none of {values}")
    named = smoke if isinstance(smoke, Mapping) else dict.fromkeys(smoke, ())
    return [_marked(value, named.get(value), value in nightly) for value in values]


def _marked(value: Any, smoke: Sequence[str] | None, nightly: bool) -> Any:
    marks = [] if smoke is None else [pytest.mark.smoke(*smoke)]
    marks += [pytest.mark.nightly] * nightly
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks)
