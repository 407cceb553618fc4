"""The runner reports success only for tests that ran and passed."""

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb_tools import config as cocotb_config

from signalbox.tb.folders import SIM_BUILD
from signalbox.tb.simulation import icarus, runner
from signalbox.tb.simulation.runner import ONLY, simulate

TESTS = "signalbox.tb.simulation.cocotb_runner"

pytestmark = pytest.mark.smoke


class Counter(wiring.Component):
    """Adds each `step`. `odd` is combinational."""

    step: In(stream.Signature(4, always_ready=True))
    count: Out(8)
    odd: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.odd.eq(self.count[0])
        with m.If(self.step.valid):
            m.d.sync += self.count.eq(self.count + self.step.payload)
        return m


def test_pass(simulator: str):
    run = simulate(Counter(), TESTS, simulator=simulator, name="runner")
    assert (run / "results.xml").exists()
    again = simulate(Counter(), TESTS, simulator=simulator, name="runner")
    assert again != run


def test_failure_raises(simulator: str):
    with pytest.raises(
        AssertionError, match=r"1 of 2 failed: signalbox.tb.simulation.cocotb_runner.fails"
    ) as caught:
        simulate(Counter(), TESTS, simulator=simulator, name="runner", env={"FAIL": "1"})
    text = str(caught.value)
    assert re.search(r'cocotb_runner.py", line \d+, in fails', text), text
    assert "AssertionError: assert 0 == 1" in text


def test_nothing_ran_raises(simulator: str):
    with pytest.raises(AssertionError, match=r"no results|0 tests ran, at least 1 expected"):
        simulate(Counter(), TESTS, simulator=simulator, name="runner", testcase="absent")


def test_old_runs_are_removed(simulator: str, monkeypatch: pytest.MonkeyPatch):
    """The newest runs are kept, and the newest failed runs."""
    monkeypatch.setattr(runner, "_KEPT", 2)
    options = {"simulator": simulator, "name": f"runner-old-{simulator}"}
    shutil.rmtree(SIM_BUILD / options["name"], ignore_errors=True)
    with pytest.raises(AssertionError):
        simulate(Counter(), TESTS, env={"FAIL": "1"}, **options)
    (failed,) = (SIM_BUILD / options["name"]).glob("run-*")
    runs = [simulate(Counter(), TESTS, **options) for _ in range(3)]
    assert set((SIM_BUILD / options["name"]).glob("run-*")) == {failed, *runs[1:]}
    assert "in fails" in (failed / "failed.txt").read_text()


def test_running_ones_are_not_removed(simulator: str, monkeypatch: pytest.MonkeyPatch):
    """The folder of a run in progress is not removed."""
    monkeypatch.setattr(runner, "_KEPT", 1)
    options = {"simulator": simulator, "name": f"runner-two-{simulator}"}
    with runner._run_folder(SIM_BUILD / options["name"], simulator) as other:
        for _ in range(2):
            simulate(Counter(), TESTS, **options)
        assert other.exists()


def test_too_few_raises(simulator: str):
    with pytest.raises(AssertionError, match="1 test ran, at least 2 expected"):
        simulate(Counter(), TESTS, simulator=simulator, name="runner", minimum=2)


def test_missing_module_raises(simulator: str):
    with pytest.raises(AssertionError, match="no results"):
        simulate(Counter(), "signalbox.tb.cocotb_absent", simulator=simulator, name="runner")


def test_seed_reaches_tests(simulator: str, tmp_path: Path):
    env = {"SEED_FILE": str(tmp_path / "seed")}
    options = {"simulator": simulator, "name": "runner", "env": env, "testcase": "writes_seed"}
    simulate(Counter(), TESTS, seed=1234, **options)
    assert (tmp_path / "seed").read_text() == "1234"


def test_only(simulator: str, monkeypatch: pytest.MonkeyPatch):
    """`SIGNALBOX_ONLY` selects cocotb tests by their full names, and each of them must run."""
    names = ("counts", "tests_of_this_name_are_absent")
    options = {"simulator": simulator, "name": "runner"}
    monkeypatch.setenv(ONLY, names[0])
    run = simulate(Counter(), TESTS, minimum=2, **options)
    ran = ElementTree.parse(run / "results.xml").iterfind(".//testcase")
    assert [case.attrib["name"] for case in ran if case.find("skipped") is None] == ["counts"]
    monkeypatch.setenv(ONLY, ",".join(names))
    with pytest.raises(AssertionError, match="1 test ran, at least 2 expected"):
        simulate(Counter(), TESTS, **options)


@pytest.mark.nightly
def test_waves(simulator: str):
    run = simulate(Counter(), TESTS, simulator=simulator, name="runner-waves", waves=True)
    assert (run / "dump.fst").stat().st_size > 0


@pytest.mark.nightly
@pytest.mark.parametrize("split", [(), ("--output-split", "100")], ids=["small", "large"])
def test_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, split: tuple[str, ...]):
    """A second build on Verilator reuses the compiled run-time library and headers of the first,
    whether the design is compiled as one file or, like large designs, as several."""
    fresh = SIM_BUILD / "runner-library"
    monkeypatch.setattr(runner, "SIM_BUILD", fresh)
    for _ in range(2):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        # An argument for which no other build has cached a library.
        options = {"simulator": "verilator", "build_args": (*split, f"-DSPLIT={len(split)}")}
        simulate(Counter(), TESTS, name="runner", **options)
    (log,) = fresh.glob("builds/*/build.log")
    compiled = [line for line in log.read_text().splitlines() if " -c " in line]
    assert len(compiled) > 2 * len(split)
    assert all(
        f"--include=headers.h.{speed}" in line
        for line in compiled
        for speed in ["slow" if "__Slow" in line or "Syms" in line else "fast"]
    )
    assert "-o verilated.o" not in log.read_text() and "-o headers.h" not in log.read_text()


def test_another_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A simulation that was built in an environment that is gone is built anew."""
    monkeypatch.setattr(runner, "SIM_BUILD", SIM_BUILD / "runner-environment")
    shutil.rmtree(runner.SIM_BUILD, ignore_errors=True)
    runner.SIM_BUILD.mkdir()
    elsewhere = shutil.copytree(cocotb_config.libs_dir, tmp_path / "libs")
    with monkeypatch.context() as there:
        there.setattr(cocotb_config, "libs_dir", elsewhere)
        simulate(Counter(), TESTS, simulator="verilator", name="runner")
    shutil.rmtree(elsewhere)
    simulate(Counter(), TESTS, simulator="verilator", name="runner")


def test_same_verilog_twice():
    from signalbox.hw import export

    assert export.verilog(Counter()) == export.verilog(Counter())


def test_registers_are_joined_for_icarus():
    """Modules without registers, and blocks with more than one assignment, do not change."""
    memory = "  always_ff @(posedge clk) begin\n    if (en)\n      mem[at] <= data;\n  end\n"
    rest = "  assign c = a & b;\n"
    parts = ["  always_ff @(posedge clk)\n    a <= b;\n", memory, rest]
    parts.append("  always_ff @(posedge clk)\n    \\x.y  <= \\$1 ;\n")
    head, tail = "module m(clk);\n", "endmodule\n"
    plain = head + memory + tail
    together = "  always_ff @(posedge clk) begin\n    a <= b;\n    \\x.y  <= \\$1 ;\n  end\n"
    assert icarus.joined(plain + head + "".join(parts) + tail) == "".join([
        *(plain, head, together, memory, rest, tail),
    ])


def test_broken_source_is_reported(simulator: str, tmp_path: Path):
    bad = tmp_path / "bad.sv"
    bad.write_text("module bad(; endmodule\n")
    with pytest.raises(RuntimeError, match=r"bad\.sv"):
        simulate(Counter(), TESTS, simulator=simulator, name="runner-bad", sources=[bad])
