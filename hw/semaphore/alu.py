"""Arithmetic of semaphore operations: the exact rules of HOST-4, without state.

Three steps, with a register after each: `Decoder` turns the fields of SEM_EXECUTE into control
bits; `Preparer` processes the payload as far as possible without the value; `Alu` applies it to the
value, with a carry chain and a multiplexer.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.methods import Reduction, SemOp
from signalbox.hw.records.semaphore import SemaphoreError

__all__ = ["Alu", "Bitwise", "Condition", "Control", "Decoder", "Outcome", "Prepared", "Preparer"]


class Bitwise(enum.Enum, shape=3):
    """Bitwise function of value and payload."""

    PAYLOAD = 0
    ZERO = 1
    XOR = 2
    AND = 3
    OR = 4
    NOR = 5


class Condition(enum.Enum, shape=2):
    """Pass condition of an acquire."""

    NONE_SET = 0
    """The bitwise result is 0."""
    ANY_SET = 1
    """The bitwise result is not 0."""
    GREATER = 2
    """Not less than the payload, unsigned."""
    AHEAD = 3
    """0 … 2^(w-1) - 1 ahead of the payload, modulo 2^w."""


class Control(data.Struct):
    """Decoded operation.

    Members
    -------
    acquire : the operation is an acquire, which only reads the value.
    condition : pass condition of an acquire.
    release : the new value does not depend on the old one.
    wide : 64-bit operation.
    low, high : this half of the value is replaced by the result, which is 0 above 32 bits unless
        `wide`. A half without its bit stays.
    bitwise : bitwise function of value and payload.
    always, if_greater, if_less, if_zero : case in which the new value is the bitwise result;
        otherwise it is the sum.
    strict : the comparison is for greater, otherwise for greater or equal.
    signed : signed comparison.
    add : the sum is value plus addend; otherwise it is the value.
    up, down : the addend is 1, or -1 (32 bits); otherwise it is the payload.
    """

    acquire: 1
    release: 1
    condition: Condition
    wide: 1
    low: 1
    high: 1
    bitwise: Bitwise
    always: 1
    if_greater: 1
    if_less: 1
    if_zero: 1
    strict: 1
    signed: 1
    add: 1
    up: 1
    down: 1


class Decoder(wiring.Component):
    """Decodes an operation, and checks the combination of operation, width and sign (spec 2.2).

    Members
    -------
    operation : in, a `SemOp`.
    reduction : in, 4 bits: operation of a reduction.
    unsigned : in, the reduction takes values as unsigned.
    wide : in, 64 bits instead of 32.
    timestamp : in, a timestamp is written, too.
    control : out, combinational: `Control` bits for the `Alu`.
    supported : out, combinational: 0 for a combination that 2.2 does not define.
    """

    operation: In(SemOp)
    reduction: In(4)
    unsigned: In(1)
    wide: In(1)
    timestamp: In(1)
    control: Out(Control)
    supported: Out(1)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.d.comb += [self.control.wide.eq(self.wide), self.supported.eq(1)]
        # With a timestamp, a 32-bit operation also clears bytes 4 … 7 (2.2, 16-byte structure).
        structure = self.wide | self.timestamp
        with m.Switch(self.operation):
            with m.Case(SemOp.RELEASE):
                m.d.comb += [
                    self.control.release.eq(1),
                    self.control.low.eq(1),
                    self.control.high.eq(structure),
                    self.control.always.eq(1),
                ]
            with m.Case(SemOp.REDUCTION):
                m.d.comb += [self.control.low.eq(1), self.control.high.eq(structure)]
                self._reduction(m)
            with m.Default():
                m.d.comb += self.control.acquire.eq(1)
                self._acquire(m)
        return m

    def _acquire(self, m: Module) -> None:
        condition, bitwise = self.control.condition, self.control.bitwise
        with m.Switch(self.operation):
            with m.Case(SemOp.ACQUIRE):
                m.d.comb += [condition.eq(Condition.NONE_SET), bitwise.eq(Bitwise.XOR)]
            with m.Case(SemOp.ACQ_STRICT_GEQ):
                m.d.comb += condition.eq(Condition.GREATER)
            with m.Case(SemOp.ACQ_CIRC_GEQ):
                m.d.comb += condition.eq(Condition.AHEAD)
            with m.Case(SemOp.ACQ_AND):
                m.d.comb += [condition.eq(Condition.ANY_SET), bitwise.eq(Bitwise.AND)]
            with m.Case(SemOp.ACQ_NOR):
                m.d.comb += [condition.eq(Condition.ANY_SET), bitwise.eq(Bitwise.NOR)]
            with m.Default():
                m.d.comb += self.supported.eq(0)

    def _reduction(self, m: Module) -> None:
        c = self.control
        counts = self.unsigned & ~self.wide
        with m.Switch(self.reduction):
            with m.Case(Reduction.IMIN):
                m.d.comb += [c.if_greater.eq(1), c.signed.eq(~self.unsigned)]
            with m.Case(Reduction.IMAX):
                m.d.comb += [c.if_less.eq(1), c.signed.eq(~self.unsigned)]
            with m.Case(Reduction.IXOR):
                m.d.comb += [c.always.eq(1), c.bitwise.eq(Bitwise.XOR)]
            with m.Case(Reduction.IAND):
                m.d.comb += [c.always.eq(1), c.bitwise.eq(Bitwise.AND)]
            with m.Case(Reduction.IOR):
                m.d.comb += [c.always.eq(1), c.bitwise.eq(Bitwise.OR)]
            with m.Case(Reduction.IADD):
                m.d.comb += [c.add.eq(1), self.supported.eq(self.unsigned | ~self.wide)]
            with m.Case(Reduction.INC):
                m.d.comb += [c.add.eq(1), c.up.eq(1), c.if_greater.eq(1)]
                m.d.comb += [c.bitwise.eq(Bitwise.ZERO), self.supported.eq(counts)]
            with m.Case(Reduction.DEC):
                m.d.comb += [c.add.eq(1), c.down.eq(1), c.if_greater.eq(1), c.strict.eq(1)]
                m.d.comb += [c.if_zero.eq(1), self.supported.eq(counts)]
            with m.Default():
                m.d.comb += self.supported.eq(0)


class Prepared(data.Struct):
    """Operation with its payload, ready to be applied to a value.

    Two results are formed, the bitwise one and the sum; a comparison selects one of them.

    Members
    -------
    wide : 64-bit operation: the carry of the sum passes from the low to the high half, which takes
        part in the comparison.
    ones : bitwise result where the value has a 1.
    zeros : bitwise result where the value has a 0.
    addend : second operand of the sum; 0 keeps the value.
    clear : the high half becomes 0 if the operation passes.
    complement : complement of the comparison's second operand.
    lax : equal counts as greater.
    top_one, top_zero : bit that replaces the value's sign bit in the comparison, if that is 1, and
        if it is 0.
    always, if_zero, compare : case in which the bitwise result is selected: always; if the low half
        of the value is 0; if the value compares greater.
    invert : with `compare`: if the value does not compare greater.
    pass_always : the operation passes, so it takes effect.
    pass_some : it passes if the bitwise result has a 1.
    pass_greater : it passes if the value compares greater.
    pass_inverted : inverts the last two conditions.
    wrap_low, wrap_high : inverts them again if this half of the value is negative.
    refuse_zero : refuses the operation if the low half of the value is 0.
    limit : error code if the operation does not pass.
    """

    wide: 1
    ones: 64
    zeros: 64
    addend: 64
    clear: 1
    complement: 64
    lax: 1
    top_one: 1
    top_zero: 1
    always: 1
    if_zero: 1
    compare: 1
    invert: 1
    pass_always: 1
    pass_some: 1
    pass_greater: 1
    pass_inverted: 1
    wrap_low: 1
    wrap_high: 1
    refuse_zero: 1
    limit: SemaphoreError

    def comparable(self, value: Value) -> Value:
        """The value as it enters the comparison; its sign bit may be replaced."""
        tops = [Mux(value[bit], self.top_one, self.top_zero) for bit in (31, 63)]
        high = Cat(value[32:63], tops[1]) & self.wide.replicate(32)
        return Cat(value[:31], Mux(self.wide, value[31], tops[0]), high)


class Preparer(wiring.Component):
    """Prepares an operation before its value is known; combinational.

    Members
    -------
    control : in, `Control` bits of a supported operation.
    payload : in, 64 bits: its payload; a 32-bit operation uses the low half.
    counting : in, refuse to take the value below 0 or beyond its width (COPY-12).
    prepared : out, the operation for `Alu`.
    """

    control: In(Control)
    payload: In(64)
    counting: In(1)
    prepared: Out(Prepared)

    def elaborate(self, platform) -> Module:
        m = Module()
        c, p = self.control, self.prepared
        payload = Signal(64)  # cut to the operation's width
        adds = Signal()
        sign = Signal()
        m.d.comb += [
            payload.eq(Cat(self.payload[:32], self.payload[32:] & c.wide.replicate(32))),
            adds.eq(c.add & ~c.up & ~c.down),
            p.wide.eq(c.wide),
            p.clear.eq(c.high & ~c.wide),
            sign.eq(Mux(c.wide, payload[63], payload[31])),
            p.addend.eq(
                Mux(adds, payload, Cat(c.up | c.down, (c.add & c.down).replicate(31), Const(0, 32)))
            ),
        ]
        self._combine(m, payload)
        self._compare(m, payload, adds, sign)
        self._judge(m, adds, sign)
        return m

    def _combine(self, m: Module, payload: Signal) -> None:
        """Bitwise result, half by half."""
        c, p = self.control, self.prepared
        stays = self.counting & c.add & ~c.down  # selected when the operation is refused
        decided = self.counting & c.down  # the high half may be selected; decided later
        for half, (replaced, keeps) in enumerate(((c.low, stays), (c.high, stays | decided))):
            word = payload.word_select(half, 32)
            ones, zeros = p.ones.word_select(half, 32), p.zeros.word_select(half, 32)
            active = (replaced | c.acquire) & ~keeps
            function = Signal(Bitwise, name=f"function_{half}")
            seen = c.wide if half else Const(1)
            m.d.comb += function.eq(Mux(seen, c.bitwise, Bitwise.ZERO))
            with m.If(~active):
                m.d.comb += [ones.eq(~0), zeros.eq(0)]
            with m.Else():
                with m.Switch(function):
                    with m.Case(Bitwise.PAYLOAD):
                        m.d.comb += [ones.eq(word), zeros.eq(word)]
                    with m.Case(Bitwise.XOR):
                        m.d.comb += [ones.eq(~word), zeros.eq(word)]
                    with m.Case(Bitwise.AND):
                        m.d.comb += [ones.eq(word), zeros.eq(0)]
                    with m.Case(Bitwise.OR):
                        m.d.comb += [ones.eq(~0), zeros.eq(word)]
                    with m.Case(Bitwise.NOR):
                        m.d.comb += [ones.eq(0), zeros.eq(~word)]
                    with m.Default():
                        m.d.comb += [ones.eq(0), zeros.eq(0)]

    def _compare(self, m: Module, payload: Signal, adds: Signal, sign: Signal) -> None:
        """Operands of the comparison. For a counting semaphore, the value is compared with the
        complement of the payload. If it is greater, a sum with a positive payload exceeds its
        width, and a sum with a negative payload stays at or above 0."""
        c, p = self.control, self.prepared
        counted = self.counting & adds
        complement = Mux(adds, payload, ~payload)
        tops = Signal(2)
        m.d.comb += [
            p.complement.eq(
                Cat(
                    complement[:31],
                    Mux(c.wide, complement[31], tops[0]),
                    Mux(c.wide, Cat(complement[32:63], tops[1]), 0xFFFF_FFFF),
                )
            ),
            p.lax.eq(~(c.strict | adds)),
            p.always.eq(c.always),
            p.if_zero.eq(c.if_zero),
            p.compare.eq(c.if_greater | c.if_less | counted),
            p.invert.eq(c.if_less | (counted & sign)),
        ]
        # Sign bits are inverted for signed comparison, and ignored where values wrap.
        with m.If(c.signed):
            m.d.comb += [p.top_zero.eq(1), tops.eq(~Cat(complement[31], complement[63]))]
        with m.Elif(c.condition == Condition.AHEAD):
            m.d.comb += tops.eq(~0)
        with m.Else():
            m.d.comb += [p.top_one.eq(1), tops.eq(Cat(complement[31], complement[63]))]

    def _judge(self, m: Module, adds: Signal, sign: Signal) -> None:
        """Pass condition of the operation."""
        c, p = self.control, self.prepared
        above = self.counting & c.up
        with m.If(c.acquire):
            ahead = c.condition == Condition.AHEAD
            none = c.condition == Condition.NONE_SET
            m.d.comb += [
                p.pass_some.eq(none | (c.condition == Condition.ANY_SET)),
                p.pass_greater.eq(~p.pass_some),
                p.pass_inverted.eq(none | (ahead & sign)),
                p.wrap_low.eq(ahead & ~c.wide),
                p.wrap_high.eq(ahead & c.wide),
            ]
        with m.Else():
            counted = self.counting & adds
            m.d.comb += [
                p.pass_always.eq(~(above | counted | p.refuse_zero)),
                p.pass_greater.eq(above | counted),
                p.pass_inverted.eq(above | (counted & ~sign)),
                p.refuse_zero.eq(self.counting & c.down),
                p.limit.eq(
                    Mux(c.down | (adds & sign), SemaphoreError.UNDERFLOW, SemaphoreError.OVERFLOW)
                ),
            ]


class Outcome(data.Struct):
    """Result of the `Alu`, up to its last two gates. They are in the properties below, which are
    used behind a register.

    Members
    -------
    combined : bitwise result.
    total : sum.
    kept : an operation with `refuse_zero` is refused, so the low half stays 0.
    clear : an operation with `refuse_zero` is not refused, so the high half of `combined` becomes
        0.
    greater : the value compares greater.
    choose, choose_compare : case in which `combined` is the result: always; if the value compares
        greater.
    choose_less : with `choose_compare`: if the value does not compare greater.
    some : per half, `combined` has a 1.
    pass_beside, pass_some, pass_greater, pass_inverted : as in `Prepared`; `pass_beside` is
        `pass_always`, or an operation with `refuse_zero` is not refused.
    limit : error code if the operation, other than an acquire, does not pass.
    """

    combined: 64
    total: 64
    kept: 1
    clear: 1
    greater: 1
    choose: 1
    choose_compare: 1
    choose_less: 1
    some: 2
    pass_beside: 1
    pass_some: 1
    pass_greater: 1
    pass_inverted: 1
    limit: SemaphoreError

    @property
    def chosen(self) -> Value:
        """Whether the result is `combined`; otherwise it is `total`."""
        return self.choose | (self.choose_compare & (self.greater ^ self.choose_less))

    @property
    def result(self) -> Value:
        """New value, all 64 bits; unchanged unless the operation passes."""
        dropped = Cat(self.kept.replicate(32), self.clear.replicate(32))
        return Mux(self.chosen, self.combined & ~dropped, self.total)

    @property
    def passed(self) -> Value:
        """Whether the condition of an acquire holds, or another operation takes effect."""
        test = (self.pass_some & self.some.any()) | (self.pass_greater & self.greater)
        asks = self.pass_some | self.pass_greater
        return self.pass_beside | (asks & (test ^ self.pass_inverted))

    @property
    def error(self) -> Value:
        """NONE, UNDERFLOW or OVERFLOW."""
        return Mux(self.passed, SemaphoreError.NONE, self.limit)


class Alu(wiring.Component):
    """Applies a supported operation to a value; combinational. Its depth is a 64-bit carry chain.

    Members
    -------
    prepared : in, the operation.
    value : in, 64 bits: operand; a 32-bit operation uses its low half.
    compared : in, 64 bits: `prepared.comparable(value)`, from a flip-flop.
    outcome : out, the result.
    """

    prepared: In(Prepared)
    value: In(64)
    compared: In(64)
    outcome: Out(Outcome)

    def elaborate(self, platform) -> Module:
        m = Module()
        p, value, outcome = self.prepared, self.value, self.outcome
        total = Signal(65)  # a bit between the halves propagates or stops the carry
        low_zero = Signal()
        m.d.comb += [
            low_zero.eq(~value[:32].any()),
            outcome.some.eq(Cat(outcome.combined[:32].any(), outcome.combined[32:].any())),
            total.eq(
                Cat(value[:32], p.wide, value[32:]) + Cat(p.addend[:32], Const(0), p.addend[32:])
            ),
            outcome.combined.eq((value & p.ones) | (~value & p.zeros)),
            outcome.total.eq(Cat(total[:32], Mux(p.clear, 0, total[33:]))),
            outcome.kept.eq(p.refuse_zero & low_zero),
            outcome.clear.eq(p.refuse_zero & p.clear & ~low_zero),
            outcome.greater.eq((Cat(Const(1), self.compared) + Cat(p.lax, p.complement))[65]),
            outcome.choose.eq(p.always | (p.if_zero & low_zero)),
            outcome.choose_compare.eq(p.compare),
            outcome.choose_less.eq(p.invert),
            outcome.pass_beside.eq(p.pass_always | (p.refuse_zero & ~low_zero)),
            outcome.pass_some.eq(p.pass_some),
            outcome.pass_greater.eq(p.pass_greater),
            outcome.pass_inverted.eq(
                p.pass_inverted ^ (p.wrap_low & value[31]) ^ (p.wrap_high & value[63])
            ),
            outcome.limit.eq(p.limit),
        ]
        return m
