"""Fixtures of all tests."""

import os
import shutil

import pytest

from tb.runner import SIMULATORS


@pytest.fixture(params=SIMULATORS)
def simulator(request: pytest.FixtureRequest) -> str:
    """Each simulator in turn; Icarus is optional unless `SIGNALBOX_REQUIRE_ICARUS=1`."""
    if request.param == "icarus" and shutil.which("iverilog") is None:
        if os.environ.get("SIGNALBOX_REQUIRE_ICARUS") == "1":
            pytest.fail("Icarus Verilog (iverilog) is not installed, and this run requires it")
        pytest.skip("Icarus Verilog (iverilog) is not installed: Verilator alone checks this")
    return request.param
