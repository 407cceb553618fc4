"""A word with one bit set: the bit's number, the word of several that it chooses, and how to get
such a word.

Where one is an expression, Amaranth writes it anew for each of its bits: pass a signal.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

__all__ = ["encode", "lowest", "lowest_number", "select"]


def encode(onehot: Value) -> Value:
    """Index of the set bit of `onehot`, 0 when none is: one OR tree per index bit, so depth
    log(len). Meaningless when several bits are set. At least one bit wide."""
    bits = []
    for bit in range(max(1, (len(onehot) - 1).bit_length())):
        members = [onehot[i] for i in range(len(onehot)) if i >> bit & 1]
        bits.append(reduce(or_, members, Const(0, 1)))
    return Cat(*bits)


def select(onehot: Value, words: Iterable[Value]) -> Value:
    """The word whose bit is set, 0 when none is: an OR tree, so depth log(len). Meaningless when
    several bits are set."""
    masked = [Mux(onehot[i], word, 0) for i, word in enumerate(words)]
    while len(masked) > 1:
        masked = [
            masked[i] | masked[i + 1] if i + 1 < len(masked) else masked[i]
            for i in range(0, len(masked), 2)
        ]
    return masked[0]


def lowest(bits: Value) -> Value:
    """The lowest set bit of `bits` alone, 0 when none is: a tree, so depth log(len)."""
    if len(bits) == 1:
        return bits
    middle = (len(bits) + 1) // 2
    low, high = lowest(bits[:middle]), lowest(bits[middle:])
    return Cat(low, Mux(bits[:middle].any(), 0, high))


def lowest_number(m: Module, bits: Value) -> tuple[Value, Value]:
    """Whether a bit of `bits` was set in the cycle before, and the number of the lowest one: for
    many bits. Each group of bits chooses before the register, then the groups."""
    size = 1 << max(1, (len(bits) - 1).bit_length() // 2)  # a place needs a bit
    groups = [bits[start : start + size] for start in range(0, len(bits), size)]
    some, places = Signal(len(groups), name="some"), []
    for number, group in enumerate(groups):
        first, place = Signal(len(group), name="first"), Signal(range(size), name="place")
        m.d.comb += first.eq(lowest(group))
        m.d.sync += [some[number].eq(group.any()), place.eq(encode(first))]
        places.append(place)
    which = Signal(len(groups), name="which")
    m.d.comb += which.eq(lowest(some))
    return some.any(), Cat(select(which, places), encode(which))
