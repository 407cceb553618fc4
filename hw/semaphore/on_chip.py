"""On-chip semaphores: memories of values and timestamps, and the pipeline that operates on them."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.config import Config
from signalbox.hw.records.semaphore import SemaphoreError, semaphore_update
from signalbox.hw.semaphore.alu import Alu, Bitwise, Control, Outcome, Prepared, Preparer

__all__ = ["OnChipSemaphores", "ZeroPrediction", "on_chip_operation", "semaphore_write"]

DISTRIBUTED_ROWS = 64
"""Up to this number of slots, the memories are distributed RAM, which is faster than block RAM."""


class ZeroPrediction(data.Struct):
    """Operations that may set or clear a zero flag before the value is known. `replaces` counts for
    all semaphores, the other members for counting semaphores only.

    Members
    -------
    replaces : the low half is replaced by that of the payload.
    raises : 32-bit reduction INC, or IADD of a non-negative payload.
    adds : 32-bit reduction IADD.
    steps_down : 32-bit reduction DEC.
    """

    replaces: 1
    raises: 1
    adds: 1
    steps_down: 1

    @staticmethod
    def of(control: data.View, negative: Value) -> dict[str, Value]:
        """Members for a decoded operation; `negative`: sign of the payload's low half."""
        counts = control.add & ~control.wide
        adds = counts & ~control.up & ~control.down
        return {
            "replaces": control.always & control.low & (control.bitwise == Bitwise.PAYLOAD),
            "raises": (counts & control.up) | (adds & ~negative),
            "adds": adds,
            "steps_down": counts & control.down,
        }


def on_chip_operation(config: Config) -> data.StructLayout:
    """Legal operation on `slot`.

    `behind`: the operation two cycles earlier writes the same slot. `counting`: on a counting
    semaphore (COPY-12). `zero`, `minus`: the low half of the payload is 0, or -1. `kind`: see
    `ZeroPrediction`. `low_stamp`, `high_stamp`: write this half of the timestamp, from the timer
    or, with `cpu`, from the payload.
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
        "kind": ZeroPrediction,
        "low_stamp": 1,
        "high_stamp": 1,
        "cpu": 1,
    })


def semaphore_write(config: Config) -> data.StructLayout:
    """Write to an on-chip semaphore."""
    return data.StructLayout({"valid": 1, "index": config.semaphore_bits, "value": 64})


class OnChipSemaphores(wiring.Component):
    """Operates on `config.semaphores` slots, one operation per cycle; each operation sees the
    results of all earlier ones. The requester must leave a cycle between an operation that writes a
    slot and the next one on that slot.

    Stage 1, in the cycle of `operation`: read the slot, prepare the operation. Stage 2: execute.
    Stage 3: select the result and write it. A bypass forwards the result from stage 3 to an
    operation on the same slot in stage 1.

    A zero flag is updated from stage 1 if the operation alone determines it, otherwise with the
    result in stage 3. The former is so for a release; for an increment of a counting semaphore; and
    for its decrement by one, unless an operation that writes the semaphore is in flight.

    Reset does not clear memories. For `config.semaphores` + 2 cycles after it, slots are cleared,
    one per cycle, and no operation may come.

    Parameters
    ----------
    block : keep the values in block RAM, which is read one cycle earlier, at `peek`; by default if
        there are more than `DISTRIBUTED_ROWS`.

    Members
    -------
    clearing : out, slots are being cleared after reset.
    peek : in, `semaphore_bits` bits: slot of the next cycle's operation.
    operation : in, strobe: an `on_chip_operation`; `slot` equals `peek` of the previous cycle.
    time : in, 64 bits: nanoseconds, for timestamps.
    passed : out, the operation passed; 2 cycles after `operation`.
    error : out, with `passed`: its `SemaphoreError`.
    value : out, 64 bits: the slot's new value, 3 cycles after `operation`.
    stamp : out, 64 bits: the slot's timestamp before the operation, 4 cycles after `operation`.
    zero : out, one bit for each of the first `config.counters` semaphores: its low 32 bits are 0; 1
        cycle after `operation`, or 3.
    update : out, strobe, 1 cycle after `operation`: it wrote semaphore `index`, or was refused
        (COPY-12).
    written : out, strobe, only with `config.trace`; combinational, 1 cycle after `operation`:
        semaphore `index` was written and now holds `value`.
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
            members["written"] = Out(semaphore_write(config))
        super().__init__(members)
        self.config = config
        self.block = config.semaphores > DISTRIBUTED_ROWS if block is None else block
        self._sweep = Signal(range(config.semaphores + 2), name="sweep")
        """Slot being cleared; goes two further, for the last writes to land."""
        # Neither memory has a transparent read port: the bypass below is explicit.
        attrs = {} if self.block else {"ram_style": "distributed"}
        # Rows for every index: reading past the end would be undefined in simulation.
        rows = 1 << config.semaphore_bits
        self._values = memory.Memory(shape=64, depth=rows, init=[], attrs=attrs)
        self._stamps = memory.Memory(shape=64, depth=rows, init=[], attrs=attrs)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.values = self._values
        m.submodules.alu = alu = Alu()
        m.submodules.preparer = preparer = Preparer()
        write = self._values.write_port()
        slot, valid = self.update.index, Signal()  # stage 2
        prepared = Signal(Prepared)
        value = Signal(64)
        compared = Signal(64)
        slot_3 = Signal.like(slot)
        valid_3 = Signal()
        outcome = Signal(Outcome)
        operand = Mux(self.operation.behind, outcome.result, self._read(m, valid_3, slot_3))
        m.d.comb += [
            alu.prepared.eq(prepared),
            alu.value.eq(value),
            alu.compared.eq(compared),
            self.passed.eq(outcome.passed),
            self.error.eq(outcome.error),
            write.addr.eq(slot_3),
            write.data.eq(outcome.result),
            write.en.eq(valid_3),  # an unchanged value is written back
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
        """Value of the slot in stage 1 before the operation in stage 3."""
        slot = self.operation.slot
        if not self.block:
            read = self._values.read_port(domain="comb")
            m.d.comb += read.addr.eq(slot)
            return read.data
        read = self._values.read_port()
        m.d.comb += read.addr.eq(self.peek)
        # The write of the previous cycle came too late for this read, so forward its result.
        valid_4 = Signal()
        slot_4 = Signal.like(slot)
        m.d.sync += [valid_4.eq(valid_3), slot_4.eq(slot_3)]
        return Mux(valid_4 & (slot_4 == slot), self.value, read.data)

    def _prepare(self, m: Module, preparer: Preparer, valid: Signal, prepared: data.View) -> None:
        """Passes stage 1 on to stage 2; while slots are cleared, inserts releases of 0."""
        operation = self.operation
        m.d.comb += [
            preparer.control.eq(operation.control),
            preparer.payload.eq(operation.payload),
            preparer.counting.eq(operation.counting),
        ]
        m.d.sync += [
            valid.eq(operation.valid | self.clearing),
            self.update.valid.eq(operation.valid & ~operation.control.acquire),
            self.update.index.eq(Mux(self.clearing, self._sweep, operation.slot)),
            prepared.eq(preparer.prepared),
        ]
        with m.If(self.clearing):
            cleared = Prepared.const({"always": 1})
            m.d.sync += [prepared.eq(cleared), self._sweep.eq(self._sweep + 1)]
            with m.If(self._sweep == self.config.semaphores + 1):
                m.d.sync += self.clearing.eq(0)

    def _show_zero(self, m: Module, outcome: data.View, alu: Alu) -> None:
        """Updates the zero flags, and tracks whether semaphores are 1. Whether a result is 0 or 1
        is known as early as the result itself, without the carries of the sum. Signals `_c` are for
        the bitwise result, `_t` for the sum."""
        operation = self.operation
        sets, clears, steps = self._foresee(m)
        combined, differ = alu.outcome.combined[:32], (alu.value ^ alu.prepared.addend)[:32]
        either = (alu.value | alu.prepared.addend)[:32]
        # A bit of the sum is 0 if its carry-in equals the XOR of the operands' bits; the carry into
        # the next bit is then their OR.
        rest = differ[2:] == either[1:31]
        zero_c = Signal()
        zero_t = Signal()
        one_c = Signal()
        one_t = Signal()
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
        """Effect of the operation in stage 1 on the zero flag, as far as it is known: sets it;
        clears it; sets it if the value is 0 or 1, otherwise clears it. The third is known only if
        no operation that writes the semaphore is in flight."""
        operation, kind = self.operation, self.operation.kind
        sets = Signal()
        clears = Signal()
        steps = Signal()
        counts, zero = operation.counting, operation.zero
        below = (kind.steps_down & ~zero) | (kind.adds & operation.minus)
        m.d.comb += [
            sets.eq(operation.valid & zero & (kind.replaces | (counts & kind.steps_down))),
            clears.eq(operation.valid & ~zero & (kind.replaces | (counts & kind.raises))),
            steps.eq(operation.valid & counts & ~operation.behind & below),
        ]
        return sets, clears, steps

    def _keep_stamps(self, m: Module, slot_3: Signal) -> None:
        """Timestamps are written and read in stage 4, one cycle after `passed` is known."""
        m.submodules.stamps = self._stamps
        operation = self.operation
        write = self._stamps.write_port(granularity=32)
        read = self._stamps.read_port()
        parts = data.StructLayout({"word": 64, "halves": 2, "always": 1})
        stamp = Signal(parts)
        stamp_3 = Signal(parts)
        slot_4 = Signal.like(slot_3)
        word_4 = Signal(64)
        halves_4 = Signal(2)
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
