"""What a semaphore operation does to a value: the exact rules of HOST-4, without any state.

`Decoder` turns the fields of SEM_EXECUTE into a few control bits, ahead of a register; `Alu` then
has only one multiplexer, one carry chain and one multiplexer between operand and result.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from hw.methods import Reduction, SemOp
from hw.records import SemaphoreError

__all__ = ["Alu", "Bitwise", "Condition", "Control", "Decoder"]


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
    low, high : the result replaces these 32-bit halves of the value; the others stay.
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
        with m.Switch(self.operation):
            with m.Case(SemOp.RELEASE):
                # A timestamped 32-bit release also clears bytes 4-7 (2.2, 16-byte structure).
                m.d.comb += [
                    self.control.release.eq(1),
                    self.control.low.eq(1),
                    self.control.high.eq(self.wide | self.timestamp),
                    self.control.always.eq(1),
                ]
            with m.Case(SemOp.REDUCTION):
                m.d.comb += [self.control.low.eq(1), self.control.high.eq(self.wide)]
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


class Alu(wiring.Component):
    """One supported operation on one value; combinational.

    Members
    -------
    control : decoded operation.
    value, payload : operands; a 32-bit operation uses their low halves.
    counting : refuse what would take the value below 0 or past its width (COPY-12).
    result : all 64 bits of the new value; meaningful while `write`, or `acquire` (unchanged).
    zero : low 32 bits of `result` are 0.
    write : the operation changes the value (perhaps to what it was).
    passed : an acquire's condition holds, or `write`.
    error : NONE, UNDERFLOW or OVERFLOW.
    """

    control: In(Control)
    value: In(64)
    payload: In(64)
    counting: In(1)
    result: Out(64)
    zero: Out(1)
    write: Out(1)
    passed: Out(1)
    error: Out(SemaphoreError)

    def elaborate(self, platform) -> Module:
        m = Module()
        c = self.control

        value = Signal(64)  # what counts at this width
        payload = Signal(64)
        m.d.comb += [
            value.eq(self._narrow(self.value)),
            payload.eq(self._narrow(self.payload)),
        ]
        bitwise = Signal(64)
        # Each process sets a signal once: Icarus 11 can oscillate on more.
        with m.Switch(c.bitwise):
            with m.Case(Bitwise.PAYLOAD):
                m.d.comb += bitwise.eq(payload)
            with m.Case(Bitwise.XOR):
                m.d.comb += bitwise.eq(value ^ payload)
            with m.Case(Bitwise.AND):
                m.d.comb += bitwise.eq(value & payload)
            with m.Case(Bitwise.OR):
                m.d.comb += bitwise.eq(value | payload)
            with m.Case(Bitwise.NOR):
                m.d.comb += bitwise.eq(self._narrow(~(value | payload)))
            with m.Default():
                m.d.comb += bitwise.eq(0)

        difference = Signal(65)  # bit 64: no borrow
        m.d.comb += difference.eq((Cat(1, value) + Cat(~c.strict, ~payload))[1:])
        differing_signs = self._sign(value) ^ self._sign(payload)
        greater = Signal()
        m.d.comb += greater.eq(difference[64] ^ (c.signed & differing_signs))

        addend = Signal(64)
        m.d.comb += addend.eq(Mux(c.up, 1, Mux(c.down, 0xFFFF_FFFF, payload)))
        total = Signal(65)
        m.d.comb += total.eq(value + addend)
        carry = Mux(c.wide, total[64], total[32])

        value_zero = Signal()  # 32-bit operations only
        m.d.comb += value_zero.eq(~value[:32].any())
        replace = Signal()
        m.d.comb += replace.eq(
            c.always | (c.if_greater & greater) | (c.if_less & ~greater) | (c.if_zero & value_zero)
        )
        otherwise = Mux(c.add, total[:64], self.value)
        result = Mux(replace, bitwise, otherwise)
        m.d.comb += [
            self.result[:32].eq(Mux(c.low, result[:32], self.value[:32])),
            self.result[32:].eq(Mux(c.high, result[32:], self.value[32:])),
        ]

        # The three candidates are compared with 0 beside the multiplexer, not behind it; a sum is 0
        # when every bit of a ^ b equals the carry that a | b of the bit below passes on.
        sum_zero = ((value ^ addend) ^ ((value | addend) << 1))[:32] == 0
        keeps_zero = Mux(c.add, sum_zero, value_zero)
        m.d.comb += self.zero.eq(
            Mux(c.low, Mux(replace, ~bitwise[:32].any(), keeps_zero), value_zero)
        )

        negative = self._sign(payload)
        underflow = Mux(c.down, value_zero, ~c.up & negative & ~carry)
        overflow = Mux(c.up, greater, ~c.down & ~negative & carry)
        refused = self.counting & c.add & (underflow | overflow)
        m.d.comb += [
            self.write.eq(~c.acquire & ~refused),
            self.error.eq(
                Mux(
                    refused,
                    Mux(underflow, SemaphoreError.UNDERFLOW, SemaphoreError.OVERFLOW),
                    SemaphoreError.NONE,
                )
            ),
        ]

        holds = Signal()
        with m.Switch(c.condition):
            with m.Case(Condition.NONE_SET):
                m.d.comb += holds.eq(~bitwise.any())
            with m.Case(Condition.ANY_SET):
                m.d.comb += holds.eq(bitwise.any())
            with m.Case(Condition.GREATER):
                m.d.comb += holds.eq(greater)
            with m.Case(Condition.AHEAD):
                m.d.comb += holds.eq(~self._sign(difference))
        m.d.comb += self.passed.eq(Mux(c.acquire, holds, self.write))
        return m

    def _narrow(self, word: ValueLike) -> Value:
        """`word` without what a 32-bit operation does not see."""
        word = Value.cast(word)
        return Cat(word[:32], word[32:64] & self.control.wide.replicate(32))

    def _sign(self, word: Value) -> Value:
        """Sign bit at this width."""
        return Mux(self.control.wide, word[63], word[31])
