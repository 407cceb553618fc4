"""SystemVerilog export of any component, reproducible on every machine.

Ports are flat: names of members of nested interfaces are joined with two underscores, such as
`axi__awvalid`. Records are vectors. `clk` and `rst` are added to clocked designs.
"""

import contextlib
import gc
import os
import re
from collections.abc import Generator, Iterable
from graphlib import TopologicalSorter

from amaranth.hdl import Elaboratable, Fragment
from amaranth.lib import wiring

from signalbox.hw.lib.amaranth_private import Design, convert, find_yosys
from signalbox.hw.lib.comb_paths import Paths, follows
from signalbox.hw.lib.flat_ports import Ports, ports
from signalbox.hw.lib.shared import instances

__all__ = ["FOLLOWS", "intermediate", "ports", "verilog"]

FOLLOWS = "follows"
"""Attribute of every shared module with its combinational paths: "output:input,input …"
(`hw.lib.comb_paths`)."""

_HIDDEN = ("generator", "top", "src", "amaranth.hierarchy", "amaranth.decoding")

_COMB = """\
`ifdef __ICARUS__
// In Icarus 11.0 a change wakes unrelated always_comb blocks, some for ever
// (steveicarus/iverilog#508). Its always @* needs an event to run at time 0.
`define COMB_START reg comb_start = 0; initial #0 comb_start = 1;
`define COMB always @* if (comb_start)
`else
`define COMB_START
`define COMB always_comb
`endif

"""

_NET = re.compile(r"^  wire (?:signed )?\[(\d+):0\] (\S+) ?;", re.MULTILINE)
_PART = re.compile(
    r"^  assign (?P<net>\S+) *\[(?P<high>\d+)(?::(?P<low>\d+))?\] = "
    r"(?P<value>[^-;?(+*/&|^~!<>=]*);\n",
    re.MULTILINE,
)
"""Assignment to a part of a net, from an expression without operators: their width would depend on
the net."""


def verilog(design: wiring.Component, name: str = "top") -> str:
    """SystemVerilog of `design` as module `name`, by Amaranth's own Yosys.

    SystemVerilog, as `always_comb` runs at time 0; Amaranth's plain Verilog does not in Icarus
    (amaranth-lang/amaranth#1629). Icarus itself gets `always @*` with a start event. Source
    locations are removed, as they differ between machines. A shared component becomes a module
    `name`_`module` (`hw.lib.shared`); the names of all other modules except the top contain a dot.

    Raises `ValueError` for two shared components of one name.
    """
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    text = intermediate(design, name, ports(design))
    # Renames nets like `x[1]`: in LUT mapping, Yosys 0.70 mistakes it for bit 1 of `x`, and fails.
    text = re.sub(r"\\\S*\[\S*", lambda found: found[0].replace("[", ".").replace("]", ""), text)
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
    return _portable(_joined(yosys.run(["-q", "-"], "\n".join(script), ignore_warnings=True)))


@contextlib.contextmanager
def _without_collector() -> Generator[None]:
    """Disables the garbage collector: a netlist only grows, and repeated scans of it would take a
    third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_collector()
def intermediate(design: Elaboratable, name: str, flat: Ports, *, platform: object = None) -> str:
    """RTLIL of `design` as module `name` with ports `flat`, and of each shared component in it,
    once. Raises as `verilog`."""
    known: dict[str, Elaboratable] = {name: design}
    waiting = [(name, flat)]
    wholes: dict[str, Design] = {}
    inside: dict[str, set[str]] = {}
    while waiting:
        module, flat = waiting.pop(0)
        fragment = Fragment.get(known[module], platform)
        inside[module] = set()
        for instance, shared in instances(fragment):
            instance.type = f"{name}_{shared.module}"
            inside[module].add(instance.type)
            if instance.type not in known:
                waiting.append((instance.type, ports(shared.design)))
            if known.setdefault(instance.type, shared.design) is not shared.design:
                raise ValueError(f"two components are shared as module {shared.module!r}")
        wholes[module] = fragment.prepare(flat, hierarchy=(module,))
    texts = _texts(wholes, TopologicalSorter(inside).static_order(), name)
    return "\n".join(texts[module] for module in wholes)


def _texts(wholes: dict[str, Design], order: Iterable[str], top: str) -> dict[str, str]:
    """RTLIL of each module. `order` : their names, each after those of the modules inside it."""
    texts: dict[str, str] = {}
    paths: dict[str, Paths] = {}
    for module in order:
        texts[module], netlist = convert(wholes[module], module)
        if module != top:
            paths[module] = follows(netlist, paths)
            texts[module] = _told(texts[module], module, paths[module])
    return texts


def _told(text: str, module: str, paths: Paths) -> str:
    """RTLIL with an attribute on `module` that lists its combinational paths."""
    value = " ".join(f"{output}:{','.join(inputs)}" for output, inputs in paths.items())
    line = f"module \\{module}\n"
    return text.replace(line, f'attribute \\{FOLLOWS} "{value}"\n{line}', 1)


def _joined(text: str) -> str:
    """Merges partial assignments of a net into one. From parts, Icarus would reassemble the net bit
    by bit on every change."""
    return "".join(map(_join, re.split(r"^(?=module )", text, flags=re.MULTILINE)))


def _join(module: str) -> str:
    widths = {net: int(high) + 1 for high, net in _NET.findall(module)}
    parts: dict[str, dict[int, re.Match[str]]] = {}
    for part in _PART.finditer(module):
        parts.setdefault(part["net"], {})[int(part["high"])] = part
    whole = {}
    for net, found in parts.items():
        ordered = [found[high] for high in sorted(found, reverse=True)]
        ends = [widths[net] - 1, *(int(part["low"] or part["high"]) - 1 for part in ordered)]
        if ends == [*sorted(found, reverse=True), -1]:
            values = ", ".join(part["value"] for part in ordered)
            whole[net] = f"  assign {net} = {{ {values} }};\n"
    joined = set(whole)
    return _PART.sub(
        lambda part: whole.pop(part["net"], "") if part["net"] in joined else part[0], module
    )


def _portable(text: str) -> str:
    """Replaces every `always_comb` by a macro, and adds the macro's declarations to its module."""
    first, *modules = re.split(r"^(?=module )", text, flags=re.MULTILINE)
    for number, module in enumerate(modules):
        blocks, found = re.subn(r"^  always_comb\b", "  `COMB", module, flags=re.MULTILINE)
        if found:
            modules[number] = blocks.replace(");\n", ");\n  `COMB_START\n", 1)
    return "".join([first, _COMB, *modules, "`undef COMB\n`undef COMB_START\n"])
