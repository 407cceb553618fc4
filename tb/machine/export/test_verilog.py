"""The exported Verilog: accepted by three tools, reproducible, with errors in one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from signalbox.hw import verilog
from signalbox.hw.config import CONFIGS, LIMITS, ConfigError
from signalbox.tb.folders import ROOT, SIM_BUILD
from signalbox.tb.simulation import verilator, yosys

SOURCE, MAP, HEADER, MANIFEST = (f"{verilog.NAME}.{suffix}" for suffix in ("sv", "md", "h", "json"))

LONG = [pytest.param(name, marks=pytest.mark.soak) for name in ("default", "two-engines", "large")]
"""These configurations take minutes, so they belong to `make soak`."""

COPIES = pytest.param("copies", marks=pytest.mark.nightly)

RUNLISTS = ("--runlist-entries", "5")
NESTED = ("--save-places", "2", "--nested-kernels", "3", "--sm-masks")
TIMING_NESTED = (*NESTED, "--timing-core")
"""Options for parts that the configurations leave out."""


def export(config: str, folder: Path, *options: str) -> None:
    """Run the command as a user does, in a separate process with its own hash seed."""
    command = [
        sys.executable,
        "-m",
        "signalbox.hw.verilog",
        "--config",
        config,
        "--output",
        str(folder),
    ]
    subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@cache
def exported(config: str, *options: str) -> Path:
    """One export in a folder visible to the tools; separate for each process of pytest-xdist."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    folder = SIM_BUILD / "export" / process / "".join(options) / config
    shutil.rmtree(folder, ignore_errors=True)
    export(config, folder, *options)
    return folder


@pytest.fixture(scope="module", params=["tiny", COPIES, *LONG])
def folder(request: pytest.FixtureRequest) -> Path:
    """Files of each configuration."""
    return exported(request.param)


@pytest.fixture(scope="module", params=["tiny", COPIES, *LONG])
def few_sms(request: pytest.FixtureRequest) -> Path:
    """Files of each configuration, with 8 SMs in place of 132. All are instances of one module; of
    132 Icarus makes 24 GB, and Verilator's lint takes more than 10 minutes."""
    return exported(request.param, *(["--sms", "8"] if request.param == "large" else []))


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Run a tool, which has to succeed without output."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True
    )
    said = (done.stdout + done.stderr).strip()
    assert done.returncode == 0 and not said, said[-4000:]


def test_verilator_lint(few_sms: Path):
    command = ["verilator", "--lint-only", "-Wall", "--quiet-stats", "--top-module", verilog.NAME]
    run(*command, str(verilator.WAIVERS), SOURCE, cwd=few_sms, env=verilator.environment())


@pytest.mark.nightly
@pytest.mark.parametrize("options", [RUNLISTS, NESTED, TIMING_NESTED], ids=" ".join)
def test_parts_that_can_be_left_out(options: tuple[str, ...]):
    """The tools also accept machines with the parts that none of the configurations has; all of
    their signals have names."""
    folder = exported("tiny", *options)
    test_verilator_lint(folder)
    test_icarus(folder)
    test_yosys(folder)
    test_names_without_brackets(folder)
    test_every_signal_has_a_name(folder)


@pytest.mark.nightly
def test_nested_launches():
    """Only with nested launches the source has the tree of kernels; the manifest has its size."""
    for folder, kernels in ((exported("tiny"), 0), (exported("tiny", *NESTED), 3)):
        assert json.loads((folder / MANIFEST).read_text())["config"]["nested_kernels"] == kernels
        source = (folder / SOURCE).read_text()
        assert ("module \\signalbox.compute.nested.tree " in source) == bool(kernels)


def test_waivers_have_reasons():
    lines = verilator.WAIVERS.read_text().splitlines()
    for before, line in pairwise(lines):
        assert not line.startswith("lint_off") or before.startswith(("//", "lint_off")), line


def test_icarus(few_sms: Path):
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog (iverilog) is not installed")
    run("iverilog", "-g2012", "-t", "null", "-s", verilog.NAME, SOURCE, cwd=few_sms)


@pytest.mark.nightly
def test_yosys(few_sms: Path):
    if find_spec("pyosys") is None:
        pytest.skip("pyosys is not installed (pip install -e .[check])")
    script = f"read_verilog -sv {SOURCE}; hierarchy -check -top {verilog.NAME}; proc; check -assert"
    run(*yosys.command(), "-q", "-p", script, cwd=few_sms)


def test_manifest_names_the_ports(folder: Path):
    manifest = json.loads((folder / MANIFEST).read_text())
    text = (folder / SOURCE).read_text()
    top = text[text.index(f"module {verilog.NAME}(") :].partition("endmodule")[0]
    declared = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(
            r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", top, re.MULTILINE
        )
    }
    listed = {port["name"]: (port["direction"], port["width"]) for port in manifest["ports"]}
    assert listed == declared
    assert CONFIGS[folder.name].channels == manifest["config"]["channels"]


def test_names_without_brackets(folder: Path):
    """No name looks like a bit select, for which `synth_ecp5` of Yosys 0.70 fails an assertion."""
    assert not re.search(r"\\\S*\[", (folder / SOURCE).read_text())


def test_every_signal_has_a_name(folder: Path):
    """No signal has the name that Amaranth gives to signals whose own name it cannot find."""
    declared = re.findall(r"^ +(?:reg|wire) .*", (folder / SOURCE).read_text(), re.MULTILINE)
    assert declared and not [line for line in declared if "\\$signal" in line or "\\$like" in line]


def test_nothing_of_this_machine(folder: Path):
    for name in (SOURCE, MAP, HEADER, MANIFEST):
        text = (folder / name).read_text()
        assert str(ROOT) not in text and str(Path.home()) + "/" not in text
        assert sys.prefix not in text


@pytest.mark.nightly
@pytest.mark.parametrize("sms", [0, 1])
def test_same_every_time(tmp_path: Path, sms: int):
    first = verilog.files(replace(CONFIGS["tiny"], trace=True, sms=sms))
    export("tiny", tmp_path, "--trace", "--sms", str(sms))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == first
    assert '"trace__served"' in first[MANIFEST]


def test_help_gives_limits(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        verilog.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for limits in LIMITS.values():
        assert str(limits) in text
    assert "--channels N 1 … 64 [8]" in text
    assert "--data-width N 64, 128, 256, 512 [128]" in text


@pytest.mark.parametrize("name", LIMITS)
def test_limits_are_kept(name: str):
    limits = LIMITS[name]
    for value in (limits.low - 1, limits.high + 1):
        with pytest.raises(ConfigError, match=f"{name} = {value} is outside its limits"):
            replace(CONFIGS["large"], **{name: value})


def test_queue_per_context():
    """Fewer places for queues than contexts are refused, because each context has a reserved
    place."""
    with pytest.raises(ConfigError, match="queues = 3 is less than contexts = 4"):
        replace(CONFIGS["default"], queues=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--channels", "65"], "channels = 65 is outside its limits 1 … 64"),
        (["--data-width", "96"], "data_width = 96 is not a power of two"),
        (["--memory-bytes", "0x1001"], "memory_bytes = 4097 is not a multiple"),
        (["--output", "pyproject.toml/x", "--config", "tiny"], "cannot write to pyproject.toml/x"),
    ],
)
def test_refused_in_one_line(options: list[str], message: str):
    command = [sys.executable, "-m", "signalbox.hw.verilog", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sms", "some"], "'some' is not a number"),
        (["--sms", f"0x{1 << 20_000:x}"], "does not fit 64 bits"),
        (["--core", "os"], "'os' is not of the form MODULE:CLASS"),
        (["--core", "nowhere:Core"], "cannot be imported: No module named 'nowhere'"),
        (["--core", "os:sep"], "'os:sep' is no class"),
        (["--core", "os:getcwd"], "'os:getcwd' cannot be made from a Config: too many positional"),
        (["--core", "builtins:dict"], "'builtins:dict' cannot be made from a Config"),
    ],
)
def test_refused_options(options: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        verilog.main(options)
    assert message in capsys.readouterr().err
