"""`make synth`: choice of units, and results that differ from the record."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from signalbox.tb.tools import synth
from signalbox.tb.tools.synth import Result, main, matching

TOOLS = {"yosys": "1", "nextpnr": "1"}
FAST = Result(lut4=100, flip_flops=50, dp16kd=0, dpr16x4=4, mhz=155.0)
SLOW = replace(FAST, mhz=120.0)
RECORDED = {"host.barrier": FAST, "mmu.l1": SLOW}


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Result]:
    """Results that the tools are to give, of their recorded versions; at first those recorded."""
    units = dict(RECORDED)
    record = {"tools": TOOLS, "default": {name: asdict(one) for name, one in units.items()}}
    monkeypatch.setattr(synth, "RECORD", tmp_path / "synth.json")
    (tmp_path / "synth.json").write_text(json.dumps(record))
    monkeypatch.setattr(synth, "_versions", lambda: TOOLS)
    monkeypatch.setattr(synth, "synthesise", lambda unit, config: (units[unit], ""))
    return units


def check(*units: str) -> int:
    return main(["--check", *(units or RECORDED)])


def test_as_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    """A unit that was below its budget when recorded may be so."""
    assert check() == 0
    text = capsys.readouterr().out
    assert text.endswith("2 of 2 units pass the check\n") and "FAILED" not in text


@pytest.mark.parametrize(
    "change", [{"lut4": 111}, {"flip_flops": 56}, {"dp16kd": 1}, {"dpr16x4": 5}, {"mhz": 149.9}]
)
def test_much_worse_than_recorded(
    change: dict[str, float], measured: dict[str, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    """The number is shown with the recorded one."""
    (name,) = change
    measured["host.barrier"] = replace(FAST, **change)
    assert main([*RECORDED]) == 0
    assert check() == 1
    text = capsys.readouterr().out
    assert f"FAILED: recorded: {name} {asdict(FAST)[name]}\n" in text
    assert text.endswith("1 of 2 units pass the check\n")


def test_not_recorded(measured: dict[str, Result], capsys: pytest.CaptureFixture[str]) -> None:
    measured["copy"] = FAST
    assert check("copy") == 1
    assert "FAILED: not recorded\n" in capsys.readouterr().out


def test_somewhat_worse_than_recorded(measured: dict[str, Result]) -> None:
    """Counts and clocks may be a tenth worse, but a budget that was reached may not be missed."""
    measured |= {
        "host.barrier": replace(FAST, lut4=110, mhz=150.0),
        "mmu.l1": replace(SLOW, mhz=109.1),
    }
    assert check() == 0
    measured["mmu.l1"] = replace(SLOW, mhz=109.0)
    assert check() == 1


def test_recorded_again(measured: dict[str, Result]) -> None:
    measured["host.barrier"] = replace(FAST, lut4=111)
    assert check() == 1
    assert main(["--record", "host.barrier"]) == 0
    assert check() == 0
    with pytest.raises(SystemExit):
        main(["--record", "--check"])


def test_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    assert matching(["mmu.l?", "host.barrier"]) == ["host.barrier", "mmu.l1", "mmu.l2"]
    assert "mmu" not in matching(["mmu.*"])
    with pytest.raises(SystemExit):
        main(["mmu.l1", "mmu.l3", "gpu*"])
    assert "no unit mmu.l3, gpu*; there are host.fetch" in capsys.readouterr().err
