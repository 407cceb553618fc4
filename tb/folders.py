"""Folders: the package's own files, the checkout if there is one, and everything that is built."""

import os
from pathlib import Path

import signalbox

__all__ = ["BUILD", "CHECKOUT", "PACKAGE", "ROOT", "SIM_BUILD", "shown"]

PACKAGE = Path(signalbox.__file__).resolve().parent
"""The package: `hw`, `driver` and `tb` with their data files lie in it."""

ROOT = PACKAGE.parent
"""Top folder of the checkout; of an installed package, the folder that it is installed in."""

CHECKOUT = (ROOT / "pyproject.toml").is_file() and (ROOT / "hw").is_dir()
"""Whether this is a checkout."""

BUILD = "SIGNALBOX_BUILD"
"""Environment variable: folder for everything that is built, in place of `sim_build`."""


def _sim_build() -> Path:
    if chosen := os.environ.get(BUILD):
        return Path(chosen).absolute()
    here = Path.cwd()
    return (ROOT if CHECKOUT and here.is_relative_to(ROOT) else here) / "sim_build"


SIM_BUILD = _sim_build()
"""Everything that is built or run: `sim_build` of the checkout, or of the current folder."""


def shown(path: Path) -> str:
    """A path as messages show it: relative to the current folder where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
