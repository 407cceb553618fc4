"""Records inside the core."""

from amaranth.lib import data, enum

from signalbox.hw.config import VA_BITS, WARP_THREADS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.records.placement import INDEX_BITS
from signalbox.hw.sm.isa import MASKS, Opcode

__all__ = [
    "OWN_UNITS",
    "QUEUED",
    "THREAD_BITS",
    "Control",
    "Left",
    "Right",
    "access_row",
    "bits",
    "completion",
    "context",
    "context_write",
    "dest_bits",
    "file_units",
    "instruction",
    "join_sample",
    "place",
    "result_row",
    "retired",
    "row_count",
    "thread",
    "thread_look",
    "unit_kinds",
    "warp_place",
]

QUEUED = 4
"""Instructions per memory type that may be queued with all their rows."""


def bits(count: int) -> int:
    """Width of an index into `count` items, never 0."""
    return max(1, (count - 1).bit_length())


def row_count(config: Config) -> int:
    """Rows of `lanes` threads per instruction, one per cycle."""
    return WARP_THREADS // config.lanes


def unit_kinds(config: Config) -> data.StructLayout:
    """Units for instructions that complete after they have left the pipeline, one bit each: memory,
    shared memory, with nested launches also `launch`."""
    return data.StructLayout({"memory": 1, "shared": 1, **({"launch": 1} if config.nested else {})})


OWN_UNITS = 2
"""Units of registers of `StateTransfer`."""


def file_units(config: Config) -> int:
    """Units of the register file: those of warps, then those of `StateTransfer`."""
    return config.register_units + OWN_UNITS * config.preemption


def dest_bits(config: Config) -> int:
    """Width of the location of one row of one register in the register file."""
    return bits(file_units(config)) + 2 + (row_count(config) - 1).bit_length()


def place(config: Config) -> data.StructLayout:
    """Place of a warp: kernel row, block slot, and number in the block."""
    return data.StructLayout({
        "row": config.row_bits,
        "slot": config.block_bits,
        "index": INDEX_BITS,
    })


def context(config: Config) -> data.StructLayout:
    """Execution state of a warp: next instruction, active lanes, depth of the mask stack."""
    return data.StructLayout({"pc": VA_BITS, "mask": WARP_THREADS, "depth": range(MASKS + 1)})


def warp_place(config: Config) -> data.StructLayout:
    """A warp with its place and context."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "place": place(config),
        "context": context(config),
    })


def instruction(config: Config) -> data.StructLayout:
    """A checked instruction of a warp; registers by number, `value` as in `isa.LAYOUT`. Loads of
    constants and of special registers common to all lanes have become moves of a value.

    `transfer`: an instruction of `StateTransfer`. Lane n accesses word n of the 128 bytes at
    `at.context.pc`, a physical address or an offset in shared memory. `own`: its registers are
    those of `StateTransfer` instead of the warp's."""
    return data.StructLayout({
        "at": warp_place(config),
        "transfer": 1,
        "own": 1,
        "op": Opcode,
        "immediate": 1,
        "d": 8,
        "a": 8,
        "c": 8,
        "value": 32,
    })


join_sample = data.StructLayout({"failed": 1, "waits": 1, "zero": 30})
"""Operand B of JOIN, and so its result. `failed`: a child of the block has failed; `waits`: there
are children that are not complete, so the instruction is executed again."""


class Left(enum.Enum, shape=2):
    """Left operand of the adder."""

    ZERO = 0
    A = 1
    C = 2


class Right(enum.Enum, shape=3):
    """Right operand of the adder."""

    B = 0
    NOT_B = 1
    SHIFTED = 2
    AND = 3
    OR = 4
    XOR = 5
    SELECT = 6
    PRODUCT = 7


class Control(data.Struct):
    """Lane control of an instruction (`hw.sm.core.alu`).

    Members
    -------
    left : left operand of the adder.
    right : right operand of the adder.
    right_shift : shift right, otherwise left.
    address : shift B by `c` bits, otherwise A by B bits.
    arithmetic : shift in the sign.
    carry : carry into the adder.
    compare : the result is the outcome of a comparison.
    pick : the result is the left operand if the comparison holds, otherwise the right one.
    equal : compare for equal.
    less : compare for less; may be combined with `equal`.
    invert : invert the comparison.
    signed : signed comparison.
    """

    left: Left
    right: Right
    right_shift: 1
    address: 1
    arithmetic: 1
    carry: 1
    compare: 1
    pick: 1
    equal: 1
    less: 1
    invert: 1
    signed: 1


def access_row(config: Config) -> data.StructLayout:
    """One row of a memory instruction: `va` and data of each active lane. `dest`: destination of a
    load. `last`: last row of the instruction. `transfer`: of `StateTransfer`. `local`: in local
    memory; `va` is an offset of 32 bits, followed by the number of the thread in its warp."""
    lane = data.StructLayout({"active": 1, "va": 64, "data": 32})
    return data.StructLayout({
        "warp": config.warp_bits,
        "place": place(config),
        "transfer": 1,
        "local": 1,
        "store": 1,
        "last": 1,
        "dest": dest_bits(config),
        "lanes": data.ArrayLayout(lane, config.lanes),
    })


def result_row(config: Config) -> data.StructLayout:
    """Words for the lanes of `mask` of a register file row."""
    return data.StructLayout({
        "dest": dest_bits(config),
        "mask": config.lanes,
        "words": data.ArrayLayout(32, config.lanes),
    })


def completion(config: Config) -> data.StructLayout:
    """An instruction of `warp` on one of `unit_kinds` has completed, successfully if `cause` is
    NONE. `transfer`: an instruction of `StateTransfer`."""
    return data.StructLayout({
        "warp": config.warp_bits,
        "transfer": 1,
        "cause": CoreCause,
        "va": VA_BITS,
    })


def retired(config: Config) -> data.StructLayout:
    """The last row of an instruction has left the lanes. `nonzero`: active lanes with operand a not
    0; `word`: result of the lowest active lane. `transfer`: an instruction of `StateTransfer`."""
    return data.StructLayout({
        "valid": 1,
        "transfer": 1,
        "at": warp_place(config),
        "op": Opcode,
        "offset": 32,
        "nonzero": WARP_THREADS,
        "word": 32,
    })


def context_write(config: Config) -> data.StructLayout:
    """Strobe: new context of a warp."""
    return data.StructLayout({"valid": 1, "warp": config.warp_bits, "context": context(config)})


THREAD_BITS = 11
"""Width of a thread's coordinate in its block, which has at most 2,048 threads."""

thread = data.StructLayout({"x": THREAD_BITS, "y": THREAD_BITS, "z": THREAD_BITS})
"""Position of a thread in its block."""


def thread_look(config: Config) -> data.StructLayout:
    """Look-up of one row of a warp's threads."""
    return data.StructLayout({"line": bits(row_count(config)), "warp": config.warp_bits})
