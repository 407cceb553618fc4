"""Instruction decoder and legality check (`isa.INSTRUCTIONS`)."""

from collections.abc import Callable

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.sm.core.kernel_rows import constant_buffer, kernel_traits
from signalbox.hw.sm.core.records import Control, Left, Right
from signalbox.hw.sm.isa import (
    INSTRUCTIONS,
    LAYOUT,
    MASKS,
    NESTED,
    Instruction,
    Opcode,
    Operand,
    Special,
)

__all__ = ["MEMORY_OPCODES", "Decoder", "InstructionCheck", "holds"]


def holds(m: Module, op: Value, which: Callable[[Instruction], bool], name: str) -> Signal:
    """Whether `op` is an instruction for which `which` holds."""
    found = Signal(name=name)
    codes = [one.opcode for one in INSTRUCTIONS if which(one)]
    with m.Switch(op):
        with m.Case(*codes):
            m.d.comb += found.eq(1)
    return found


def _uses(*operands: Operand) -> Callable[[Instruction], bool]:
    return lambda one: any(operand in one.operands for operand in operands)


class InstructionCheck(wiring.Component):
    """Checks an instruction against the instruction table and its kernel. Combinational.

    Members
    -------
    word : in, the instruction, see `isa.LAYOUT`.
    traits : in, a `kernel_traits`: properties of its kernel.
    buffer : in, a `constant_buffer`: the buffer with the number in field a.
    depth : in, 0 … `MASKS`: number of lane masks on the warp's stack.
    wrong : out, illegal instruction.
    stack : out, overflow or underflow of the mask stack.
    """

    def __init__(self, config: Config) -> None:
        self._missing = () if config.nested else NESTED
        self._specials = len(Special) if config.nested else Special.CHILDREN.value
        super().__init__({
            "word": In(LAYOUT),
            "traits": In(kernel_traits(config)),
            "buffer": In(constant_buffer),
            "depth": In(range(MASKS + 1)),
            "wrong": Out(1),
            "stack": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word, count = self.word, self.traits.registers
        op = word.code[:7]

        def uses(name: str, *operands: Operand) -> Signal:
            return holds(m, op, _uses(*operands), name)

        has_b, pair_a = uses("has_b", Operand.B), uses("pair_a", Operand.A_PAIR, Operand.GLOBAL)
        pair_d, immediate = uses("pair_d", Operand.D_PAIR), word.code[7]
        any_a = uses(
            "any_a", Operand.A, Operand.A_PAIR, Operand.GLOBAL, Operand.SHARED, Operand.LOCAL
        )
        any_d = uses("any_d", Operand.D, Operand.D_PAIR)
        faults = {
            "unknown": ~holds(m, op, lambda one: one.opcode not in self._missing, "known"),
            "odd_immediate": immediate & ~has_b,
            "past_d": any_d & ((word.d | pair_d) >= count),
            "past_a": any_a & ((word.a | pair_a) >= count),
            "past_b": has_b & ~immediate & (word.value[:8] >= count),
            "past_c": uses("has_c", Operand.C) & (word.c >= count),
            "odd_pair": (pair_d & word.d[0]) | (pair_a & word.a[0]),
            "past_shift": uses("shift", Operand.SHIFT) & word.c[5:].any(),
            "special": uses("has_special", Operand.SPECIAL) & (word.value >= self._specials),
            "constant": uses("has_constant", Operand.CONSTANT) & self._outside(),
            "local": uses("has_local", Operand.LOCAL) & ~self.traits.local,
            "barrier": (op == Opcode.BAR) & ~self.traits.barrier,
            # Blocks with local memory are not stopped, so a wait for the child might not end.
            "stays": (op == Opcode.LAUNCH) & self.traits.local,
        }
        found = Signal(len(faults))
        m.d.comb += [found[n].eq(fault) for n, fault in enumerate(faults.values())]
        takes = (op == Opcode.ELSE) | (op == Opcode.POP)
        m.d.comb += [
            self.wrong.eq(found.any()),
            self.stack.eq(Mux(op == Opcode.PUSH, self.depth == MASKS, takes & (self.depth == 0))),
        ]
        return m

    def _outside(self) -> Value:
        """Whether a word is outside of its constant buffer, or there is no such buffer."""
        value, number = self.word.value, self.word.a
        valid = ~number[3:].any() & self.traits.buffers.bit_select(number[:3], 1)
        return ~valid | value[:2].any() | (value[4:] >= self.buffer.units)


_RIGHT = {
    Opcode.AND: Right.AND,
    Opcode.OR: Right.OR,
    Opcode.XOR: Right.XOR,
    Opcode.SHL: Right.SHIFTED,
    Opcode.SHR: Right.SHIFTED,
    Opcode.SAR: Right.SHIFTED,
    Opcode.SEL: Right.SELECT,
    Opcode.MUL: Right.PRODUCT,
    Opcode.MAD: Right.PRODUCT,
    Opcode.LEA: Right.SHIFTED,
    Opcode.LEAS: Right.SHIFTED,
}

MEMORY_OPCODES = (
    Opcode.LDG,
    Opcode.STG,
    Opcode.LDS,
    Opcode.STS,
    Opcode.LDL,
    Opcode.STL,
    Opcode.LAUNCH,
)
"""Instructions that complete later than they leave the pipeline."""

_COMPARISONS = {
    # compare, pick, equal, less, invert, signed
    Opcode.SEQ: (1, 0, 1, 0, 0, 0),
    Opcode.SNE: (1, 0, 1, 0, 1, 0),
    Opcode.SLT: (1, 0, 0, 1, 0, 1),
    Opcode.SLE: (1, 0, 1, 1, 0, 1),
    Opcode.SLTU: (1, 0, 0, 1, 0, 0),
    Opcode.SLEU: (1, 0, 1, 1, 0, 0),
    Opcode.MIN: (0, 1, 0, 1, 0, 1),
    Opcode.MAX: (0, 1, 0, 1, 1, 1),
    Opcode.UMIN: (0, 1, 0, 1, 0, 0),
    Opcode.UMAX: (0, 1, 0, 1, 1, 0),
}


def _control(opcode: Opcode) -> data.Const:
    """Lane control of an instruction; of an address (LEA), for its low word."""
    left = Left.ZERO
    if opcode in {Opcode.ADD, Opcode.SUB, Opcode.LEA, Opcode.LEAS, *_COMPARISONS, *MEMORY_OPCODES}:
        left = Left.A
    elif opcode is Opcode.MAD:
        left = Left.C
    minus = opcode is Opcode.SUB or opcode in _COMPARISONS
    right = _RIGHT.get(opcode, Right.NOT_B if minus else Right.B)
    names = ("compare", "pick", "equal", "less", "invert", "signed")
    comparison = dict(zip(names, _COMPARISONS.get(opcode, (0,) * 6), strict=True))
    return Control.const({
        "left": left,
        "right": right,
        "right_shift": opcode in {Opcode.SHR, Opcode.SAR},
        "address": opcode in {Opcode.LEA, Opcode.LEAS},
        "arithmetic": opcode in {Opcode.SAR, Opcode.LEAS},
        "carry": minus,
        **comparison,
    })


class Decoder(wiring.Component):
    """Decodes an instruction. Combinational.

    Members
    -------
    op : in, the instruction.
    control : out, lane control.
    writes : out, writes a register from the pipeline.
    pair : out, two steps per row, the second for the high word.
    whole : out, processes all rows; otherwise a single step.
    memory : out, completes later than it leaves the pipeline.
    shared : out, accesses shared memory.
    launch : out, launches a kernel.
    local : out, accesses local memory.
    store : out, a store; otherwise a load.
    """

    def __init__(self) -> None:
        super().__init__({
            "op": In(Opcode),
            "control": Out(Control),
            **dict.fromkeys(
                ("writes", "pair", "whole", "memory", "shared", "launch", "local", "store"), Out(1)
            ),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        scalar = (Opcode.BRA, Opcode.ELSE, Opcode.POP, Opcode.BAR, Opcode.EXIT)
        with m.Switch(self.op):
            for one in INSTRUCTIONS:
                with m.Case(one.opcode):
                    memory = one.opcode in MEMORY_OPCODES
                    result = one.operands[:1] in {(Operand.D,), (Operand.D_PAIR,)}
                    m.d.comb += [
                        self.control.eq(_control(one.opcode)),
                        self.writes.eq(result and not memory),
                        self.pair.eq(Operand.D_PAIR in one.operands),
                        self.whole.eq(one.opcode not in scalar),
                        self.memory.eq(memory),
                        self.shared.eq(Operand.SHARED in one.operands),
                        self.launch.eq(one.opcode is Opcode.LAUNCH),
                        self.local.eq(Operand.LOCAL in one.operands),
                        self.store.eq(one.opcode in {Opcode.STG, Opcode.STS, Opcode.STL}),
                    ]
        return m
