"""Number of the one bit that is set."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Value

__all__ = ["encode"]


def encode(onehot: Value) -> Value:
    """Index of the set bit of `onehot`, 0 when none is: one OR tree per index bit, so depth
    log(len). Meaningless when several bits are set. At least one bit wide."""
    bits = []
    for bit in range(max(1, (len(onehot) - 1).bit_length())):
        members = [onehot[i] for i in range(len(onehot)) if i >> bit & 1]
        bits.append(reduce(or_, members, Const(0, 1)))
    return Cat(*bits)
