"""Folders: the package, the checkout if there is one, and the build folder."""

import os
from pathlib import Path

import signalbox

__all__ = ["BUILD", "CHECKOUT", "PACKAGE", "ROOT", "SIM_BUILD", "shown"]

PACKAGE = Path(signalbox.__file__).resolve().parent
"""Folder of the package, with `hw`, `driver`, `tb` and their data files."""

ROOT = PACKAGE.parent
"""Top folder of the checkout. For an installed package, the folder that it is installed in."""

CHECKOUT = (ROOT / "pyproject.toml").is_file() and (ROOT / "hw").is_dir()
"""Whether the package is in a checkout."""

BUILD = "SIGNALBOX_BUILD"
"""Environment variable: build folder to use instead of `sim_build`."""


def _sim_build() -> Path:
    if chosen := os.environ.get(BUILD):
        return Path(chosen).absolute()
    here = Path.cwd()
    return (ROOT if CHECKOUT and here.is_relative_to(ROOT) else here) / "sim_build"


SIM_BUILD = _sim_build()
"""Folder for everything that is built or run: `sim_build` of the checkout, else of the current
folder."""


def shown(path: Path) -> str:
    """A path as shown in messages: relative to the current folder if it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
