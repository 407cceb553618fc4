"""Arithmetic of one lane."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from signalbox.hw.sm.core.records import Control, Left, Right

__all__ = ["STEPS", "AluLane", "lane_step"]

STEPS = 4
"""Latency from operands to result."""

lane_step = data.StructLayout({"control": Control, "shift": 5, "high": 1, "sign": 1})
"""Operation in one pipeline step of the lanes. `shift`: shift amount of an address. `high`: high
word of an address; it adds the carry of the low word, which is one step ahead. `sign`: sign of the
offset of a memory address."""


class AluLane(wiring.Component):
    """Executes the arithmetic of one thread per cycle, in four pipeline steps: prepare, multiply,
    add, select.

    Every result is a sum of `left` and `right`, prepared in the first step; products arrive in the
    third. Comparisons use a difference.

    Members
    -------
    steps : in, operations in the four steps.
    a : in, 32 bits: first operand of the first step.
    b : in, 32 bits: its second operand.
    c : in, 32 bits: its third operand.
    upper : in, 32 bits: high word of a memory address, for the first step.
    result : out, 32 bits, 4 cycles later, as the outputs below: the result.
    nonzero : out, `a` was not 0.
    third : out, 32 bits: `c`.
    address : out, 32 bits: high word of the sum with `upper`.
    """

    def __init__(self) -> None:
        super().__init__({
            "steps": In(lane_step).array(STEPS),
            "a": In(32),
            "b": In(32),
            "c": In(32),
            "upper": In(32),
            "result": Out(32),
            "nonzero": Out(1),
            "third": Out(32),
            "address": Out(32),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, right = [Signal(32, name=f"left{n}") for n in (1, 2, 3)], Signal(32)
        m.d.sync += [
            left[0].eq(self._left()),
            right.eq(self._right()),
            left[1].eq(left[0]),
            left[2].eq(left[1]),
        ]
        second = self._multiply(m, right)
        self._add(m, left[1], second)
        self._finish(m, left[2])
        self._carry_along(m)
        return m

    def _left(self) -> Value:
        left = self.steps[0].control.left
        return Mux(left == Left.A, self.a, Mux(left == Left.C, self.c, 0))

    def _right(self) -> Value:
        right, a, b = self.steps[0].control.right, self.a, self.b
        logic = Mux(right == Right.AND, a & b, Mux(right == Right.OR, a | b, a ^ b))
        plain = Mux(right == Right.NOT_B, ~b, b)
        is_logic = (right == Right.AND) | (right == Right.OR) | (right == Right.XOR)
        chosen = Mux(self.c.any(), a, b)
        other = Mux(right == Right.SHIFTED, self._shifted(), chosen)
        either = (right == Right.SHIFTED) | (right == Right.SELECT)
        return Mux(is_logic, logic, Mux(either, other, plain))

    def _shifted(self) -> Value:
        """A 64-bit funnel shift: a left shift is a right shift of the word with zeros below it."""
        step = self.steps[0]
        control = step.control
        word = Mux(control.address, self.b, self.a)
        fill = (word[31] & control.arithmetic).replicate(32)
        amount = Mux(control.address, step.shift, self.b[:5])
        left = ~control.right_shift
        whole = Mux(left & ~step.high, Cat(Const(0, 32), word), Cat(word, fill))
        return (whole >> Mux(left, 32 - amount, amount)[:6])[:32]

    def _multiply(self, m: Module, right: Signal) -> Signal:
        first, second = Signal(32, name="product1"), Signal(32, name="right2")
        m.d.sync += [
            first.eq((self.a * self.b)[:32]),
            second.eq(Mux(self.steps[1].control.right == Right.PRODUCT, first, right)),
        ]
        return second

    def _add(self, m: Module, left: Signal, right: Signal) -> None:
        step = self.steps[2]
        self._sum = Signal(33)
        self._other = Signal(32)
        carry = Mux(step.high, self._sum[32], step.control.carry)
        m.d.sync += [self._sum.eq(left + right + carry), self._other.eq(right)]

    def _finish(self, m: Module, left: Signal) -> None:
        """For a difference, `_other` is the inverted right operand."""
        control, total, other = self.steps[3].control, self._sum, self._other
        differ = left[31] == other[31]
        less = Mux(control.signed & differ, left[31], ~total[32])
        equal = ~total[:32].any()
        found = Signal()
        m.d.comb += found.eq((control.less & less | control.equal & equal) ^ control.invert)
        picked = Mux(found, left, ~other)
        m.d.sync += self.result.eq(
            Mux(control.compare, found, Mux(control.pick, picked, total[:32]))
        )

    def _carry_along(self, m: Module) -> None:
        nonzero = Signal(STEPS - 1)
        third = [Signal(32, name=f"third{n}") for n in range(STEPS - 1)]
        upper = [Signal(32, name=f"upper{n}") for n in range(STEPS - 1)]
        m.d.sync += [Cat(nonzero, self.nonzero).eq(Cat(self.a.any(), nonzero))]
        for word, words, last in ((self.c, third, self.third), (self.upper, upper, None)):
            for before, after in zip([word, *words], words, strict=False):
                m.d.sync += after.eq(before)
            if last is not None:
                m.d.sync += last.eq(words[-1])
        sign = self.steps[3].sign.replicate(32)
        m.d.sync += self.address.eq(upper[-1] + sign + self._sum[32])
