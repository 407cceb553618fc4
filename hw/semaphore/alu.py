"""What a semaphore operation does to a value: the exact rules of HOST-4, without any state.

`Decoder` turns the fields of SEM_EXECUTE into a few control bits; `Preparer` does with the payload
what can be done without the value. Behind a register each, `Alu` is left with a carry chain and a
choice.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.methods import Reduction, SemOp
from signalbox.hw.records.semaphore import SemaphoreError

__all__ = ["Alu", "Bitwise", "Condition", "Control", "Decoder", "Outcome", "Prepared", "Preparer"]


class Bitwise(enum.Enum, shape=3):
    """Function of value and payload, bit by bit."""

    PAYLOAD = 0
    ZERO = 1
    XOR = 2
    AND = 3
    OR = 4
    NOR = 5


class Condition(enum.Enum, shape=2):
    """What an acquire asks for."""

    NONE_SET = 0
    """The bitwise result is 0."""
    ANY_SET = 1
    """The bitwise result is not 0."""
    GREATER = 2
    """Not less than the payload, unsigned."""
    AHEAD = 3
    """0 … 2^(w-1) - 1 ahead of the payload, modulo 2^w."""


class Control(data.Struct):
    """A decoded operation.

    Members
    -------
    acquire, condition : it reads only, and passes on this condition.
    release : the new value does not depend on the old one.
    wide : 64-bit.
    low, high : the result, of 32 bits with zeros, replaces these halves; the others stay.
    bitwise : the bitwise function.
    always, if_greater, if_less, if_zero : when the new value is the bitwise function; otherwise
        it is the sum.
    strict : greater means greater, not greater or equal.
    signed : the comparison is signed.
    add : the sum is value plus addend, else the value.
    up, down : the addend is 1, or -1 (32-bit), else the payload.
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
    """Control bits of an operation, and whether operation, width and sign go together (2.2).

    Members
    -------
    operation, reduction, unsigned, wide, timestamp : as in `semaphore_request`.
    control : what the `Alu` shall do; combinational.
    supported : 0 for an operation that 2.2 does not have.
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
        # With a timestamp 32 bits also clear bytes 4-7 (2.2, 16-byte structure).
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
    """A decoded operation with its payload, made ready for a value.

    Two results are formed, the one bit by bit and the sum; then a comparison chooses one of them.

    Members
    -------
    wide : 64-bit: the carry of the sum goes on from the low half to the high half, which is
        compared too.
    ones, zeros : result bit by bit, where the value has a 1, and where it has a 0.
    addend : what the sum adds; 0 leaves the value as it is.
    clear : the high half becomes 0 if the operation passes.
    complement : complement of what the value is compared with.
    lax : equal counts as greater.
    top_one, top_zero : what the value's sign bit is compared as, where it is 1, and where it is 0.
    always, if_zero, compare, invert : choose the result bit by bit: always; when the low half of
        the value is 0; when it compares greater, or not (`invert`).
    pass_always : the operation passes, takes effect.
    pass_some : it passes if the result bit by bit has a 1.
    pass_greater : it passes if the value compares greater.
    pass_inverted : in the last two cases, it passes if not.
    wrap_low, wrap_high : the other way round if this half of the value is negative.
    refuse_zero : refuse the operation when the low half of the value is 0.
    limit : error of an operation that does not pass.
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
        """What of a value is compared, where its sign bit may count in another way."""
        tops = [Mux(value[bit], self.top_one, self.top_zero) for bit in (31, 63)]
        high = Cat(value[32:63], tops[1]) & self.wide.replicate(32)
        return Cat(value[:31], Mux(self.wide, value[31], tops[0]), high)


class Preparer(wiring.Component):
    """What can be said of an operation before its value is there; combinational.

    Members
    -------
    control, payload : supported operation; a 32-bit one uses the low half of the payload.
    counting : refuse what would take the value below 0 or past its width (COPY-12).
    prepared : for `Alu`.
    """

    control: In(Control)
    payload: In(64)
    counting: In(1)
    prepared: Out(Prepared)

    def elaborate(self, platform) -> Module:
        m = Module()
        c, p = self.control, self.prepared
        payload = Signal(64)  # what counts at this width
        adds, sign = Signal(), Signal()  # the payload is added; its sign
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
        """The result bit by bit, half by half."""
        c, p = self.control, self.prepared
        stays = self.counting & c.add & ~c.down  # it is chosen when the operation is refused
        decided = self.counting & c.down  # it may be, and that is seen later
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
        """How to choose. A sum passes its width when the value is greater than the complement of
        the payload, and does not fall below 0 then when the payload is negative."""
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
        # Sign bits are turned round, or left out where values wrap.
        with m.If(c.signed):
            m.d.comb += [p.top_zero.eq(1), tops.eq(~Cat(complement[31], complement[63]))]
        with m.Elif(c.condition == Condition.AHEAD):
            m.d.comb += tops.eq(~0)
        with m.Else():
            m.d.comb += [p.top_one.eq(1), tops.eq(Cat(complement[31], complement[63]))]

    def _judge(self, m: Module, adds: Signal, sign: Signal) -> None:
        """When the operation passes."""
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
    """What becomes of a value, but for the last two gates, which have a register before them.

    Members
    -------
    combined, total : the result bit by bit, and the sum.
    kept : the operation is refused and the low half, 0, stays.
    clear : the high half of `combined` becomes 0, for an operation is not refused at 0.
    greater : the value compares greater.
    choose, choose_compare, choose_less : take `combined`; if the value compares greater, or not.
    some : which half of `combined` has a 1.
    pass_beside, pass_some, pass_greater, pass_inverted : as in `Prepared`; `pass_beside` is also
        that an operation that is refused at 0 is not.
    limit : why it does not, if it is no acquire.
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
        """The result is `combined`; else `total`."""
        return self.choose | (self.choose_compare & (self.greater ^ self.choose_less))

    @property
    def result(self) -> Value:
        """All 64 bits of the value afterwards; as they were, unless the operation passes."""
        dropped = Cat(self.kept.replicate(32), self.clear.replicate(32))
        return Mux(self.chosen, self.combined & ~dropped, self.total)

    @property
    def passed(self) -> Value:
        """An acquire's condition holds, or another operation takes effect."""
        test = (self.pass_some & self.some.any()) | (self.pass_greater & self.greater)
        asks = self.pass_some | self.pass_greater
        return self.pass_beside | (asks & (test ^ self.pass_inverted))

    @property
    def error(self) -> Value:
        """NONE, UNDERFLOW or OVERFLOW."""
        return Mux(self.passed, SemaphoreError.NONE, self.limit)


class Alu(wiring.Component):
    """One supported operation on one value; combinational. Its depth is a carry chain of 64 bits.

    Members
    -------
    prepared : the operation.
    value : operand; a 32-bit operation uses its low half.
    compared : `prepared.comparable(value)`, from a flip-flop.
    outcome : what becomes of it.
    """

    prepared: In(Prepared)
    value: In(64)
    compared: In(64)
    outcome: Out(Outcome)

    def elaborate(self, platform) -> Module:
        m = Module()
        p, value, outcome = self.prepared, self.value, self.outcome
        total = Signal(65)  # between the halves a bit that passes the carry on, or keeps it
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
