"""Parts of Amaranth 0.5 without a public name, in one place: what a new release may change.

`Design` and `build_netlist` elaborate a fragment to a netlist of `FlipFlop`, `NetlistInstance` and
other cells over `Net`; `PortDirection` is the direction of a top-level port. `find_yosys` gives the
Yosys that Amaranth uses, as `write_verilog -sv` has no public switch.
"""

from collections.abc import Iterable
from typing import Any

from amaranth._toolchain.yosys import find_yosys
from amaranth.hdl import Module, Signal
from amaranth.hdl._ir import Design, PortDirection, build_netlist
from amaranth.hdl._nir import FlipFlop, Net, Netlist
from amaranth.hdl._nir import Instance as NetlistInstance

__all__ = [
    "Design",
    "FlipFlop",
    "Net",
    "Netlist",
    "NetlistInstance",
    "PortDirection",
    "build_netlist",
    "driven",
    "find_yosys",
    "state_machine",
]


def driven(m: Module) -> Iterable[Signal]:
    """Signals that the statements of a module drive."""
    return m._driving


def state_machine(m: Module, name: str) -> Any:
    """State machine of a module by its name; its `ongoing` tells states."""
    return m._generated[name]
