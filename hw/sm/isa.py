"""Instruction set of the supplied core: the single description for hardware and assembler.

An instruction has 64 bits (`LAYOUT`), 8-byte aligned. Registers have 32 bits; each thread has up to
255. A pair is an even register, the low word, and the next one.

`ISA.md` in this folder is the output of `table()`.
"""

from dataclasses import dataclass

from amaranth.lib import data, enum

__all__ = [
    "IMMEDIATE",
    "INSTRUCTIONS",
    "INSTRUCTION_BYTES",
    "LAYOUT",
    "MASKS",
    "NESTED",
    "Instruction",
    "Opcode",
    "Operand",
    "Special",
    "main",
    "table",
]

INSTRUCTION_BYTES = 8

IMMEDIATE = 0x80
"""Bit of `code`: operand B is `value`, not a register."""

MASKS = 8
"""Depth of the lane mask stack of a warp."""

LAYOUT = data.StructLayout({"code": 8, "d": 8, "a": 8, "c": 8, "value": 32})
"""Fields of an instruction, from the lowest bit. Unused fields are ignored.

code : `Opcode`, and IMMEDIATE.
d, a, c : register numbers; with a constant, `a` is the number of its buffer.
value : operand B: a register number in the lowest 8 bits or, with IMMEDIATE, the word itself;
    otherwise an offset, a special register number or a branch distance.
"""


class Opcode(enum.IntEnum, shape=7):
    """Operation codes; `INSTRUCTIONS` describes them."""

    NONE = 0x00
    """Never valid, so zeroed memory is not a program."""
    MOV = 0x01
    ADD = 0x02
    SUB = 0x03
    MUL = 0x04
    MAD = 0x05
    AND = 0x06
    OR = 0x07
    XOR = 0x08
    SHL = 0x09
    SHR = 0x0A
    SAR = 0x0B
    MIN = 0x0C
    MAX = 0x0D
    UMIN = 0x0E
    UMAX = 0x0F
    SEQ = 0x10
    SNE = 0x11
    SLT = 0x12
    SLE = 0x13
    SLTU = 0x14
    SLEU = 0x15
    SEL = 0x16
    LEA = 0x17
    LEAS = 0x18
    S2R = 0x20
    LDC = 0x21
    LDG = 0x22
    STG = 0x23
    LDS = 0x24
    STS = 0x25
    LDL = 0x26
    STL = 0x27
    BRA = 0x30
    BANY = 0x31
    BNONE = 0x32
    PUSH = 0x33
    ELSE = 0x34
    POP = 0x35
    BAR = 0x36
    WAIT = 0x37
    EXIT = 0x38
    LAUNCH = 0x39
    JOIN = 0x3A


class Special(enum.IntEnum, shape=4):
    """Special registers, read by S2R. Thread, block and grid position and size, by coordinate."""

    TID_X = 0
    TID_Y = 1
    TID_Z = 2
    LANE = 3
    """Number of the thread in its warp."""
    CTAID_X = 4
    CTAID_Y = 5
    CTAID_Z = 6
    WARP = 7
    """Number of the warp in its block."""
    NTID_X = 8
    NTID_Y = 9
    NTID_Z = 10
    CLOCK = 11
    """Lowest 32 bits of the cycles since reset."""
    NCTAID_X = 12
    NCTAID_Y = 13
    NCTAID_Z = 14
    CHILDREN = 15
    """1 while the block has children that are not complete, else 0; with nested launches (NEST-12).
    """


class Operand(enum.Enum):
    """Operands as written, and the fields that encode them."""

    D = "register d"
    D_PAIR = "pair d"
    A = "register a"
    A_PAIR = "pair a"
    B = "register value[7:0], or value itself"
    C = "register c"
    SHIFT = "c, 0 … 31"
    GLOBAL = "[pair a + value]"
    SHARED = "[register a + value]"
    LOCAL = "[register a + value], local memory"
    CONSTANT = "[a][value], a constant buffer"
    SPECIAL = "value, a special register"
    TARGET = "value, bytes from this instruction to the target"


@dataclass(frozen=True)
class Instruction:
    """`operands` in the order in which they are written; `text`: description."""

    opcode: Opcode
    operands: tuple[Operand, ...]
    text: str

    @property
    def name(self) -> str:
        """Mnemonic."""
        return self.opcode.name.lower()


_D, _A, _B, _C = Operand.D, Operand.A, Operand.B, Operand.C
_TWO = (_D, _A, _B)
_ADDRESS = (Operand.D_PAIR, Operand.A_PAIR, _B, Operand.SHIFT)

INSTRUCTIONS = (
    Instruction(Opcode.MOV, (_D, _B), "d = b"),
    Instruction(Opcode.ADD, _TWO, "d = a + b"),
    Instruction(Opcode.SUB, _TWO, "d = a - b"),
    Instruction(Opcode.MUL, _TWO, "d = a * b, lowest 32 bits"),
    Instruction(Opcode.MAD, (_D, _A, _B, _C), "d = a * b + c, lowest 32 bits"),
    Instruction(Opcode.AND, _TWO, "d = a & b"),
    Instruction(Opcode.OR, _TWO, "d = a | b"),
    Instruction(Opcode.XOR, _TWO, "d = a ^ b"),
    Instruction(Opcode.SHL, _TWO, "d = a << b[4:0]"),
    Instruction(Opcode.SHR, _TWO, "d = a >> b[4:0], logical"),
    Instruction(Opcode.SAR, _TWO, "d = a >> b[4:0], arithmetic"),
    Instruction(Opcode.MIN, _TWO, "d = minimum, signed"),
    Instruction(Opcode.MAX, _TWO, "d = maximum, signed"),
    Instruction(Opcode.UMIN, _TWO, "d = minimum, unsigned"),
    Instruction(Opcode.UMAX, _TWO, "d = maximum, unsigned"),
    Instruction(Opcode.SEQ, _TWO, "d = a == b, 1 or 0"),
    Instruction(Opcode.SNE, _TWO, "d = a != b, 1 or 0"),
    Instruction(Opcode.SLT, _TWO, "d = a < b, signed, 1 or 0"),
    Instruction(Opcode.SLE, _TWO, "d = a <= b, signed, 1 or 0"),
    Instruction(Opcode.SLTU, _TWO, "d = a < b, unsigned, 1 or 0"),
    Instruction(Opcode.SLEU, _TWO, "d = a <= b, unsigned, 1 or 0"),
    Instruction(Opcode.SEL, (_D, _A, _B, _C), "d = a where c is not 0, else b"),
    Instruction(Opcode.LEA, _ADDRESS, "pair d = pair a + (b << c), b unsigned, 64 bits"),
    Instruction(Opcode.LEAS, _ADDRESS, "pair d = pair a + (b << c), b signed, 64 bits"),
    Instruction(Opcode.S2R, (_D, Operand.SPECIAL), "d = special register"),
    Instruction(
        Opcode.LDC,
        (_D, Operand.CONSTANT),
        "d = word of constant buffer a, 0 … 7, at byte offset value; `[value]`: buffer 0",
    ),
    Instruction(Opcode.LDG, (_D, Operand.GLOBAL), "d = word of memory, value signed"),
    Instruction(
        Opcode.STG, (Operand.GLOBAL, _C), "word of memory = c; complete when visible to all"
    ),
    Instruction(Opcode.LDS, (_D, Operand.SHARED), "d = word of the block's shared memory"),
    Instruction(Opcode.STS, (Operand.SHARED, _C), "word of the block's shared memory = c"),
    Instruction(Opcode.LDL, (_D, Operand.LOCAL), "d = word of the thread's local memory"),
    Instruction(Opcode.STL, (Operand.LOCAL, _C), "word of the thread's local memory = c"),
    Instruction(Opcode.BRA, (Operand.TARGET,), "branch"),
    Instruction(Opcode.BANY, (_A, Operand.TARGET), "branch if a is not 0 in an active lane"),
    Instruction(Opcode.BNONE, (_A, Operand.TARGET), "branch if a is 0 in all active lanes"),
    Instruction(Opcode.PUSH, (_A,), "push the mask; lanes with a = 0 become inactive"),
    Instruction(Opcode.ELSE, (), "active lanes = lanes of the top mask that are not active now"),
    Instruction(Opcode.POP, (), "pop the mask and make its lanes active"),
    Instruction(Opcode.BAR, (), "wait for all warps of the block that have not ended"),
    Instruction(Opcode.WAIT, (_B,), "wait at least b cycles, with b of the lowest active lane"),
    Instruction(Opcode.EXIT, (), "end the warp with all its lanes"),
    Instruction(
        Opcode.LAUNCH,
        (_D, Operand.GLOBAL),
        "launch the task record at the address of the lowest active lane; d = 0, or the refusal",
    ),
    Instruction(
        Opcode.JOIN,
        (_D,),
        "wait for all children of the block; d = 1 if one, or a descendant, has failed, else 0",
    ),
)
"""All instructions; any other code is an error."""

NESTED = (Opcode.LAUNCH, Opcode.JOIN)
"""Instructions of machines with nested launches (`Config.nested_kernels`)."""

_HEAD = """\
# Instruction set of the supplied core

Made from `hw/sm/isa.py` by `python -m signalbox.hw.sm.isa`.

An instruction has 64 bits: `code` 8, `d` 8, `a` 8, `c` 8, `value` 32, from the lowest bit. Unused
fields are ignored. Bit 7 of `code` selects `value` itself as operand b, instead of the register
`value[7:0]`; only instructions with an operand b may set it. Inactive lanes neither write registers
nor access memory, and are ignored by conditions. Among lanes storing to the same word, the highest
one wins. A warp starts with its threads of the block as active lanes and with all registers 0;
branches are per warp. Shared memory is 0 when its block begins; local memory holds anything that
the address space had there.

`launch` and `join` exist on machines with nested launches (NEST-10 … NEST-12). The task record is a
QMD V03_00, 256-byte aligned, below 2^40. `launch` does not wait for the child. Without an active
lane, no child is launched. Of a refused child, bits 7:0 of d are the `Refusal`, bits 15:8 the
number of the SKEDCHECK. All active lanes get the same d. `children` exists on these machines only.
It is 1 while the block has children that are not complete, and 0 from then on; what they have
written and released before is visible then.

Errors end the warp. INSTRUCTION: an undefined code, a register beyond those of the kernel, an odd
pair, a shift above 31, an undefined special register, a constant buffer that is not valid, a
constant out of its buffer's range or misaligned, `bar` in a kernel without barriers, `ldl` or `stl`
in one without local memory, `launch` in one with it. Others: a misaligned global access or record,
an access without translation or beyond 49 bits, a record beyond 40; a shared memory access out of
the block's range or misaligned; a local memory access out of the thread's range or misaligned; more
than 8 masks, or `else` or `pop` without one.
"""


def table() -> str:
    """The instruction set in Markdown."""
    lines = [_HEAD, "| code | syntax | operation |", "|---|---|---|"]
    for one in INSTRUCTIONS:
        written = ", ".join(_WRITTEN[operand] for operand in one.operands)
        form = f"{one.name} {written}".strip()
        text = one.text.replace("|", r"\|")
        lines.append(f"| 0x{one.opcode:02x} | `{form}` | {text} |")
    lines += ["", "Special registers:", "", "| value | name |", "|---|---|"]
    lines += [f"| {one.value} | `{one.name.lower().replace('_', '.')}` |" for one in Special]
    return "\n".join(lines) + "\n"


_WRITTEN = {
    Operand.D: "d",
    Operand.D_PAIR: "d",
    Operand.A: "a",
    Operand.A_PAIR: "a",
    Operand.B: "b",
    Operand.C: "c",
    Operand.SHIFT: "c",
    Operand.GLOBAL: "[a + value]",
    Operand.SHARED: "[a + value]",
    Operand.LOCAL: "[a + value]",
    Operand.CONSTANT: "[a][value]",
    Operand.SPECIAL: "special",
    Operand.TARGET: "target",
}


def main() -> None:
    """Print the instruction set."""
    print(table(), end="")


if __name__ == "__main__":
    main()
