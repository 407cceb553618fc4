"""What Icarus simulates: the exported Verilog with all registers of a module in one block.

Yosys writes a block for every register, and Icarus wakes a thread for every block on every clock
edge: in one block, a whole machine simulates a fifth faster. All assignments are non-blocking, and
every register has one, so their order means nothing.
"""

import re

__all__ = ["joined"]

_REGISTER = re.compile(
    r"^  always_ff @\(posedge clk\)\n(    \S+ ? <= [^;\n]*;\n)", flags=re.MULTILINE
)


def joined(text: str) -> str:
    """`text` with the registers of each module in the place of its first one."""
    return "".join(map(_join, re.split(r"^(?=module )", text, flags=re.MULTILINE)))


def _join(module: str) -> str:
    before, *rest = _REGISTER.split(module, maxsplit=1)
    if not rest:
        return module
    assignments = _REGISTER.findall(module)
    after = _REGISTER.sub("", rest[1])
    block = ["  always_ff @(posedge clk) begin\n", *assignments, "  end\n"]
    return "".join([before, *block, after])
