"""Semaphores on chip: value and timestamp memories, and the stages that operate on them."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_update
from signalbox.hw.semaphore.alu import Alu, Bitwise, Control, Outcome, Prepared, Preparer

__all__ = ["Foreseen", "OnChip", "on_chip_operation", "written"]

DISTRIBUTED_ROWS = 64
"""Up to so many slots the memories are distributed RAM, which reads faster than block RAM."""


class Foreseen(data.Struct):
    """Operations whose effect on a zero flag may show without the value.

    Members
    -------
    replaces : the low half becomes that of the payload.
    raises : 32-bit reduction INC, or IADD of what is not negative; this and what follows counts
        only for counting semaphores.
    adds, steps_down : 32-bit reductions IADD and DEC.
    """

    replaces: 1
    raises: 1
    adds: 1
    steps_down: 1

    @staticmethod
    def of(control: data.View, negative: Value) -> dict[str, Value]:
        """Members for a decoded operation; `negative`: the low half of the payload is."""
        counts = control.add & ~control.wide
        adds = counts & ~control.up & ~control.down
        return {
            "replaces": control.always & control.low & (control.bitwise == Bitwise.PAYLOAD),
            "raises": (counts & control.up) | (adds & ~negative),
            "adds": adds,
            "steps_down": counts & control.down,
        }


def on_chip_operation(config: Config) -> data.StructLayout:
    """One operation on `slot`, already found legal.

    `behind`: the operation two cycles earlier writes the same slot. `counting`: on a counting
    semaphore (COPY-12). `zero`, `minus`: the low half of the payload is 0, or -1. `kind`: see
    `Foreseen`. `low_stamp`, `high_stamp` write these halves of the timestamp: from the timer, or
    with `cpu` from the payload.
    """
    return data.StructLayout({
        "valid": 1,
        "slot": config.semaphore_bits,
        "control": Control,
        "payload": 64,
        "behind": 1,
        "counting": 1,
        "zero": 1,
        "minus": 1,
        "kind": Foreseen,
        "low_stamp": 1,
        "high_stamp": 1,
        "cpu": 1,
    })


def written(config: Config) -> data.StructLayout:
    """A write to an on-chip semaphore."""
    return data.StructLayout({"valid": 1, "index": config.semaphore_bits, "value": 64})


class OnChip(wiring.Component):
    """One operation per cycle on `config.semaphores` slots; each sees all earlier ones. None may
    come right behind one that writes the same slot: whoever takes turns here waits for a cycle.

    Stage 1, in the cycle of `operation`: the slot is read and the operation is prepared. Stage 2:
    it is executed. Stage 3: its result is chosen and written. An operation in stage 1 takes what
    the one in stage 3 is about to write to the same slot instead of what it read.

    Zero flags do not wait for the result where it shows in stage 1 already whether it is 0: a
    release; one more, unless it is refused; one less, unless another operation on that semaphore
    is under way. They follow the result in stage 3 otherwise.

    Reset does not reach memories: for `config.semaphores` cycles after it and two more all slots
    are cleared, one by one, and no operation may come.

    Parameters
    ----------
    block : the values are in block RAM, which is read a cycle earlier, at `peek`; by default when
        there are many.

    Members
    -------
    clearing : slots are being cleared after reset.
    peek : slot of the next cycle's operation.
    operation : see `on_chip_operation`; `slot` equals `peek` of the previous cycle.
    time : nanoseconds, for timestamps.
    passed, error : one cycle after the operation was taken; combinational.
    value, stamp : the slot's 64-bit payload, three cycles after, and the timestamp that it had,
        four cycles after.
    zero : low 32 bits of semaphore i are 0, for the first `config.counters` semaphores; one cycle
        after the operation, or three.
    update : one cycle after: an operation wrote semaphore `index`, or was refused (COPY-12).
    written : with `config.trace` only; one cycle after: semaphore `index` was written and now holds
        `value`; combinational.

    Attributes
    ----------
    values, sweep : the payload memory, and the slot that is being cleared (state, for proofs).
    """

    def __init__(self, config: Config, *, block: bool | None = None) -> None:
        members = {
            "clearing": Out(1, init=1),
            "peek": In(config.semaphore_bits),
            "operation": In(on_chip_operation(config)),
            "time": In(64),
            "passed": Out(1),
            "error": Out(SemaphoreError),
            "value": Out(64),
            "stamp": Out(64),
            "zero": Out(config.counters, init=-1),
            "update": Out(semaphore_update(config)),
        }
        if config.trace:
            members["written"] = Out(written(config))
        super().__init__(members)
        self.config = config
        self.block = config.semaphores > DISTRIBUTED_ROWS if block is None else block
        self.sweep = Signal(range(config.semaphores + 2))  # the last two writes have to be seen
        # Neither memory is transparent: the bypass below is explicit (page 70: known miscompiles).
        attrs = {} if self.block else {"ram_style": "distributed"}
        # Rows for every index: reading past the end would be undefined in simulation.
        rows = 1 << config.semaphore_bits
        self.values = memory.Memory(shape=64, depth=rows, init=[], attrs=attrs)
        self.stamps = memory.Memory(shape=64, depth=rows, init=[], attrs=attrs)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.values = self.values
        m.submodules.alu = alu = Alu()
        m.submodules.preparer = preparer = Preparer()
        write = self.values.write_port()
        slot, valid = self.update.index, Signal()  # stage 2
        prepared, value, compared = Signal(Prepared), Signal(64), Signal(64)
        slot_3, valid_3, outcome = Signal.like(slot), Signal(), Signal(Outcome)  # stage 3
        operand = Mux(self.operation.behind, outcome.result, self._read(m, valid_3, slot_3))
        m.d.comb += [
            alu.prepared.eq(prepared),
            alu.value.eq(value),
            alu.compared.eq(compared),
            self.passed.eq(outcome.passed),
            self.error.eq(outcome.error),
            write.addr.eq(slot_3),
            write.data.eq(outcome.result),
            write.en.eq(valid_3),  # what is not changed is written back
        ]
        m.d.sync += [
            value.eq(operand),
            compared.eq(preparer.prepared.comparable(operand)),
            valid_3.eq(valid),
            slot_3.eq(slot),
            outcome.eq(alu.outcome),
            self.value.eq(outcome.result),
        ]
        self._prepare(m, preparer, valid, prepared)
        self._show_zero(m, outcome, alu)
        self._keep_stamps(m, slot_3)
        if self.config.trace:
            m.d.comb += [
                self.written.valid.eq(self.update.valid & alu.outcome.passed),
                self.written.index.eq(slot),
                self.written.value.eq(alu.outcome.result),
            ]
        return m

    def _read(self, m: Module, valid_3: Signal, slot_3: Signal) -> Value:
        """What the slot of the operation in stage 1 held before the operation in stage 3."""
        slot = self.operation.slot
        if not self.block:
            read = self.values.read_port(domain="comb")
            m.d.comb += read.addr.eq(slot)
            return read.data
        read = self.values.read_port()
        m.d.comb += read.addr.eq(self.peek)
        # While that was read, the operation behind stage 3 was in it.
        valid_4, slot_4 = Signal(), Signal.like(slot)
        m.d.sync += [valid_4.eq(valid_3), slot_4.eq(slot_3)]
        return Mux(valid_4 & (slot_4 == slot), self.value, read.data)

    def _prepare(self, m: Module, preparer: Preparer, valid: Signal, prepared: data.View) -> None:
        """From stage 1 to stage 2; while slots are cleared, releases of 0 come from here."""
        operation = self.operation
        m.d.comb += [
            preparer.control.eq(operation.control),
            preparer.payload.eq(operation.payload),
            preparer.counting.eq(operation.counting),
        ]
        m.d.sync += [
            valid.eq(operation.valid | self.clearing),
            self.update.valid.eq(operation.valid & ~operation.control.acquire),
            self.update.index.eq(Mux(self.clearing, self.sweep, operation.slot)),
            prepared.eq(preparer.prepared),
        ]
        with m.If(self.clearing):
            cleared = Prepared.const({"always": 1})
            m.d.sync += [prepared.eq(cleared), self.sweep.eq(self.sweep + 1)]
            with m.If(self.sweep == self.config.semaphores + 1):
                m.d.sync += self.clearing.eq(0)

    def _show_zero(self, m: Module, outcome: data.View, alu: Alu) -> None:
        """Zero flags, and whether semaphores are 1. Of both results of the ALU this is known with
        them, without the sum's carries."""
        operation = self.operation
        sets, clears, steps = self._foresee(m)
        combined, differ = alu.outcome.combined[:32], (alu.value ^ alu.prepared.addend)[:32]
        either = (alu.value | alu.prepared.addend)[:32]
        # A bit of a sum is 0 if its carry is as its addends differ; if so, the carry into the next
        # bit is 1 when either of them is.
        rest = differ[2:] == either[1:31]
        zero_c, zero_t, one_c, one_t = (Signal() for _ in range(4))
        m.d.sync += [
            zero_c.eq(~combined.any()),
            one_c.eq(combined[0] & ~combined[1:].any()),
            zero_t.eq(rest & ~differ[0] & (differ[1] == either[0])),
            one_t.eq(rest & differ[0] & ~differ[1]),
        ]
        is_zero = Mux(outcome.chosen, zero_c | outcome.kept, zero_t)
        is_one = Mux(outcome.chosen, one_c & ~outcome.kept, one_t)
        for index in range(self.config.counters):
            mine, in_2, in_3 = (Signal(name=f"{name}_{index}") for name in ("mine", "in_2", "in_3"))
            zero, one = self.zero[index], Signal(name=f"one_{index}")
            m.d.comb += mine.eq(operation.slot == index)
            m.d.sync += [in_2.eq(mine), in_3.eq(in_2 & self.update.valid)]
            with m.If(in_3):
                m.d.sync += one.eq(is_one)
            with m.If(mine & (sets | clears | steps)):
                m.d.sync += zero.eq(sets | (steps & (zero | one)))
            with m.Elif(in_3):
                m.d.sync += zero.eq(is_zero)

    def _foresee(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """What the operation in stage 1 does to the zero flag, where it shows: sets it; clears it;
        or, if no other is under way, sets it if the value is 0 or 1, and clears it otherwise."""
        operation, kind = self.operation, self.operation.kind
        sets, clears, steps = Signal(), Signal(), Signal()
        counts, zero = operation.counting, operation.zero
        below = (kind.steps_down & ~zero) | (kind.adds & operation.minus)
        m.d.comb += [
            sets.eq(operation.valid & zero & (kind.replaces | (counts & kind.steps_down))),
            clears.eq(operation.valid & ~zero & (kind.replaces | (counts & kind.raises))),
            steps.eq(operation.valid & counts & ~operation.behind & below),
        ]
        return sets, clears, steps

    def _keep_stamps(self, m: Module, slot_3: Signal) -> None:
        """Timestamps are written and read in stage 4, the cycle after it is known what passes."""
        m.submodules.stamps = self.stamps
        operation = self.operation
        write = self.stamps.write_port(granularity=32)
        read = self.stamps.read_port()
        parts = data.StructLayout({"word": 64, "halves": 2, "always": 1})
        stamp, stamp_3 = Signal(parts), Signal(parts)
        slot_4, word_4, halves_4 = Signal.like(slot_3), Signal(64), Signal(2)
        m.d.sync += [
            stamp.word.eq(Mux(operation.cpu, operation.payload, self.time)),
            stamp.halves.eq(
                Cat(operation.low_stamp, operation.high_stamp) & operation.valid.replicate(2)
            ),
            stamp.always.eq(operation.cpu),
            stamp_3.eq(stamp),
            slot_4.eq(slot_3),
            word_4.eq(stamp_3.word),
            halves_4.eq(stamp_3.halves & (self.passed | stamp_3.always).replicate(2)),
        ]
        with m.If(self.clearing):
            m.d.sync += stamp.eq(parts.const({"halves": 3, "always": 1}))
        m.d.comb += [
            write.addr.eq(slot_4),
            write.data.eq(word_4),
            write.en.eq(halves_4),
            read.addr.eq(slot_4),
            self.stamp.eq(read.data),
        ]
