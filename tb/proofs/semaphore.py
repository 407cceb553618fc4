"""Proofs of the semaphore unit."""

from typing import Any

from amaranth import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from signalbox.hw.config import CONFIGS
from signalbox.hw.methods import Reduction, SemOp
from signalbox.hw.records.semaphore import SemaphoreError
from signalbox.hw.semaphore.alu import Alu, Bitwise, Control, Decoder, Prepared, Preparer
from signalbox.hw.semaphore.on_chip import OnChipSemaphores, ZeroPrediction
from signalbox.tb.proofs.formal import (
    AnyConst,
    Assert,
    Assume,
    Cover,
    Inside,
    Proof,
    Wrap,
    anything,
)

__all__ = ["PROOFS"]

REQUEST = data.StructLayout({
    "operation": 3,
    "reduction": 4,
    "unsigned": 1,
    "wide": 1,
    "timestamp": 1,
    "payload": 64,
})


class Specification:
    """Independent specification of page 60, 2.1 and 2.2, and of COPY-12: with signed numbers of 66
    bits, which cannot overflow here, and without shared terms.

    Attributes
    ----------
    supported, passed, writes, underflow, overflow : outcome of the operation.
    after : the 64 bits after the operation.
    """

    def __init__(self, m: Module, request: Any, before: Value, counting: Value) -> None:
        wide, operation = request.wide, request.operation
        size = Mux(wide, 1 << 64, 1 << 32)
        number = signed(67)
        value, payload, total, new = (
            Signal(number, name=f"spec_{name}") for name in ("value", "payload", "total", "new")
        )
        m.d.comb += [
            value.eq(Mux(wide, before, before[:32])),
            payload.eq(Mux(wide, request.payload, request.payload[:32])),
        ]

        def as_signed(word: Value) -> Value:
            return Mux(word >= (size >> 1), word - size, word)

        self.supported, self.passed, acquires = Signal(), Signal(), Signal()
        self.underflow, self.overflow = Signal(), Signal()
        ahead = (value - payload) & (size - 1)
        with m.Switch(operation):
            for number_, condition in {
                SemOp.ACQUIRE: value == payload,
                SemOp.ACQ_STRICT_GEQ: value >= payload,
                SemOp.ACQ_CIRC_GEQ: ahead < (size >> 1),
                SemOp.ACQ_AND: (value & payload) != 0,
                SemOp.ACQ_NOR: (value | payload) != size - 1,
            }.items():
                with m.Case(number_):
                    m.d.comb += [self.supported.eq(1), acquires.eq(1), self.passed.eq(condition)]
            with m.Case(SemOp.RELEASE):
                m.d.comb += [self.supported.eq(1), new.eq(payload)]
            with m.Case(SemOp.REDUCTION):
                self._reduce(m, request, value, payload, total, new, size, as_signed)

        self.refused = Signal(name="spec_refused")
        self.writes = Signal(name="spec_writes")
        self.after = Signal(64, name="spec_after")
        m.d.comb += [
            self.refused.eq(counting & (self.underflow | self.overflow)),
            self.writes.eq(self.supported & ~acquires & ~self.refused),
            self.after.eq(before),
        ]
        with m.If(self.writes):
            m.d.comb += [self.passed.eq(1), self.after[:32].eq(new[:32])]
            with m.If(wide):
                m.d.comb += self.after[32:].eq(new[32:64])
            with m.Elif(request.timestamp):
                m.d.comb += self.after[32:].eq(0)

    def _reduce(
        self,
        m: Module,
        request: Any,
        value: Value,
        payload: Value,
        total: Signal,
        new: Signal,
        size: Value,
        as_signed: Any,
    ) -> None:
        narrow_unsigned = ~request.wide & request.unsigned
        less = Mux(request.unsigned, value < payload, as_signed(value) < as_signed(payload))
        m.d.comb += total.eq(value + as_signed(payload))
        with m.Switch(request.reduction):
            with m.Case(Reduction.IMIN):
                m.d.comb += [self.supported.eq(1), new.eq(Mux(less, value, payload))]
            with m.Case(Reduction.IMAX):
                m.d.comb += [self.supported.eq(1), new.eq(Mux(less, payload, value))]
            with m.Case(Reduction.IXOR):
                m.d.comb += [self.supported.eq(1), new.eq(value ^ payload)]
            with m.Case(Reduction.IAND):
                m.d.comb += [self.supported.eq(1), new.eq(value & payload)]
            with m.Case(Reduction.IOR):
                m.d.comb += [self.supported.eq(1), new.eq(value | payload)]
            with m.Case(Reduction.IADD):
                m.d.comb += [
                    self.supported.eq(request.unsigned | ~request.wide),
                    new.eq(total),
                    self.underflow.eq(total < 0),
                    self.overflow.eq(total >= size),
                ]
            with m.Case(Reduction.INC):
                m.d.comb += [
                    self.supported.eq(narrow_unsigned),
                    new.eq(Mux(value >= payload, 0, value + 1)),
                    self.overflow.eq(value >= payload),
                ]
            with m.Case(Reduction.DEC):
                m.d.comb += [
                    self.supported.eq(narrow_unsigned),
                    new.eq(Mux((value == 0) | (value > payload), payload, value - 1)),
                    self.underflow.eq(value == 0),
                ]


class _Prepared(Elaboratable):
    """The stage before the value is read, and the register after it."""

    def __init__(self) -> None:
        self.request = Signal(REQUEST)
        self.counting = Signal()
        self.prepared = Signal(Prepared)
        self.supported = Signal()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.decoder = decoder = Decoder()
        m.d.comb += [
            decoder.operation.eq(self.request.operation),
            decoder.reduction.eq(self.request.reduction),
            decoder.unsigned.eq(self.request.unsigned),
            decoder.wide.eq(self.request.wide),
            decoder.timestamp.eq(self.request.timestamp),
        ]
        m.submodules.preparer = preparer = Preparer()
        m.d.comb += [
            preparer.control.eq(decoder.control),
            preparer.payload.eq(self.request.payload),
            preparer.counting.eq(self.counting),
        ]
        m.d.sync += [self.prepared.eq(preparer.prepared), self.supported.eq(decoder.supported)]
        return m


class AluProof(Proof):
    name = "semaphore.alu"
    shows = "every operation does what 2.2 and COPY-12 say, for all values; the rest is refused"
    induction = 2

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = _Prepared()
        m.submodules.dut = wrap(dut)
        m.submodules.alu = alu = Alu()
        request, counting = Signal(REQUEST), Signal()
        started = Signal()
        m.d.comb += [
            dut.request.eq(anything(m, REQUEST, "offered")),
            dut.counting.eq(anything(m, 1, "counts")),
            alu.prepared.eq(dut.prepared),
            alu.value.eq(anything(m, 64, "value")),
            alu.compared.eq(dut.prepared.comparable(alu.value)),
        ]
        m.d.sync += [request.eq(dut.request), counting.eq(dut.counting), started.eq(1)]
        spec = Specification(m, request, alu.value, counting)
        with m.If(started):
            m.d.comb += Assert(dut.supported == spec.supported)
        outcome = alu.outcome
        with m.If(started & spec.supported):
            m.d.comb += [
                Assert(outcome.passed == spec.passed),
                Assert(outcome.result == spec.after),
                Assert(
                    (outcome.error == SemaphoreError.UNDERFLOW) == (spec.refused & spec.underflow)
                ),
                Assert(
                    (outcome.error == SemaphoreError.OVERFLOW) == (spec.refused & spec.overflow)
                ),
                Assert((outcome.error == SemaphoreError.NONE) == ~spec.refused),
            ]


class OnChipProof(Proof):
    name = "semaphore.on_chip"
    shows = (
        "operations on a slot are atomic, back to back too; zero flags follow value == 0 within 3 "
        "cycles, within 1 where that is promised, and never go back; every change strobes update"
    )
    induction = 5
    cover = 18
    block = False

    def build(self, m: Module, wrap: Wrap) -> None:
        config = CONFIGS["tiny"]
        dut = OnChipSemaphores(config, block=self.block)
        inside = Inside(dut)
        look = inside.submodule("values").read_port(domain="comb")
        sweep = inside.signal("sweep")
        m.submodules.dut = wrap(dut)
        operation = dut.operation
        self._offer(m, dut)
        writes = operation.valid & ~operation.control.acquire

        # Arbitration: no operation directly follows a write to the same slot, or comes during
        # clearing.
        before = [Signal(operation.slot.shape().width + 1, name=f"before_{n}") for n in range(2)]
        here = Cat(operation.slot, 1)
        m.d.sync += [before[0].eq(Cat(operation.slot, writes)), before[1].eq(before[0])]
        m.d.comb += operation.behind.eq(before[1] == here)
        clearing_before = Signal(init=1)
        m.d.sync += clearing_before.eq(dut.clearing)
        with m.If((before[0] == here) | dut.clearing):
            m.d.comb += Assume(~operation.valid)

        # Any slot, and its expected value after the executed operations, in stage 2.
        # `semaphore.alu` shows that the ALU's results are correct.
        slot = Signal(config.semaphore_bits)
        expected, earlier = Signal(64), Signal(64)
        wanted = Signal(Prepared)
        alu = inside.submodule("alu")
        m.submodules.preparer = preparer = Preparer()
        m.d.comb += [
            slot.eq(AnyConst(config.semaphore_bits)),
            look.addr.eq(slot),
            preparer.control.eq(operation.control),
            preparer.payload.eq(operation.payload),
            preparer.counting.eq(operation.counting),
        ]
        mine, executed, ended, changed = Signal(), Signal(), Signal(), Signal()
        m.d.comb += mine.eq(operation.valid & (operation.slot == slot))
        m.d.sync += [
            wanted.eq(preparer.prepared),
            executed.eq(mine),
            ended.eq(executed),
            changed.eq(mine & writes),
            earlier.eq(expected),
        ]
        after = Mux(executed, alu.outcome.result, expected)
        m.d.sync += expected.eq(after)
        with m.If(executed):
            m.d.comb += [
                Assert(alu.value == expected),
                Assert(alu.compared == wanted.comparable(expected)),
                Assert(alu.prepared == wanted),
            ]
        answer = Signal(5)
        m.d.sync += answer.eq(Cat(alu.outcome.passed, alu.outcome.error))
        with m.If(ended):
            m.d.comb += Assert(Cat(dut.passed, dut.error) == answer)
        m.d.comb += Assert((dut.update.valid & (dut.update.index == slot)) == changed)
        with m.If(dut.clearing):
            m.d.comb += [
                Assert(expected == 0),
                Assert(clearing_before),
                Assert(sweep <= config.semaphores + 1),
            ]
            with m.If(sweep > slot + 2):
                m.d.comb += Assert(look.data == 0)
        with m.Else():
            m.d.comb += Assert(look.data == earlier)
        self._zero(m, dut, inside, slot, (after, expected, earlier), mine & writes)
        m.d.comb += [Cover(changed & ended), Cover(dut.zero[0] & ended & changed)]

    def _offer(self, m: Module, dut: OnChipSemaphores) -> None:
        """Any legal operation of a client or of the control port."""
        operation = dut.operation
        request = anything(m, REQUEST, "request")
        cpu, half = anything(m, 1, "cpu"), anything(m, 1, "half")
        m.submodules.decoder = decoder = Decoder()
        low = request.payload[:32]
        foreseen = ZeroPrediction.of(operation.control, low[31])
        m.d.comb += [
            decoder.operation.eq(request.operation),
            decoder.reduction.eq(request.reduction),
            decoder.unsigned.eq(request.unsigned),
            decoder.wide.eq(request.wide),
            decoder.timestamp.eq(request.timestamp),
            operation.control.eq(decoder.control),
            operation.valid.eq(anything(m, 1, "valid")),
            operation.payload.eq(request.payload),
            operation.counting.eq(anything(m, 1, "counting")),
            operation.zero.eq(low == 0),
            operation.minus.eq(low == 0xFFFF_FFFF),
            *(operation.kind[name].eq(bit) for name, bit in foreseen.items()),
        ]
        with m.If(cpu):
            half_write = {"always": 1, "wide": 1, "bitwise": Bitwise.PAYLOAD}
            m.d.comb += [
                operation.control.eq(Control.const(half_write)),
                operation.control.low.eq(~half),
                operation.control.high.eq(half),
            ]
        with m.Elif(operation.valid):
            m.d.comb += Assume(decoder.supported)
        # The slot is known one cycle earlier.
        m.d.comb += dut.peek.eq(anything(m, len(dut.peek), "peek"))
        m.d.sync += operation.slot.eq(dut.peek)

    def _zero(
        self,
        m: Module,
        dut: OnChipSemaphores,
        inside: Inside,
        slot: Signal,
        values: tuple[Value, Value, Value],
        writes: Value,
    ) -> None:
        """The flag of the only counter. `values` : after the operations up to now, and before."""
        operation = dut.operation
        zero, control = dut.zero[0], operation.control
        states = [word[:32] == 0 for word in values]
        recent = Signal(3)
        m.d.sync += recent.eq(Cat(writes, recent[:2]))
        release = control.always & control.low & (control.bitwise == Bitwise.PAYLOAD)
        counts = operation.counting & control.add & ~control.wide & ~recent[:2].any()
        adds = ~control.up & ~control.down
        more = (control.up | (adds & ~operation.payload[31])) & ~operation.zero
        steps = counts & (more | control.down | (adds & operation.minus))
        promised = Signal()
        m.d.sync += promised.eq(writes & (release | steps))
        with m.If(slot == 0):
            m.d.comb += Assert(Cat(zero == state for state in states).any())
            with m.If(promised | ~recent.any()):
                m.d.comb += Assert(zero == states[0])
            with m.If(~recent.any()):
                m.d.comb += Assert(inside.signal("one_0") == (values[0][:32] == 1))


class OnChipBlockProof(OnChipProof):
    name = "semaphore.on_chip_block"
    shows = "the same with the slots in block RAM"
    block = True
    long = True


PROOFS = (AluProof(), OnChipProof(), OnChipBlockProof())
