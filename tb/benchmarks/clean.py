"""Cost of clean registers and shared memory (PREEMPT-10): measurements and table."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

__all__ = [
    "AGAIN",
    "BLOCKS",
    "CORE",
    "FIRST",
    "LATENCY",
    "MASKS",
    "STATES",
    "WRITES",
    "Block",
    "keys",
    "start_key",
    "table",
    "write_key",
]

CORE = {
    "slots": 4,
    "lanes": 4,
    "data_width": 128,
    "sm_warps": 6,
    "sm_blocks": 3,
    "sm_registers": 3072,
    "sm_shared": 4096,
}
"""Configuration of the supplied core, alone."""

LATENCY = 20
"""Memory latency in cycles."""


@dataclass(frozen=True)
class Block:
    """A block that uses a small part of the storage: warps, registers of a thread, and bytes of
    shared memory."""

    warps: int
    registers: int
    shared: int


BLOCKS = (Block(1, 16, 0), Block(2, 8, 1024))

STATES = {"new": "never used", "dirty": "written by others"}
"""History of the registers and shared memory that the block gets."""

WRITES = {
    "mov": "mov r{register}, 7",
    "ldg": "ldg r{register}, [r2]",
    "lds": "lds r{register}, [r6]",
}
"""Instructions that write a register."""

MASKS = {"all": 0xFFFF_FFFF, "half": 0x0000_FFFF, "every other": 0x5555_5555}
"""Active lanes."""

FIRST, AGAIN = "first", "again"
"""`FIRST`: the registers have not been written by their warp before. `AGAIN`: they have been
written by the same instruction before."""

_TITLE = f"""\
Cycles of the supplied core, alone: {CORE["sm_warps"]} hardware warps, {CORE["lanes"]} lanes,
{CORE["data_width"]} bits, memory latency {LATENCY}. Nothing is ever cleared: what a block has not
written reads as 0."""

_START_TITLE = """\
From the hand-over of a block until its last warp has ended, if `exit` is its first instruction and
in the cache."""

_WRITE_TITLE = f"""\
{CORE["sm_warps"]} warps write 8 registers each, one after the other; first: registers that their
warps have not written before; again: the same ones. Half: lanes 0 to 15 of 32 are active. A load
that is the first to write a register, and leaves out some lanes, writes 0 to them."""


def start_key(block: Block, state: str) -> str:
    """Name of a measurement of a block's start."""
    size = f"{block.warps} warps, {block.registers} registers, {block.shared} bytes shared"
    return f"clean, start, {size}, {state}"


def write_key(write: str, mask: str, turn: str) -> str:
    """Name of a measurement of writes."""
    return f"clean, {write}, {mask} lanes, {turn}"


def keys() -> list[str]:
    """Names of all measurements."""
    starts = [start_key(*one) for one in product(BLOCKS, STATES)]
    return starts + [write_key(*one) for one in product(WRITES, MASKS, (FIRST, AGAIN))]


def table(values: Mapping[str, int]) -> str:
    """Tables of all measurements in Markdown."""
    return "\n\n".join([_TITLE, _start_table(values), _write_table(values)])


def _start_table(values: Mapping[str, int]) -> str:
    lines = [_START_TITLE, "", f"| warps | registers | shared | {' | '.join(STATES.values())} |"]
    lines.append("|" + "--:|" * (3 + len(STATES)))
    for block in BLOCKS:
        cells = [block.warps, block.registers, block.shared]
        cells += [values[start_key(block, state)] for state in STATES]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _write_table(values: Mapping[str, int]) -> str:
    lines = [_WRITE_TITLE, "", f"| instruction | active lanes | {FIRST} | {AGAIN} |"]
    lines.append("|---|---|--:|--:|")
    for write, mask in product(WRITES, MASKS):
        cells = [str(values[write_key(write, mask, turn)]) for turn in (FIRST, AGAIN)]
        lines.append(f"| `{write}` | {mask} | {' | '.join(cells)} |")
    return "\n".join(lines)
