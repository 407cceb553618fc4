"""Machines with separately compiled modules (`tb.simulation.apart`) against the same machines
compiled as one."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from signalbox.driver.workload.reader import load
from signalbox.hw.compute.engine import ComputeEngine
from signalbox.tb.reports import workload
from signalbox.tb.simulation import top
from signalbox.tb.simulation.runner import choose_seed, simulate
from signalbox.tb.simulation.top import TRACE
from signalbox.tb.simulation.workload import Run, simulate_workload
from signalbox.tb.testbench.configs import TIMING

MANY = workload.DEFAULT.parent / "many-sms.toml"


def ends(run: Path) -> dict[str, str]:
    """End of each test of a run, in simulated time."""
    found = {}
    for case in ElementTree.parse(run / "results.xml").iter("testcase"):
        (end,) = case.iterfind(".//property[@name='sim_time_stop']")
        found[case.attrib["name"]] = end.attrib["value"]
    return found


@pytest.mark.nightly
def test_compute() -> None:
    """The unit's tests pass and end in the same cycles."""
    seed = choose_seed()
    found = []
    for apart in (False, True):
        options = {"simulator": "verilator", "name": "sim-apart", "seed": seed, "apart": apart}
        found.append(
            ends(
                simulate(
                    ComputeEngine(TIMING), "signalbox.tb.units.compute.cocotb_timing", **options
                )
            )
        )
    assert len(found[0]) == 3
    assert found[0] == found[1]


def runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Run, bytes]]:
    """Runs of the workload and their traces, with the machine compiled as one, and with separate
    modules. A trace is read at once: other processes' runs may remove it soon."""
    found = []
    assert load(file).config.sms <= top.FEW_VISIBLE_SMS
    for visible in (True, False):
        monkeypatch.setattr("signalbox.tb.simulation.top._visible", lambda _, seen=visible: seen)
        run = simulate_workload(file, "priority", seed=1)
        found.append((run, (run.folder / TRACE).read_bytes()))
    return found


def same(found: list[tuple[Run, bytes]]) -> None:
    """Every event has the same cycle, and every record is the same."""
    (one, trace), (other, other_trace) = found
    assert trace == other_trace
    assert one.result == other.result


@pytest.mark.nightly
def test_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with real kernels are identical."""
    same(runs(workload.DEFAULT, monkeypatch))


@pytest.mark.nightly
def test_four_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with timing cores are identical: the workload for 132 SMs, on four."""
    text = MANY.read_text()
    file = tmp_path / "four.toml"
    file.write_text(text.replace("sms = 132", "sms = 4"))
    assert load(file).config.sms == 4
    same(runs(file, monkeypatch))
