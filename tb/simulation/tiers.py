"""Selects the parameter values with which a test runs at every change (see `tb/conftest.py`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pytest

from signalbox.hw.config import CONFIGS

__all__ = ["CONFIGURATIONS", "ON_ICARUS", "ON_VERILATOR", "tiers"]

ON_VERILATOR = pytest.mark.parametrize("simulator", ["verilator"], indirect=True)
"""Mark of a test that runs on Verilator only. The test has the parameter `simulator`, so that
`--seeds` repeats it."""

ON_ICARUS = pytest.mark.parametrize("simulator", ["icarus"], indirect=True)
"""Mark of a test that runs on Icarus only."""


def tiers(
    values: Iterable[Any],
    *,
    smoke: Collection[Any] | Mapping[Any, Sequence[str]] = (),
    nightly: Collection[Any] = (),
) -> list[Any]:
    """Marked `values` for `pytest.mark.parametrize`. In `make test`, Verilator runs all values
    except those in `nightly`, and Icarus only those in `smoke`. A value may be in both. If `smoke`
    is a mapping, it gives the names of the cocotb tests that Icarus runs for each value.

    Raises `ValueError` if a value of `smoke` or `nightly` is not in `values`.
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


CONFIGURATIONS = pytest.mark.parametrize(
    "config", tiers(CONFIGS, nightly={*CONFIGS} - {"tiny", "large"})
)
"""Mark of a test with the parameter `config`, the name of a configuration in `hw.config.CONFIGS`.
`make test` runs the test with "tiny" and "large", `make nightly` with all."""
