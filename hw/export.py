"""SystemVerilog of any component, the same text on every machine.

Flat port names: members of nested interfaces join with two underscores (`axi__aw__valid`), records
are vectors, `clk` and `rst` are added when the design is clocked.
"""

import os

from amaranth import Value
from amaranth._toolchain.yosys import find_yosys  # `write_verilog -sv` has no public switch
from amaranth.back import rtlil
from amaranth.hdl import Const, ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

__all__ = ["ports", "verilog"]

_HIDDEN = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding")


def ports(design: wiring.Component) -> dict[str, tuple[Value, PortDirection]]:
    """Exported name, value and direction of every port but `clk` and `rst`.

    A member that is constant by its type (`always_ready`, `always_valid`) is no port.
    """
    found = {}
    for path, member, value in design.signature.flatten(design):
        signal = value.as_value() if isinstance(value, ValueCastable) else value
        if isinstance(signal, Value) and not isinstance(signal, Const):
            inward = member.flow == wiring.In
            direction = PortDirection.Input if inward else PortDirection.Output
            found["__".join(map(str, path))] = (signal, direction)
    return found


def verilog(design: wiring.Component, name: str = "top") -> str:
    """SystemVerilog of `design` as module `name`, with Amaranth's own Yosys.

    SystemVerilog on purpose: in plain Verilog, Icarus leaves combinational outputs undefined
    (amaranth-lang/amaranth#1629). Source locations are left out, they differ between machines.
    """
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    text = rtlil.convert(design, name=name, ports=ports(design), emit_src=False)
    remove = " ".join(f"-remove {attribute}" for attribute in _HIDDEN)
    script = [
        f"read_rtlil <<rtlil\n{text}\nrtlil",
        "proc -nomux -norom",
        "memory_collect",
        f"attrmap {remove}",
        f"attrmap -modattr {remove}",
        "write_verilog -sv -norename",
    ]
    yosys = find_yosys(lambda version: version >= (0, 40))
    return yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True)
