"""Retires instructions: next pc, lane masks, wait state."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import VA_BITS, WARP_THREADS, Config
from signalbox.hw.sm.core.decode import MEMORY_OPCODES
from signalbox.hw.sm.core.records import bits, context_write, join_sample, retired, warp_place
from signalbox.hw.sm.isa import INSTRUCTION_BYTES, MASKS, Opcode

__all__ = ["Retire", "warp_next"]


def warp_next(config: Config) -> data.StructLayout:
    """State of a warp after an instruction, at most one bit: it is `ready`; is at the `barrier`;
    `waits` for `word` cycles; with nested launches, `joins`: it waits for the children of its
    block, then executes the instruction again. No bit: the instruction has not completed yet."""
    nested = {"joins": 1} if config.nested else {}
    return data.StructLayout({
        **nested,
        "warp": config.warp_bits,
        "slot": config.block_bits,
        "ready": 1,
        "barrier": 1,
        "waits": 1,
        "word": 32,
    })


class Retire(wiring.Component):
    """Finds the next context and state of a warp when its instruction retires. Branches are per
    warp; each warp has a stack of lane masks.

    Members
    -------
    ahead : in, a `warp_place`: warp of the next cycle's instruction.
    retired : in, a `retired`: the instruction.
    write : out, a `context_write`, combinational: new context of the warp; not for an instruction
        of `StateTransfer`.
    next : out, a `warp_next`, combinational: next state of the warp; not for an instruction of
        `StateTransfer`.
    top : out, 32 bits: top of the warp's mask stack.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        super().__init__({
            "ahead": In(warp_place(config)),
            "retired": In(retired(config)),
            "write": Out(context_write(config)),
            "next": Out(warp_next(config)),
            "top": Out(WARP_THREADS),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        done, context, new = self.retired, self.retired.at.context, self.write.context
        kept, own = self._masks(m), Signal(name="own")
        taken = Signal()
        again = Signal()
        jump = Signal(VA_BITS)
        op, hit = done.op, done.nonzero.any()
        sign = done.offset[31].replicate(VA_BITS - 32)
        m.d.comb += [
            taken.eq((op == Opcode.BRA) | (op == Opcode.BANY) & hit | (op == Opcode.BNONE) & ~hit),
            jump.eq(Mux(taken, Cat(done.offset, sign), Mux(again, 0, INSTRUCTION_BYTES))),
            own.eq(done.valid & ~done.transfer),
            self.write.valid.eq(own),
            self.top.eq(kept),
            self.write.warp.eq(done.at.warp),
            new.pc.eq(context.pc + jump),
            new.mask.eq(context.mask),
            new.depth.eq(context.depth),
        ]
        if self._config.nested:
            sample = data.View(join_sample, done.offset)
            m.d.comb += again.eq((op == Opcode.JOIN) & sample.waits)
        with m.Switch(op):
            with m.Case(Opcode.PUSH):
                m.d.comb += [new.mask.eq(done.nonzero), new.depth.eq(context.depth + 1)]
            with m.Case(Opcode.ELSE):
                m.d.comb += new.mask.eq(kept & ~context.mask)
            with m.Case(Opcode.POP):
                m.d.comb += [new.mask.eq(kept), new.depth.eq(context.depth - 1)]
        self._next(m, own, again)
        return m

    def _masks(self, m: Module) -> Signal:
        """The mask stack. Returns its top."""
        depth, number = self._config.sm_warps * MASKS, bits(MASKS)
        m.submodules.stack = stack = memory.Memory(shape=WARP_THREADS, depth=depth, init=[])
        read, write, done = stack.read_port(), stack.write_port(), self.retired
        below = (self.ahead.context.depth - 1)[:number]
        m.d.comb += [
            read.addr.eq(Cat(below, self.ahead.warp)),
            write.en.eq(done.valid & (done.op == Opcode.PUSH)),
            write.addr.eq(Cat(done.at.context.depth[:number], done.at.warp)),
            write.data.eq(done.at.context.mask),
        ]
        return read.data

    def _next(self, m: Module, own: Signal, again: Signal) -> None:
        done, next_, op = self.retired, self.next, self.retired.op
        waits, barrier = op == Opcode.WAIT, op == Opcode.BAR
        elsewhere = Signal()
        with m.Switch(op):
            with m.Case(*MEMORY_OPCODES):
                m.d.comb += elsewhere.eq(1)
        m.d.comb += [
            next_.warp.eq(done.at.warp),
            next_.slot.eq(done.at.place.slot),
            next_.waits.eq(own & waits),
            next_.barrier.eq(own & barrier),
            next_.ready.eq(own & ~waits & ~barrier & ~again & ~elsewhere),
            next_.word.eq(done.word),
        ]
        if self._config.nested:
            m.d.comb += next_.joins.eq(own & again)
