"""Pipelined population count."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal, Value

__all__ = ["popcount"]


def popcount(m: Module, bits: Iterable[Value], name: str) -> Value:
    """Number of set bits, by a pipelined adder tree with a register after each level. Latency in
    cycles: log2 of the number of bits, rounded up."""
    terms: list[Value] = list(bits)
    while len(terms) > 1:
        sums = [sum(terms[low : low + 2]) for low in range(0, len(terms), 2)]
        terms = [Signal.like(total, name=f"{name}_{len(sums)}") for total in sums]
        m.d.sync += [term.eq(total) for term, total in zip(terms, sums, strict=True)]
    return terms[0]
