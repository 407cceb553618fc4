"""Private parts of Amaranth 0.5 that this design uses, in one place, as a new release may change
them.

* `Design`: an elaborated fragment. Its `Netlist` connects cells (`FlipFlop`, `NetlistInstance` and
  others) by `Net`s.
* `PortDirection`: direction of a top-level port.
* `find_yosys`: finds the Yosys that Amaranth uses, as `write_verilog -sv` has no public switch.
* `PLACES`: attributes of signals and components with the source lines on which they were created.
"""

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

from amaranth._toolchain.yosys import find_yosys
from amaranth.back import rtlil
from amaranth.hdl import Module, Signal
from amaranth.hdl._ir import Design, PortDirection, build_netlist
from amaranth.hdl._nir import FlipFlop, Net, Netlist
from amaranth.hdl._nir import Instance as NetlistInstance

__all__ = [
    "PLACES",
    "Design",
    "FlipFlop",
    "Net",
    "Netlist",
    "NetlistInstance",
    "PortDirection",
    "convert",
    "driven",
    "find_yosys",
    "state_machine",
]


PLACES = frozenset({"src_loc", "_MustUse__context"})


def convert(whole: Design, name: str) -> tuple[str, Netlist]:
    """RTLIL of an elaborated component as module `name`, without source lines, and its netlist.
    Amaranth would build the netlist once for each; here it is built once."""
    netlist = build_netlist(whole)
    with patch.object(rtlil._ir, "build_netlist", lambda *_, **__: netlist):
        text, _ = rtlil.convert_fragment(whole, name=name, emit_src=False)
    return text, netlist


def driven(m: Module) -> Iterable[Signal]:
    """Signals that the statements of a module drive."""
    return m._driving


def state_machine(m: Module, name: str) -> Any:
    """State machine of a module by its name; `ongoing` of the result tests for a state."""
    return m._generated[name]
