"""Signalbox installed from a wheel in an environment of its own, used in a folder elsewhere.

The folder has packages `hw`, `driver` and `tb` of the user's own: hardware people call theirs so.
Dependencies come from the environment of these tests.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from signalbox.tb.folders import BUILD, ROOT

EXAMPLE = ROOT / "tb" / "driver" / "cocotb_example.py"
"""Test of the user guide."""

STARTER = """
from signalbox.hw.config import CONFIGS
from signalbox.hw.top import Signalbox
from signalbox.tb.sim.top import simulate_top
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


def python_files(folder: str) -> set[str]:
    """Tracked files of a folder, from the top of the checkout."""
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
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands of a fresh environment with the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    source, venv = folder / "source", folder / "venv"
    wanted = ["signalbox", "hw", "driver", "tb", "pyproject.toml", "README.md", "LICENSE"]
    source.mkdir()
    for name in wanted:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (wheel,) = folder.glob("*.whl")
    python = venv / "bin" / "python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Somebody's project."""
    for name in ("hw", "driver", "tb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "hw" / "my_core.py").write_text(CORE)
    (tmp_path / "tb" / "test_mine.py").write_text(STARTER)
    shutil.copy(EXAMPLE, tmp_path / "tb" / "cocotb_mine.py")
    return tmp_path


def run(folder: Path, *command: str | Path) -> str:
    """A command in the user's folder; it must succeed."""
    env = {name: value for name, value in os.environ.items() if name not in {BUILD, "PYTHONPATH"}}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.nightly
def test_commands(environment: Path, folder: Path):
    """Usage names the command; a core of the user's own is exported."""
    signalbox = environment / "signalbox"
    assert re.search(r"^  sim +run a workload", run(folder, signalbox), re.MULTILINE)
    assert run(folder, signalbox, "sim", "--help").startswith("usage: signalbox sim ")
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


@pytest.mark.nightly
def test_workload(environment: Path, folder: Path):
    """A supplied workload by its name; builds and timeline stay in the user's folder."""
    text = run(folder, environment / "signalbox", "sim", "two-spaces", "--seed", "1")
    assert "every byte verified" in text
    assert (folder / "sim_build/timeline-two-spaces.pftrace").is_file()


@pytest.mark.nightly
def test_own_test(environment: Path, folder: Path):
    """The user guide's test, in a package `tb` of the user's own."""
    run(folder, environment / "python", "-m", "pytest", "-q", "tb")
    assert list((folder / "sim_build" / "mine").glob("run-*/results.xml"))
