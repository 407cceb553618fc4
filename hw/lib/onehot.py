"""One-hot words: encoders, one-hot multiplexers and priority selection.

Amaranth repeats an expression for each of its bits, so pass signals.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

__all__ = ["encode", "lowest", "lowest_number", "select"]


def encode(onehot: Value) -> Value:
    """One-hot to binary encoder, 0 for no bit: an OR tree per index bit, so depth log(len).
    Undefined for several set bits. At least one bit wide."""
    bits = []
    for bit in range(max(1, (len(onehot) - 1).bit_length())):
        members = [onehot[i] for i in range(len(onehot)) if i >> bit & 1]
        bits.append(reduce(or_, members, Const(0, 1)))
    return Cat(*bits)


def select(onehot: Value, words: Iterable[Value]) -> Value:
    """One-hot multiplexer, 0 for no bit: an OR tree, so depth log(len). Undefined for several set
    bits."""
    masked = [Mux(onehot[i], word, 0) for i, word in enumerate(words)]
    while len(masked) > 1:
        masked = [
            masked[i] | masked[i + 1] if i + 1 < len(masked) else masked[i]
            for i in range(0, len(masked), 2)
        ]
    return masked[0]


def lowest(bits: Value) -> Value:
    """Isolates the lowest set bit of `bits`, 0 when there is none: a tree, so depth log(len)."""
    if len(bits) == 1:
        return bits
    middle = (len(bits) + 1) // 2
    low, high = lowest(bits[:middle]), lowest(bits[middle:])
    return Cat(low, Mux(bits[:middle].any(), 0, high))


def lowest_number(m: Module, bits: Value) -> tuple[Value, Value]:
    """Priority encoder for many bits, latency 1 cycle: whether any bit is set, and the index of the
    lowest. The register is between the selection within groups and that among groups."""
    size = 1 << max(1, (len(bits) - 1).bit_length() // 2)  # an index needs a bit
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
