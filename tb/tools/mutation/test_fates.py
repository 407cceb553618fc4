"""Fates of mutants by the way in which a test failed, and limits of tests."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signalbox.hw import export
from signalbox.hw.config import Config
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.registers import REGISTERS
from signalbox.tb.driver.fakes.machine import FakeMachine
from signalbox.tb.simulation import runner
from signalbox.tb.tools.mutation import fates, limits


def _fate(call: Callable[[], object]) -> str:
    with pytest.raises(BaseException) as failure:
        call()
    return fates.of(failure)


def _compiled(folder: Path, text: str) -> None:
    file = folder / "given.sv"
    file.write_text(text)
    runner.simulate(None, "none", simulator="verilator", name="given", sources=[file])


def test_killed() -> None:
    """A failed check, and an error of the project that is not about building a design."""

    def check() -> None:
        assert REGISTERS is None

    assert _fate(check) == "killed"
    assert _fate(lambda: REGISTERS[0].address("ABSENT")) == "killed"
    assert _fate(lambda: pytest.fail("a test's own")) == "killed"


def test_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constructor, the elaboration or the compiler fails."""
    monkeypatch.setattr(runner, "SIM_BUILD", tmp_path)
    assert _fate(lambda: Config(channels=0)) == "not built"
    shape: Any = 4  # Amaranth's `ShapeLike` is one at run time only
    assert _fate(lambda: export.verilog(StreamFIFO(shape, -1))) == "not built"
    assert _fate(lambda: _compiled(tmp_path, "module dut (output wire a);")) == "not built"


def test_driver_builds_nothing() -> None:
    """Layouts of `hw` that refuse a value of the driver's are not about a design."""
    code = [FakeMachine.now.__code__, Config.__post_init__.__code__]
    assert fates.of_frames(code) == "not built"
    driven = compile("", str(fates.ROOT / "driver/device.py"), "exec")
    assert fates.of_frames([driven, *code]) == "killed"
    assert fates.of_frames([]) == "killed"


def test_first_failure_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGNALBOX_FATE", raising=False)
    fates.tell("killed", "of no run")
    file = tmp_path / "fate.json"
    monkeypatch.setenv("SIGNALBOX_FATE", str(file))
    fates.tell("not built", "test_one")
    fates.tell("killed", "test_two")
    assert fates.told(file, 1) == ("not built", "test_one")
    absent = tmp_path / "absent.json"
    assert fates.told(absent, None) == ("time-out", "all tests")
    assert fates.told(absent, pytest.ExitCode.USAGE_ERROR)[0] == "not built"
    assert fates.told(absent, -11)[0] == "killed"


def test_time_out() -> None:
    """A test over its limit is interrupted, even if it catches errors. Builds do not count, but
    have a limit, too."""

    def endless() -> None:
        while True:
            try:
                time.sleep(10)
            except Exception:
                continue

    def test(limit: float, build: Callable[[], object], rest: Callable[[], object]) -> None:
        with limits.testing(limit):
            with limits.building(0.5 if build is endless else None):
                build()
            rest()

    test(2, lambda: time.sleep(2.5), int)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert _fate(lambda: test(0.5, int, endless)) == "time-out"
    assert _fate(lambda: test(60, endless, int)) == "not built"
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They grow with the seconds without a mutant, and with the load; unknown tests have none."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 0.0, 0.0))
    file = tmp_path / "seconds.json"
    file.write_text(json.dumps({"seconds": {"a": 0.0, "b": 100.0}, "longest build": 10.0}))
    monkeypatch.setenv("SIGNALBOX_SECONDS", str(file))
    assert (limits.of_test("a"), limits.of_test("b")) == (15, 415)
    assert limits.of_test("c") is None
    assert limits.of_build() == 340
    alone, with_builds = (limits.of_all(limits.known(), builds=one) for one in (False, True))
    assert 400 < alone < with_builds
    monkeypatch.setattr(os, "getloadavg", lambda: (12.0, 0.0, 0.0))
    assert (limits.of_test("a"), limits.of_build()) == (45, 1020)
    assert limits.of_all(limits.known(), builds=False) == 3 * alone
