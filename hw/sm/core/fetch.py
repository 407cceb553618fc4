"""Instruction fetch: from a picked warp to a checked instruction, including constants."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from signalbox.hw.config import VA_BITS, Config
from signalbox.hw.errors import CoreCause
from signalbox.hw.lib.stream import StreamFIFO
from signalbox.hw.records.memory import MemoryStatus, read_beat
from signalbox.hw.records.placement import KernelWord, coordinates
from signalbox.hw.sm.core.constant_cache import ReadOnlyCache
from signalbox.hw.sm.core.decode import InstructionCheck, holds
from signalbox.hw.sm.core.kernel_rows import (
    buffer_look,
    constant_buffer,
    kernel_traits,
    word_look,
)
from signalbox.hw.sm.core.records import instruction, join_sample, place, unit_kinds, warp_place
from signalbox.hw.sm.core.warp_scheduler import warp_event, warp_outcome
from signalbox.hw.sm.isa import (
    IMMEDIATE,
    INSTRUCTION_BYTES,
    LAYOUT,
    Instruction,
    Opcode,
    Operand,
    Special,
)
from signalbox.hw.sm.port import core_request

__all__ = ["CONSTANT_LINES", "PROGRAM_LINES", "Fetch", "last_words"]

PROGRAM_LINES, CONSTANT_LINES = 32, 8
"""64-byte lines of the program and constant caches."""

_BASE = ("valid", "dead", "dying", "saves", "odd", "at")
_WORD = ("missed", "status", "word")
"""Pipeline payload of a warp. `dead`: it must not execute, as its memory access failed (`dying`),
its block is stopped (`saves`), its row is killed, or it had ended before its block was saved.
`odd`: its pc is misaligned. The rest: its instruction, or the reason for its absence."""

_UNITS = {Operand.GLOBAL: "memory", Operand.LOCAL: "memory", Operand.SHARED: "shared"}


def _unit(one: Instruction) -> str | None:
    """Unit of `unit_kinds` that completes the instruction, if any."""
    if one.opcode is Opcode.LAUNCH:
        return "launch"
    return next((_UNITS[operand] for operand in one.operands if operand in _UNITS), None)


_DEPTH = 16
"""Instructions in flight from pick to execution."""


def last_words(config: Config) -> data.StructLayout:
    """Reason for the end of a warp, with the address of its instruction and the address accessed.
    `dying`: its memory access failed, as reported at the end of the access. `saves`: the warp must
    be saved."""
    return data.StructLayout({
        "valid": 1,
        "dying": 1,
        "saves": 1,
        "warp": config.warp_bits,
        "place": place(config),
        "cause": CoreCause,
        "at": VA_BITS,
        "va": VA_BITS,
    })


class Fetch(wiring.Component):
    """Fetches the instruction of one warp per cycle. Latency 7 cycles, from pick to the instruction
    queue. The pipeline never stalls: a warp that lacks a line or room is picked again later.

    Members
    -------
    pick : in, a `warp_event`: the picked warp.
    admit : out, 1 bit: a warp may be picked.
    at : in, `warp_place` of the picked warp, 1 cycle later.
    kill : in, per kernel row: execute nothing more.
    dying : in, per warp: execute nothing more.
    over : in, per warp: execute nothing more, since it had ended before its block was saved.
    stopped : in, per block slot: execute nothing more, save the warp.
    row : out, `row_bits` bits: number of a kernel row.
    traits : in, `kernel_traits` of its kernel, 1 cycle later.
    ask : out, a constant buffer, a `buffer_look`.
    buffer : in, its address and size, 1 cycle later.
    look : out, a kernel word, a `word_look`.
    word : in, 32 bits, 1 cycle later: its value.
    slot : out, `block_bits` bits: number of a block slot.
    block : in, `coordinates`, 1 cycle later: position of its block.
    room : in, per unit: room for one more instruction.
    reserve : out, strobe: the room is used.
    children : in, with nested launches; per block slot: has children that are not complete.
    child_failed : in, with nested launches; per block slot: a child that is complete has failed,
        see `SmPort`.
    outcome : out, outcome of a picked warp.
    last : out, a `last_words`, with `outcome`: reason for the end of the warp, if it ends or is
        saved.
    o : out, stream of `instruction`.
    drop : in, invalidate the lines of a row.
    program : out, port of the program cache: `request`, a stream of `core_request`, and `beat`, a
        strobe with a `read_beat`, for its fills; `open`, 1 bit: no fill is outstanding.
    constants : out, port of the constant cache, with the same members.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        kinds = unit_kinds(config)
        nested = dict.fromkeys(("children", "child_failed"), In(config.sm_blocks))
        reads = {
            "request": Out(stream.Signature(core_request(config))),
            "beat": In(data.StructLayout({"valid": 1, "beat": read_beat(config)})),
            "open": Out(1),
        }
        super().__init__({
            "pick": In(warp_event(config)),
            "admit": Out(1),
            "at": In(warp_place(config)),
            "kill": In(config.rows),
            "dying": In(config.sm_warps),
            "over": In(config.sm_warps),
            "stopped": In(config.sm_blocks),
            "row": Out(config.row_bits),
            "traits": In(kernel_traits(config)),
            "ask": Out(buffer_look(config)),
            "buffer": In(constant_buffer),
            "look": Out(word_look(config)),
            "word": In(32),
            "slot": Out(config.block_bits),
            "block": In(coordinates),
            "room": In(kinds),
            "reserve": Out(kinds),
            **(nested if config.nested else {}),
            "outcome": Out(warp_outcome(config)),
            "last": Out(last_words(config)),
            "o": Out(stream.Signature(instruction(config))),
            "drop": In(data.StructLayout({"valid": 1, "row": config.row_bits})),
            "program": Out(wiring.Signature(reads)),
            "constants": Out(wiring.Signature(reads)),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        flags = dict.fromkeys(("valid", "dead", "dying", "saves", "odd"), 1)
        base = {**flags, "at": warp_place(config)}
        word = {"missed": 1, "status": MemoryStatus, "word": LAYOUT}
        late = {"wrong": 1, "stack": 1, "constant": 1, "va": VA_BITS}
        m.submodules.program = self._programs = ReadOnlyCache(config, PROGRAM_LINES, 64)
        m.submodules.constants = self._constants = ReadOnlyCache(config, CONSTANT_LINES, 32)
        for port, cache in ((self.program, self._programs), (self.constants, self._constants)):
            m.d.comb += [
                port.request.valid.eq(cache.request.valid),
                port.request.payload.eq(cache.request.payload),
                cache.request.ready.eq(port.request.ready),
                cache.beat.eq(port.beat),
                port.open.eq(cache.open),
                cache.drop.eq(self.drop),
            ]
        self._asked = Signal(data.StructLayout(base))
        self._found = Signal(data.StructLayout({**base, **word, "traits": kernel_traits(config)}))
        self._checked = Signal(data.StructLayout({**base, **word, **late}))
        self._final = Signal.like(self._checked)
        self._ask(m)
        self._find(m)
        self._check(m)
        self._constant(m)
        self._decide(m)
        return m

    def _ask(self, m: Module) -> None:
        """The context has arrived; look up the instruction."""
        picked = Signal()
        at = self.at
        asked = self._asked
        look = self._programs.look
        dying, stopped = Signal(name="dying"), Signal(name="stopped")
        ends = Signal()
        m.d.comb += [
            dying.eq(self.dying.bit_select(at.warp, 1)),
            stopped.eq(self.stopped.bit_select(at.place.slot, 1)),
            ends.eq(
                dying | self.over.bit_select(at.warp, 1) | self.kill.bit_select(at.place.row, 1)
            ),
        ]
        m.d.sync += [
            picked.eq(self.pick.valid),
            asked.valid.eq(picked),
            asked.at.eq(at),
            asked.dead.eq(ends | stopped),
            asked.saves.eq(stopped & ~ends),
            asked.dying.eq(dying),
            asked.odd.eq(at.context.pc[:3].any()),
        ]
        m.d.comb += [
            look.valid.eq(picked),
            look.warp.eq(at.warp),
            look.row.eq(at.place.row),
            look.va.eq(at.context.pc),
            self.row.eq(at.place.row),
        ]

    def _find(self, m: Module) -> None:
        """The instruction, or a miss, and the kernel properties have arrived."""
        cache, asked, found = self._programs, self._asked, self._found
        leaves = asked.dead | asked.odd
        m.d.comb += [
            cache.wanted.eq(~leaves),
            cache.release.eq(1),
            self.ask.number.eq(data.View(LAYOUT, cache.word).a),
            self.ask.row.eq(asked.at.place.row),
        ]
        m.d.sync += [found[name].eq(asked[name]) for name in _BASE]
        m.d.sync += [
            found.missed.eq(~cache.hit),
            found.status.eq(cache.failed),
            found.word.eq(cache.word),
            found.traits.eq(self.traits),
        ]

    def _check(self, m: Module) -> None:
        m.submodules.forms = forms = InstructionCheck(self._config)
        found, checked = self._found, self._checked
        op = found.word.code[:7]
        m.d.comb += [
            forms.word.eq(found.word),
            forms.traits.eq(found.traits),
            forms.buffer.eq(self.buffer),
            forms.depth.eq(found.at.context.depth),
        ]
        m.d.sync += [checked[name].eq(found[name]) for name in (*_BASE, *_WORD)]
        m.d.sync += [
            checked.wrong.eq(forms.wrong),
            checked.stack.eq(forms.stack),
            checked.constant.eq(
                (op == Opcode.LDC) & ~(found.missed | found.dead | found.odd | forms.wrong)
            ),
            checked.va.eq(self.buffer.va + found.word.value[:17]),
        ]

    def _constant(self, m: Module) -> None:
        """Look up constants and special registers; every warp does so, whether it needs one or
        not."""
        checked, look, special = self._checked, self._constants.look, self._checked.word.value
        m.d.sync += self._final.eq(checked)
        m.d.comb += [
            look.valid.eq(checked.valid),
            look.warp.eq(checked.at.warp),
            look.row.eq(checked.at.place.row),
            look.va.eq(checked.va),
            self.slot.eq(checked.at.place.slot),
            self.look.row.eq(checked.at.place.row),
        ]
        with m.Switch(special):
            with m.Case(Special.NTID_X, Special.NTID_Y):
                m.d.comb += self.look.word.eq(KernelWord.BLOCK_XY)
            with m.Case(Special.NTID_Z):
                m.d.comb += self.look.word.eq(KernelWord.BLOCK_Z)
            with m.Case(Special.NCTAID_X):
                m.d.comb += self.look.word.eq(KernelWord.GRID_WIDTH)
            with m.Default():
                m.d.comb += self.look.word.eq(KernelWord.GRID_REST)

    def _shared_special(self, m: Module) -> Value:
        """A special register that is the same in all lanes."""
        final = self._final
        value = Signal(32)
        clock = Signal(32)
        m.d.sync += clock.eq(clock + 1)
        low, high = self.word[:16], self.word[16:]
        values = {
            Special.CTAID_X: self.block.x,
            Special.CTAID_Y: self.block.y,
            Special.CTAID_Z: self.block.z,
            Special.WARP: final.at.place.index,
            Special.NTID_X: low,
            Special.NTID_Y: high,
            Special.NTID_Z: low,
            Special.CLOCK: clock,
            Special.NCTAID_X: self.word,
            Special.NCTAID_Y: low,
            Special.NCTAID_Z: high,
        }
        if self._config.nested:
            values[Special.CHILDREN] = self.children.bit_select(final.at.place.slot, 1)
        with m.Switch(final.word.value):
            for one, source in values.items():
                with m.Case(one):
                    m.d.comb += value.eq(source)
        return value

    def _decide(self, m: Module) -> None:
        final, cache = self._final, self._constants
        op = final.word.code[:7]
        wanted = {
            name: holds(m, op, lambda one, name=name: _unit(one) == name, f"on_{name}")
            for name in unit_kinds(self._config).members
        }
        missed = Signal()
        lacks = Signal()
        cause = Signal(CoreCause)
        ended = Signal()
        goes = Signal()
        m.d.comb += [
            cache.wanted.eq(final.constant),
            # A warp that waited for a constant may return with another instruction, or with none.
            cache.release.eq(ended | ~final.missed),
            missed.eq(final.constant & ~cache.hit),
            lacks.eq(Cat(bit & ~self.room[name] for name, bit in wanted.items()).any()),
            cause.eq(self._cause(final, cache.failed)),
            ended.eq(final.dead | (cause != CoreCause.NONE) | ~final.missed & (op == Opcode.EXIT)),
            goes.eq(final.valid & ~ended & ~final.missed & ~missed & ~lacks),
            *(self.reserve[name].eq(goes & bit) for name, bit in wanted.items()),
        ]
        wanting = final.missed & ~final.odd
        outcome, last = self.outcome, self.last
        m.d.sync += [
            outcome.valid.eq(final.valid),
            outcome.warp.eq(final.at.warp),
            outcome.ended.eq(ended & ~final.saves),
            outcome.saves.eq(final.saves),
            outcome.held.program.eq(final.missed & ~ended),
            outcome.held.constants.eq(missed & ~ended),
            *(
                outcome.held[name].eq(bit & lacks & ~final.missed & ~ended)
                for name, bit in wanted.items()
            ),
            last.valid.eq(final.valid & ended),
            last.warp.eq(final.at.warp),
            last.place.eq(final.at.place),
            last.saves.eq(final.saves),
            last.cause.eq(Mux(final.dead, CoreCause.NONE, cause)),
            last.dying.eq(final.dying),
            last.at.eq(final.at.context.pc - Mux(final.dying, INSTRUCTION_BYTES, 0)),
            last.va.eq(Mux(missed, final.va, Mux(wanting, final.at.context.pc, 0))),
        ]
        self._queue(m, goes, final, op)

    def _cause(self, final: data.View, constants: Value) -> Value:
        """Reason why the warp cannot execute this instruction."""
        unread = Mux(final.missed, final.status, constants)
        bus, fault = unread == MemoryStatus.BUS, unread == MemoryStatus.FAULT
        wrong = final.odd | ~final.missed & final.wrong
        broken = Mux(bus, CoreCause.PROGRAM_BUS, Mux(fault, CoreCause.PROGRAM_FAULT, 0))
        stack = Mux(~final.missed & final.stack, CoreCause.MASK_STACK, broken)
        return Mux(wrong, CoreCause.INSTRUCTION, stack)

    def _queue(self, m: Module, goes: Value, final: data.View, op: Value) -> None:
        """Enqueue the instruction; there is room for all picked warps."""
        shape = instruction(self._config)
        m.submodules.queue = queue = StreamFIFO(shape, _DEPTH)
        entering = Signal()
        what = Signal(shape)
        inside = Signal(range(_DEPTH + 1))
        single = (op == Opcode.S2R) & final.word.value[2:].any()
        known = single | (op == Opcode.LDC)
        joins, sample = self._join(m, op, final.at.place.slot)
        constant = Mux(op == Opcode.LDC, self._constants.word, self._shared_special(m))
        value = Mux(known, constant, Mux(joins, sample, final.word.value))
        m.d.sync += [
            entering.eq(goes),
            what.at.eq(final.at),
            what.op.eq(Mux(known, Opcode.MOV, op)),
            what.immediate.eq(known | joins | (final.word.code & IMMEDIATE).any()),
            what.value.eq(value),
            *(what[name].eq(final.word[name]) for name in ("d", "a", "c")),
        ]
        taken = self.o.valid & self.o.ready
        left = self.outcome.valid & ~entering
        m.d.comb += [
            queue.i.valid.eq(entering),
            queue.i.payload.eq(what),
        ]
        connect(m, queue.o, flipped(self.o))
        # A grant being used now appears in `pick` only in the next cycle.
        m.d.sync += [
            inside.eq(inside + self.pick.valid - taken - left),
            self.admit.eq(inside < _DEPTH - 4),
        ]

    def _join(self, m: Module, op: Value, slot: Value) -> tuple[Value, Value]:
        """Whether the instruction is JOIN, and its operand."""
        if not self._config.nested:
            return Const(0), Const(0)
        sample = Signal(join_sample, name="join_sample")
        m.d.comb += [
            sample.waits.eq(self.children.bit_select(slot, 1)),
            sample.failed.eq(self.child_failed.bit_select(slot, 1)),
        ]
        return op == Opcode.JOIN, sample.as_value()
