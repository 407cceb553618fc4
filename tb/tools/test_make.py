"""`make help`: the command of each target has the options listed there."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from signalbox.tb.folders import ROOT
from signalbox.tb.simulation import verilator
from signalbox.tb.tools.command_help import COMMANDS, help_text


def said(*command: str) -> str:
    """Output of a command."""
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Help text of each target."""
    parts = re.split(r"^  make (\w+)", said("make", "help"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("target", COMMANDS)
def test_options_exist(sections: dict[str, str], target: str):
    named = set(re.findall(r"--[a-z-]+", sections[target]))
    known = set(re.findall(r"--[a-z-]+", help_text(target)))
    assert named
    assert named <= known


@pytest.mark.parametrize("target", COMMANDS)
def test_commands(target: str):
    """Each target runs its module in `COMMANDS`, and the module can be run."""
    module = COMMANDS[target]
    rule = re.search(rf"^{target}:.*(?:\n\t.*)+", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None and f" -m {module.removesuffix('.__main__')} " in rule[0] + " "
    source = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()
    assert module.endswith(".__main__") or '\nif __name__ == "__main__":\n' in source


def test_types_of_every_folder():
    """`make lint` checks the types in all folders of `tb` except `units`."""
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]["include"]
    folders = {str(file.parent.relative_to(ROOT)) for file in ROOT.glob("tb/*/__init__.py")}
    assert folders - {*included} == {"tb/units"}


def test_every_target_is_listed(sections: dict[str, str]):
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(sections) == set(phony[1].split())


def test_modules_are_compiled_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in said("make", "--eval", "shown: ; @env", "shown")


@pytest.mark.parametrize("name", ["a blank", "ü"])
def test_folder_that_makefiles_do_not_take(tmp_path: Path, name: str):
    """An unusable folder name is reported at once, not by Verilator's makefile half a minute
    later."""
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    done = subprocess.run(["make", "sim"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"The folder '{folder}' has a blank or another letter" in done.stderr


def test_environment_that_makefiles_do_not_take(monkeypatch: pytest.MonkeyPatch):
    """`verilator.environment` checks the folder too, as an installed package has no Makefile."""
    monkeypatch.setattr(verilator, "SIM_BUILD", Path("/home/a blank/sim_build"))
    verilator.environment.cache_clear()
    with pytest.raises(RuntimeError, match=r"^the folder '/home/a blank/sim_build' has a blank"):
        verilator.environment()
