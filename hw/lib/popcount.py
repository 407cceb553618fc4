"""How many of many events happen in a cycle."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal, Value

__all__ = ["tally"]


def tally(m: Module, bits: Iterable[Value], name: str) -> Value:
    """How many of `bits` are 1; two numbers are added per cycle, for there may be many. So it comes
    as many cycles later as their number has bits."""
    terms: list[Value] = list(bits)
    while len(terms) > 1:
        sums = [sum(terms[low : low + 2]) for low in range(0, len(terms), 2)]
        terms = [Signal.like(total, name=f"{name}_{len(sums)}") for total in sums]
        m.d.sync += [term.eq(total) for term, total in zip(terms, sums, strict=True)]
    return terms[0]
