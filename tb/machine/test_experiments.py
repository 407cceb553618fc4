"""Scheduling experiments: the supplied ones, on the RTL, and the checks of SMs and starts."""

import io
from pathlib import Path

import pytest

from signalbox.driver.workload.reader import parse
from signalbox.driver.workload.records import KernelRecord
from signalbox.tb.folders import ROOT
from signalbox.tb.reports import workload
from signalbox.tb.reports.expected_starts import missed
from signalbox.tb.reports.kernel_lives import BlockLife, KernelActivity, KernelLife, Lost, WarpLife
from signalbox.tb.simulation.workload import simulate_workload

EXAMPLES = sorted((ROOT / "driver" / "workloads").glob("*.json"))


@pytest.mark.nightly
@pytest.mark.parametrize("file", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_experiments(file: Path) -> None:
    """Every kernel starts when the file expects it, on the SMs that it may have."""
    out = io.StringIO()
    assert workload.main([str(file), "--no-baseline", "--seed", "1"], out) == 0, out.getvalue()
    one_priority = "Policy none: all kernels run at priority 0" in out.getvalue()
    assert one_priority == (file.stem != "sm-masks")


@pytest.mark.nightly
def test_null_stream() -> None:
    """A kernel of the NULL stream is ready when the kernel before it ends; the kernel after it is
    ready when it ends."""
    (file,) = [file for file in EXAMPLES if file.stem == "null-stream"]
    first, null, last = simulate_workload(file, "none", seed=1).result.kernels
    assert null.ready == first.completed and last.ready == null.completed


@pytest.mark.nightly
def test_late_start(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """A kernel that starts outside its window fails the run."""
    (source,) = [file for file in EXAMPLES if file.stem == "null-stream"]
    file = tmp_path / "late.json"
    file.write_text(source.read_text().replace("[0.3, 0.45]", "[0.1, 0.15]"))
    assert workload.main([str(file), "--no-baseline"], io.StringIO()) == 1
    error = capsys.readouterr().err
    assert "FAILED: K2 (NULL stream) started in cycle 4," in error
    assert "expected in 1,000 … 1,500" in error


@pytest.mark.parametrize(
    ("options", "checked"),
    [
        ((), True),
        (("--policy", "priority"), True),
        (("--policy", "none"), False),
        (("--policy", "count-first"), False),
        (("--preempt", "drain"), False),
    ],
)
def test_other_policies(
    options: tuple[str, ...], checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose policy differs from the file's reports that it does not check starts."""

    def refuse(*_: object, **__: object) -> None:
        raise workload.RunError("not simulated")

    monkeypatch.setattr(workload, "simulate_workload", refuse)
    (file,) = [file for file in EXAMPLES if file.stem == "sm-masks"]
    out = io.StringIO()
    assert workload.main([str(file), *options], out) == 1
    assert ("not checked" not in out.getvalue()) == checked


def life(name: str, start: int, sm: int, sms: tuple[int, ...] | None = None) -> KernelLife:
    """A kernel of one warp."""
    times = {"requested": 0, "submitted": 1, "ready": 1, "completed": 99}
    sizes = {"grid": (1, 1, 1), "block": (32, 1, 1)}
    place = {"stream": "s", "channel": 0, "priority": 0, "index": 0, "asid": 0, "page": 1}
    record = KernelRecord(name=name, kernel="timing", **sizes, **times, **place)
    kernel = KernelLife(record, name, launched=2, opened=[3], over=90, sms=sms)
    block = BlockLife(kernel, (0, 0, 0), sm, 0, start - 1)
    block.warps.append(WarpLife(0, 0, start, 80))
    kernel.blocks.append(block)
    return kernel


def test_sms_of_a_kernel() -> None:
    for sms in (None, (1,), (0, 1)):
        life("K", 10, 1, sms).check()
    with pytest.raises(Lost, match=r"K: block \(0, 0, 0\) was on SM 1"):
        life("K", 10, 1, (0, 2)).check()


def test_starts() -> None:
    """A window includes both of its ends; kernels without a window may start at any time."""
    head = "[machine]\ntiming_core = true\n[[stream]]\nname = 's'\n"
    kernel = "[[kernel]]\nname = '{}'\nstream = 's'\nkernel = 'timing'\ngrid = 1\nblock = 32\n"
    kernel += "args = {{ CYCLES = 5 }}\n"
    text = head + kernel.format("A") + "starts = [10, 2000]\n" + kernel.format("B")
    plan = parse(text)
    for start, wrong in ((9, 1), (10, 0), (2000, 0), (2001, 1)):
        done = KernelActivity(kernels=[life("A", start, 0), life("B", 5, 0)])
        assert len(missed(plan, done)) == wrong
    assert missed(plan, done) == ["A started in cycle 2,001, expected in 10 … 2,000"]
