"""Proofs of the semaphore unit."""

from typing import Any

from amaranth import Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import data

from hw.config import CONFIGS
from hw.methods import Reduction, SemOp
from hw.records import SemaphoreError
from hw.semaphore.alu import Alu, Control, Decoder
from hw.semaphore.onchip import OnChip
from tb.proofs.formal import AnyConst, Assert, Assume, Cover, Proof, Wrap, anything

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
    """Page 60, 2.1 and 2.2, and COPY-12, said a second time: with signed numbers of 66 bits, which
    nothing here can leave, and no shared terms.

    Attributes
    ----------
    supported, passed, writes, underflow, overflow : what happens.
    after : the 64 bits afterwards.
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
            with m.Elif((operation == SemOp.RELEASE) & request.timestamp):
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


class _Decoded(Elaboratable):
    """Decoder and the register behind it, as in the unit."""

    def __init__(self) -> None:
        self.request = Signal(REQUEST)
        self.control = Signal(Control)
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
        m.d.sync += [self.control.eq(decoder.control), self.supported.eq(decoder.supported)]
        return m


class AluProof(Proof):
    name = "semaphore.alu"
    shows = "every operation does what 2.2 and COPY-12 say, for all values; the rest is refused"
    induction = 2
    long = True

    def build(self, m: Module, wrap: Wrap) -> None:
        dut = _Decoded()
        m.submodules.dut = wrap(dut)
        m.submodules.alu = alu = Alu()
        request = Signal(REQUEST)
        started = Signal()
        m.d.comb += dut.request.eq(anything(m, REQUEST, "offered"))
        m.d.sync += [request.eq(dut.request), started.eq(1)]
        m.d.comb += [
            alu.control.eq(dut.control),
            alu.payload.eq(request.payload),
            alu.value.eq(anything(m, 64, "value")),
            alu.counting.eq(anything(m, 1, "counting")),
        ]
        spec = Specification(m, request, alu.value, alu.counting)
        with m.If(started):
            m.d.comb += Assert(dut.supported == spec.supported)
        with m.If(started & spec.supported):
            m.d.comb += [
                Assert(alu.passed == spec.passed),
                Assert(alu.write == spec.writes),
                Assert((alu.error == SemaphoreError.UNDERFLOW) == (spec.refused & spec.underflow)),
                Assert((alu.error == SemaphoreError.OVERFLOW) == (spec.refused & spec.overflow)),
                Assert((alu.error == SemaphoreError.NONE) == ~spec.refused),
            ]
        with m.If(started & spec.writes):
            m.d.comb += [
                Assert(alu.result == spec.after),
                Assert(alu.zero == (spec.after[:32] == 0)),
            ]


class OnChipProof(Proof):
    name = "semaphore.on_chip"
    shows = (
        "operations on a slot are atomic, back to back too; zero flags equal value == 0; every "
        "change strobes update, nothing else does"
    )
    induction = 3
    cover = 16

    def build(self, m: Module, wrap: Wrap) -> None:
        config = CONFIGS["tiny"]
        dut = OnChip(config)
        look = dut.values.read_port(domain="comb")  # the proof looks into the memory
        m.submodules.dut = wrap(dut)
        operation = dut.operation
        m.d.comb += [
            dut.peek.eq(anything(m, config.semaphore_bits, "peek")),
            dut.counting.eq(anything(m, dut.counting.shape(), "counting")),
            operation.control.eq(anything(m, Control, "control")),
            operation.payload.eq(anything(m, 64, "payload")),
            operation.valid.eq(anything(m, 1, "valid") & ~dut.clearing),
        ]
        clearing_before = Signal(init=1)
        m.d.sync += [operation.slot.eq(dut.peek), clearing_before.eq(dut.clearing)]
        with m.If(clearing_before):
            m.d.comb += Assume(~operation.valid)

        # Any slot, and what its value must be; `semaphore.alu` shows that the ALU is right.
        slot = Signal(config.semaphore_bits)
        expected = Signal(64)
        changed = Signal()
        m.submodules.alu = alu = Alu()
        m.d.comb += [
            slot.eq(AnyConst(config.semaphore_bits)),
            look.addr.eq(slot),
            alu.control.eq(operation.control),
            alu.payload.eq(operation.payload),
            alu.value.eq(expected),
            alu.counting.eq(operation.slot < dut.counting),
        ]
        mine = operation.valid & (operation.slot == slot)
        m.d.sync += changed.eq(mine & alu.write)
        with m.If(mine):
            m.d.comb += [Assert(dut.passed == alu.passed), Assert(dut.error == alu.error)]
            with m.If(alu.write):
                m.d.sync += expected.eq(alu.result)

        strobe = dut.update.valid & (dut.update.index == slot)
        m.d.comb += Assert(strobe == changed)
        with m.If(changed):
            m.d.comb += Assert(dut.update.value == expected)
        with m.If(dut.clearing):
            m.d.comb += [Assert(expected == 0), Assert(clearing_before), Assert(~changed)]
        with m.If(~dut.clearing | (slot < dut.sweep)):
            m.d.comb += Assert(look.data == expected)
        with m.If(slot < config.counters):
            m.d.comb += Assert(dut.zero.bit_select(slot, 1) == (expected[:32] == 0))
        m.d.comb += [Cover(changed & mine & alu.write), Cover(changed & (expected == 1))]


PROOFS = (AluProof(), OnChipProof())
